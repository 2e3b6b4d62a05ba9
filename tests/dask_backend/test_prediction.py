"""Predictions of Dask collections equal those of the rows in one piece, and keep chunks, index and divisions."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor

N_ROWS = 301


def frame(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=N_ROWS)
    numbers[rng.random(N_ROWS) < 0.1] = np.nan
    return pd.DataFrame(
        {"number": numbers, "whole": rng.integers(0, 9, N_ROWS), "text": rng.choice(["x", "y", "zz"], N_ROWS)},
        index=pd.Index(np.arange(N_ROWS) * 10, name="key"),
    )


def outer_rows(X: pd.DataFrame) -> pd.DataFrame:
    keys = X.index.to_numpy()
    return X[(keys < 500) | (keys > 2000)]


def no_rows(X: pd.DataFrame) -> pd.DataFrame:
    return X.iloc[:0]


def labels(X: pd.DataFrame) -> np.ndarray:
    grade = np.nan_to_num(X["number"].to_numpy()) + (X["text"] == "x") + X["whole"].to_numpy() / 9
    return np.array(["low", "middle", "very high"])[np.digitize(grade, [0.3, 1.0])]


@pytest.fixture(scope="module")
def classifier() -> DMLGBMClassifier:
    X = frame()
    return DMLGBMClassifier(n_estimators=5, num_leaves=7, n_jobs=1).fit(X, labels(X))


@pytest.fixture(scope="module")
def on_arrays() -> DMLGBMClassifier:
    X = frame()[["number", "whole"]].to_numpy()
    return DMLGBMClassifier(n_estimators=5, num_leaves=7).fit(X, X[:, 1] > 4)


def test_frame_predictions_keep_index_divisions_and_values(classifier: DMLGBMClassifier) -> None:
    X = frame()
    lazy = dd.from_pandas(X, npartitions=4)
    predicted = classifier.predict(lazy)
    assert isinstance(predicted, dd.Series)
    assert predicted.divisions == lazy.divisions
    computed = predicted.compute()
    pd.testing.assert_index_equal(computed.index, X.index)
    assert computed.dtype == predicted.dtype
    assert (computed.to_numpy() == classifier.predict(X)).all()


def test_frame_probabilities_have_a_column_for_each_class(classifier: DMLGBMClassifier) -> None:
    X = frame()
    lazy = classifier.predict_proba(dd.from_pandas(X, npartitions=3))
    assert list(lazy.columns) == ["low", "middle", "very high"]
    computed = lazy.compute()
    pd.testing.assert_index_equal(computed.index, X.index)
    assert (computed.to_numpy() == classifier.predict_proba(X)).all()


def test_options_reach_every_block(classifier: DMLGBMClassifier) -> None:
    X = frame()
    lazy = dd.from_pandas(X, npartitions=3)
    scores = classifier.predict(lazy, raw_score=True, num_iteration=2).compute()
    assert (scores.to_numpy() == classifier.predict(X, raw_score=True, num_iteration=2)).all()


def test_leaves_of_a_frame_are_those_of_the_rows(classifier: DMLGBMClassifier) -> None:
    X = frame()
    leaves = classifier.apply(dd.from_pandas(X, npartitions=3))
    assert list(leaves.columns) == list(range(15))
    assert (leaves.compute().to_numpy() == classifier.apply(X)).all()


def test_stages_of_a_frame_are_those_of_the_rows(classifier: DMLGBMClassifier) -> None:
    X = frame()
    lazy = dd.from_pandas(X, npartitions=2)
    for stage, expected in zip(classifier.staged_predict_proba(lazy), classifier.staged_predict_proba(X), strict=True):
        assert (stage.compute().to_numpy() == expected).all()


@pytest.mark.parametrize("chunks", [(100, 2), (7, 1), (N_ROWS, 2)])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "apply"])
def test_array_predictions_keep_row_chunks(on_arrays: DMLGBMClassifier, chunks: tuple[int, int], method: str) -> None:
    X = frame()[["number", "whole"]].to_numpy()
    lazy = da.from_array(X, chunks=chunks)
    predicted = getattr(on_arrays, method)(lazy)
    expected = getattr(on_arrays, method)(X)
    assert isinstance(predicted, da.Array)
    assert predicted.chunks[0] == lazy.chunks[0]
    assert predicted.shape == expected.shape
    assert predicted.dtype == expected.dtype
    assert (predicted.compute() == expected).all()


def test_unknown_chunks_and_empty_partitions_are_predicted(on_arrays: DMLGBMClassifier) -> None:
    X = frame()[["number", "whole"]]
    lazy = dd.from_pandas(X, npartitions=5)
    without_some = lazy.map_partitions(outer_rows)
    kept = outer_rows(X)
    assert 0 in without_some.map_partitions(len).compute().tolist()
    blocks = without_some.to_dask_array()
    assert np.isnan(blocks.shape[0])
    assert (on_arrays.predict_proba(blocks).compute() == on_arrays.predict_proba(kept.to_numpy())).all()


def test_frame_with_empty_partitions_keeps_dtypes(classifier: DMLGBMClassifier) -> None:
    X = frame()
    lazy = dd.from_pandas(X, npartitions=5)
    nothing = lazy.map_partitions(no_rows)
    assert classifier.predict(nothing).compute().dtype == classifier.predict(lazy).compute().dtype
    assert classifier.predict_proba(nothing).compute().shape == (0, 3)


def test_regressor_and_ranker_predict_collections() -> None:
    X = frame()[["number", "whole"]]
    target = X["whole"].to_numpy() * 1.5
    regressor = DMLGBMRegressor(n_estimators=4).fit(X, target)
    ranker = DMLGBMRanker(n_estimators=4).fit(X, X["whole"].to_numpy() // 3, group=[100, 100, 101])
    lazy = dd.from_pandas(X, npartitions=3)
    for model in (regressor, ranker):
        assert (model.predict(lazy).compute().to_numpy() == model.predict(X)).all()


def test_a_later_fit_does_not_change_a_prediction_made_before() -> None:
    X = frame()[["number", "whole"]]
    model = DMLGBMRegressor(n_estimators=3).fit(X, X["whole"])
    before = model.predict(X)
    lazy = model.predict(dd.from_pandas(X, npartitions=2))
    model.fit(X, -X["whole"])
    assert (lazy.compute().to_numpy() == before).all()


def test_wrong_columns_are_an_error_before_anything_is_computed(classifier: DMLGBMClassifier) -> None:
    with pytest.raises(ValueError, match="lacks the column 'text'"):
        classifier.predict(dd.from_pandas(frame().drop(columns="text"), npartitions=2))
    with pytest.raises(ValueError, match="3 features"):
        classifier.predict(da.zeros((10, 4), chunks=5))
    with pytest.raises(TypeError, match=r"dask\.dataframe\.DataFrame and dask\.array\.Array"):
        classifier.predict(dd.from_pandas(frame(), npartitions=2)["number"].to_bag())


def test_model_is_one_node_of_the_graph(classifier: DMLGBMClassifier) -> None:
    lazy = classifier.predict(dd.from_pandas(frame(), npartitions=20))
    graph = dict(lazy.optimize().__dask_graph__())
    tasks = [task for key, task in graph.items() if "dmlgbm-model" not in str(key) and "frompandas" not in str(key)]
    assert len(tasks) == 20
    # A task that carried the model would be larger than the model itself.
    assert max(len(pickle.dumps(task)) for task in tasks) < len(classifier.booster_.to_bytes()) / 2


def _count_loads() -> None:
    from dmlgbm.gbdt.booster import Booster

    original = Booster.from_bytes.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, data: bytes) -> Any:
        Booster.n_loads = getattr(Booster, "n_loads", 0) + 1  # type: ignore[attr-defined]
        return original(cls, data)

    Booster.from_bytes = classmethod(counted)  # type: ignore[method-assign, assignment]


def _loads() -> int:
    from dmlgbm.gbdt.booster import Booster

    return getattr(Booster, "n_loads", 0)


def test_model_travels_to_each_worker_once(client: Client, classifier: DMLGBMClassifier) -> None:
    client.run(_count_loads)
    X = frame()
    lazy = dd.from_pandas(X, npartitions=30)
    predicted = classifier.predict(lazy).compute()
    assert (predicted.to_numpy() == classifier.predict(X)).all()
    assert max(client.run(_loads).values()) <= 2  # the worker that unpacks the graph, and its own copy


def loaded(client: Client) -> set[str]:
    """What of the large libraries workers have in memory; a function of this file would bring all of them along."""
    names = "{'sklearn', 'scipy', 'pandas', 'numba', 'joblib'}"
    return set().union(*client.run(eval, f"{names} & set(__import__('sys').modules)").values())


@pytest.mark.processes
def test_workers_load_neither_scikit_learn_nor_pandas_nor_numba_to_predict(on_arrays: DMLGBMClassifier) -> None:
    X = frame()[["number", "whole"]].to_numpy()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit=0) as fresh,
        Client(fresh) as client,
    ):
        client.run(lambda: __import__("dask.array") and None)
        of_dask = loaded(client)  # scipy; and numba where the package sparse is installed
        assert of_dask <= {"scipy", "numba"}
        probabilities = on_arrays.predict_proba(da.from_array(X, chunks=(100, 2))).compute()
        assert loaded(client) == of_dask
        assert (probabilities == on_arrays.predict_proba(X)).all()
        named = pd.DataFrame(X, columns=["number", "whole"])
        model = DMLGBMRegressor(n_estimators=2).fit(named, X[:, 1])
        predicted = model.predict(dd.from_pandas(named, npartitions=2)).compute()
        assert loaded(client) <= {"pandas", *of_dask}
        assert (predicted.to_numpy() == model.predict(named)).all()


def test_models_of_local_functions_predict_collections(client: Client) -> None:
    X = frame()[["number", "whole"]].to_numpy()
    target, shift = X[:, 1], 0.5

    def closure(y: Any, score: Any) -> tuple[Any, Any]:
        return score - y - shift, np.ones_like(score)

    lock = threading.Lock()  # not even cloudpickle takes it

    def unpicklable(y: Any, score: Any) -> tuple[Any, Any]:
        with lock:
            return score - y, np.ones_like(score)

    for objective in (closure, unpicklable, lambda y, score: (score - y, np.ones_like(score))):
        model = DMLGBMRegressor(objective=objective, eval_metric=lambda y, p: ("own", 0.0, True), n_estimators=3)
        model.fit(X, target)
        predicted = model.predict(da.from_array(X, chunks=(100, 2))).compute()
        assert (predicted == model.predict(X)).all()


def test_a_subclass_predicts_as_its_base_does_and_is_named_in_errors(classifier: DMLGBMClassifier) -> None:
    class Own(DMLGBMClassifier):
        pass

    X = frame()
    own = Own(n_estimators=5, num_leaves=7, n_jobs=1).fit(X, labels(X))
    assert (own.predict(dd.from_pandas(X, npartitions=2)).compute().to_numpy() == classifier.predict(X)).all()
    with pytest.raises(ValueError, match="Own was fitted"):
        own.predict(dd.from_pandas(X.drop(columns="text"), npartitions=2))


def test_local_model_predicts_on_the_cluster_and_stays_plain(client: Client, on_arrays: DMLGBMClassifier) -> None:
    X = frame()[["number", "whole"]].to_numpy()
    lazy = on_arrays.predict_proba(da.from_array(X, chunks=(50, 2)))
    assert (lazy.compute() == on_arrays.predict_proba(X)).all()
    again = pickle.loads(pickle.dumps(on_arrays))
    assert (again.predict_proba(X) == on_arrays.predict_proba(X)).all()


def test_scores_of_collections_are_those_of_the_rows(classifier: DMLGBMClassifier) -> None:
    X = frame()
    y = pd.Series(labels(X), index=X.index)
    with dask.config.set(scheduler="synchronous"):
        found = classifier.score(dd.from_pandas(X, npartitions=3), dd.from_pandas(y, npartitions=3))
    assert found == classifier.score(X, y)


def test_scores_logarithms_and_stretches_of_iterations_are_those_of_the_rows_in_one_piece() -> None:
    X = frame()
    model = DMLGBMClassifier(n_estimators=4, num_leaves=5).fit(X, labels(X))
    lazy = dd.from_pandas(X, npartitions=3)
    for method in ("decision_function", "predict_log_proba"):
        np.testing.assert_array_equal(np.asarray(getattr(model, method)(lazy)), getattr(model, method)(X))
    stretch = {"start_iteration": 1, "num_iteration": 2}
    np.testing.assert_array_equal(np.asarray(model.predict_proba(lazy, **stretch)), model.predict_proba(X, **stretch))
