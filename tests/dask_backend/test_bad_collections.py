"""Input that cannot be trained on is refused on the client, in words that name it, and the workers stay healthy."""

from __future__ import annotations

import re
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
from dmlgbm.dask_backend import worker_holdings
from tests.dask_backend.tables import in_partitions
from tests.reference.leftovers import soon_equals


def frame(n_rows: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=n_rows), "b": rng.integers(0, 5, n_rows)})


def target(n_rows: int = 90) -> pd.Series:
    return pd.Series(np.arange(n_rows) % 2)


def from_parts(*parts: pd.DataFrame) -> dd.DataFrame:
    return dd.from_delayed([dask.delayed(part) for part in parts], meta=parts[0].iloc[:0], verify_meta=False)


def _kept() -> tuple[int, int]:
    """Holdings and threads of fits on a worker."""
    return len(worker_holdings._holdings), sum(each.name.startswith("dmlgbm") for each in threading.enumerate())


@pytest.fixture(autouse=True)
def _healthy_afterwards(client: Client) -> Any:
    before = set(client.scheduler_info(n_workers=-1)["workers"])
    yield
    assert set(client.scheduler_info(n_workers=-1)["workers"]) == before
    assert soon_equals(lambda: set(client.run(_kept).values()), {(0, 0)}), client.run(_kept)


def test_partitions_of_x_and_y_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="X has 3 partitions, but y has 2 partitions"):
        DMLGBMClassifier().fit(in_partitions(frame(), 3), in_partitions(target(), 2))


def test_partitions_of_x_and_y_must_have_the_same_rows() -> None:
    with pytest.raises(ValueError, match="Partition 0 of X has 30 rows, but that of y has 40"):
        DMLGBMClassifier().fit(in_partitions(frame(), 3), in_partitions(target(), (0, 40, 60, 90)))


def test_arrays_must_have_the_same_length() -> None:
    with pytest.raises(ValueError, match="y has 80 values for 90 rows of X"):
        DMLGBMClassifier().fit(da.from_array(frame().to_numpy(), chunks=(30, 2)), da.from_array(np.arange(80) % 2))
    with pytest.raises(ValueError, match="sample_weight has 5 values for 90 rows of X"):
        DMLGBMRegressor().fit(in_partitions(frame(), 3), in_partitions(target(), 3), sample_weight=np.ones(5))


def test_known_divisions_must_agree() -> None:
    X, y = dd.from_pandas(frame(), npartitions=3), dd.from_pandas(target().iloc[::-1].sort_index(), chunksize=40)
    with pytest.raises(ValueError, match="The divisions of X and y differ"):
        DMLGBMRegressor().fit(X, y)


def test_missing_target_names_partition_and_row() -> None:
    y = target().astype(float)
    y[35] = np.nan
    for estimator in (DMLGBMClassifier(), DMLGBMRegressor()):
        with pytest.raises(ValueError, match=r"In partition 1.*y holds NaN in row 5"):
            estimator.fit(in_partitions(frame(), 3), in_partitions(y, 3))


def test_target_outside_of_the_objective_names_the_row_of_x() -> None:
    y = target().astype(float)
    y[65] = -1.0
    X, lazy = in_partitions(frame(), 3), in_partitions(y, 3)
    for mode in ("data", "feature"):
        with pytest.raises(ValueError, match=r"The target of row 65 of X \(row 5 of partition 2\) is -1.0, but"):
            DMLGBMRegressor(objective="poisson", tree_learner=mode).fit(X, lazy)


def test_row_is_named_as_x_has_it_where_others_are_set_aside() -> None:
    y = target().astype(float)
    y[60:] = -1.0
    model = DMLGBMRegressor(objective="poisson", early_stopping=True, validation_fraction=0.5)
    with pytest.raises(ValueError, match="of partition 2") as caught:
        model.fit(in_partitions(frame(), 3), in_partitions(y, 3))
    [row] = re.findall(r"row (\d+) of X", str(caught.value))
    assert 60 <= int(row) < 90


def test_gradient_of_a_function_names_the_row_of_x() -> None:
    def bad_gradient(y: Any, score: Any) -> Any:
        gradient = score - y
        gradient[y == 7.0] = np.nan
        return gradient, np.ones_like(y)

    y = target().astype(float)
    y[40] = 7.0
    with pytest.raises(ValueError, match=r"gradient of row 40 of X \(row 10 of partition 1\) is nan"):
        DMLGBMRegressor(objective=bad_gradient).fit(in_partitions(frame(), 3), in_partitions(y, 3))


def test_error_of_a_function_is_not_taken_for_a_loss() -> None:
    def lost(y: Any, score: Any) -> Any:
        raise KeyError("no such setting")

    with pytest.raises(KeyError, match="no such setting"):
        DMLGBMRegressor(objective=lost).fit(in_partitions(frame(), 3), in_partitions(target(), 3))


def test_target_is_required() -> None:
    with pytest.raises(ValueError, match="requires y to be passed"):
        DMLGBMRegressor().fit(in_partitions(frame(), 3), None)


def test_columns_must_be_the_same_in_all_partitions() -> None:
    X = frame()
    lazy = from_parts(X.iloc[:45], X.iloc[45:].rename(columns={"b": "c"}))
    with pytest.raises(ValueError, match=r"Partitions 0 and 1 of X have different columns \(column 'b'"):
        DMLGBMRegressor().fit(lazy, in_partitions(target(), 2))


def test_types_must_be_the_same_in_all_partitions() -> None:
    X = frame()
    lazy = from_parts(X.iloc[:45], X.iloc[45:].assign(b="text"))
    with pytest.raises(
        TypeError, match=r"column 'b' of X holds text or categories in partition 1 but numbers in partiti"
    ):
        DMLGBMRegressor().fit(lazy, in_partitions(target(), 2))


def test_one_class_in_all_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="one class only"):
        DMLGBMClassifier().fit(in_partitions(frame(), 3), in_partitions(target() * 0, 3))


def test_no_rows_in_any_partition_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0 sample\(s\) in all partitions"):
        DMLGBMRegressor().fit(in_partitions(frame().iloc[:0], (0, 0, 0)), in_partitions(target().iloc[:0], (0, 0, 0)))


def test_weights_must_not_all_be_zero() -> None:
    zeros = in_partitions(target() * 0.0, 3)
    with pytest.raises(ValueError, match="every weight is zero"):
        DMLGBMRegressor().fit(in_partitions(frame(), 3), in_partitions(target(), 3), sample_weight=zeros)


def test_query_that_returns_is_refused() -> None:
    ids = pd.Series(np.repeat([0, 1, 2, 1], [30, 20, 20, 20]))
    with pytest.raises(ValueError, match="qid returns to 1 in row 70"):
        DMLGBMRanker().fit(in_partitions(frame(), 3), in_partitions(target(), 3), qid=in_partitions(ids, 3))


def test_queries_are_required_for_a_ranking() -> None:
    with pytest.raises(ValueError, match="pass either group"):
        DMLGBMRanker().fit(in_partitions(frame(), 3), in_partitions(target(), 3))
    with pytest.raises(ValueError, match="add up to 80"):
        DMLGBMRanker().fit(in_partitions(frame(), 3), in_partitions(target(), 3), group=[40, 40])


def test_evaluation_set_with_an_unknown_class_is_named() -> None:
    X, y = in_partitions(frame(), 2), in_partitions(target(), 2)
    other = in_partitions(target() + 1, 2)
    with pytest.raises(ValueError, match=r"y of eval_set\[0\] holds the class 2"):
        DMLGBMClassifier(n_estimators=2).fit(X, y, eval_set=[(X, other)])


def test_evaluation_set_lacking_a_column_is_named() -> None:
    X, y = in_partitions(frame(), 2), in_partitions(target(), 2)
    with pytest.raises(ValueError, match=r"X of eval_set\[0\] lacks the column 'b'"):
        DMLGBMClassifier(n_estimators=2).fit(X, y, eval_set=[(X[["a"]], y)])


@pytest.mark.parametrize(
    ("eval_metric", "message"),
    [
        ("f1", "eval_metric='f1' needs a classifier of two classes"),
        ("neg_log_loss", "eval_metric='neg_log_loss' needs predict_proba, which DMLGBMRegressor does not have"),
        ("rmsle", "eval_metric='rmsle' needs targets above -1, but the evaluation set 'valid_0' has one of -3:"),
    ],
)
def test_metric_that_is_not_for_the_model_or_its_targets_is_refused(eval_metric: str, message: str) -> None:
    watched = target() * 0.0
    watched.iloc[[20, 70]] = [-2.0, -3.0]
    rows, iterations = in_partitions(frame(), 3), []
    with pytest.raises(ValueError, match=message):
        DMLGBMRegressor(n_estimators=2, eval_metric=eval_metric).fit(
            rows,
            in_partitions(target(), 3),
            eval_set=[(rows, in_partitions(watched, 3))],
            callbacks=[lambda state: iterations.append(state.iteration)],
        )
    assert iterations == []


def test_other_collections_are_refused() -> None:
    with pytest.raises(TypeError, match=r"dask\.dataframe\.DataFrame and dask\.array\.Array"):
        DMLGBMRegressor().fit(in_partitions(frame(), 3)["a"], in_partitions(target(), 3))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tree_learner": "serial"}, "tree_learner='serial' is not one of"),
        ({"top_k": 0}, "top_k=0 is out of range"),
        ({"max_restarts": -1}, "max_restarts=-1 is out of range"),
        ({"checkpoint_dir": 3}, "checkpoint_dir must be None or the path"),
    ],
)
def test_parameters_of_the_cluster_are_checked(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        DMLGBMRegressor(**parameters).fit(in_partitions(frame(), 3), in_partitions(target(), 3))


def test_local_fit_says_that_it_does_not_use_them() -> None:
    with pytest.warns(UserWarning, match="tree_learner, max_restarts have no effect here"):
        DMLGBMRegressor(n_estimators=1, tree_learner="voting", max_restarts=9).fit(frame(), target())


def test_error_of_a_callback_reaches_the_caller_and_stops_the_ranks() -> None:
    def fail(state: Any) -> None:
        raise ZeroDivisionError("in the callback")

    model = DMLGBMRegressor(n_estimators=5000)
    with pytest.raises(ZeroDivisionError, match="in the callback"):
        model.fit(in_partitions(frame(), 3), in_partitions(target(), 3), callbacks=[fail])
    assert not hasattr(model, "booster_")


@pytest.mark.processes
def test_cluster_without_workers_is_refused() -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as empty,
        Client(empty),
        pytest.raises(ValueError, match="has no workers"),
    ):
        DMLGBMRegressor().fit(in_partitions(frame(), 3), in_partitions(target(), 3))


def test_closed_client_is_refused(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as other:
        X = other.persist(in_partitions(frame(), 3))
    with pytest.raises(ValueError, match="is closed: connect a new client"):
        DMLGBMRegressor().fit(X, in_partitions(target(), 3))


def test_fit_warns_of_what_a_local_fit_warns_of() -> None:
    X = frame(40).assign(price=np.resize(["$1.50", "$2.00"], 40))
    with pytest.warns(UserWarning, match="rows to learn from") as caught:
        DMLGBMRegressor(n_estimators=2, eval_metric="l1", min_child_samples=25).fit(
            in_partitions(X, 2), in_partitions(target(40), 2)
        )
    told = [str(each.message) for each in caught]
    for expected in (
        r"The column 'price' of X holds numbers as text, such as '\$1\.50'",
        "eval_metric has no effect without rows",
        "min_child_samples=25 rows, but there are 40 rows to learn from",
    ):
        assert sum(bool(re.match(f".*{expected}", each)) for each in told) == 1
