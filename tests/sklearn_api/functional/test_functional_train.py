"""`train` gives the estimator's bytes, and a Dataset is binned once however often it is trained on."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmlgbm
from dmlgbm import Booster, Dataset, DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, ParameterError
from dmlgbm.sklearn_api.functional import dataset as dataset_file

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(307, 4))
X[::7, 1] = np.nan
SIGNAL = X[:, 0] - np.nan_to_num(X[:, 1]) * X[:, 2] + 0.1 * RANDOM.normal(size=307)
BINARY = (SIGNAL > 0).astype(int)
THREE = np.digitize(SIGNAL, [-0.7, 0.7])
SIZES = [40, 67, 100, 100]
WEIGHT = RANDOM.uniform(0.5, 2.0, 307)
WEIGHT[:5] = 0.0
OTHER = RANDOM.normal(size=(101, 4))
OTHER_SIGNAL = OTHER[:, 0] - OTHER[:, 1] * OTHER[:, 2]
SMALL = {"num_leaves": 7, "learning_rate": 0.3}
FRAME = pd.DataFrame({"text": RANDOM.choice(["a", "b", "c"], 307), "number": X[:, 0]})

JOBS: dict[str, tuple[dict[str, Any], Any, Any, dict[str, Any]]] = {
    "default": ({}, SIGNAL, DMLGBMRegressor(), {}),
    "alias": ({"application": "mae"}, SIGNAL, DMLGBMRegressor(objective="regression_l1"), {}),
    "quantile": ({"objective": "quantile", "alpha": 0.3}, SIGNAL, DMLGBMRegressor(objective="quantile", alpha=0.3), {}),
    "poisson": ({"objective": "poisson"}, np.exp(SIGNAL), DMLGBMRegressor(objective="poisson"), {}),
    "binary": (
        {"objective": "binary", "class_weight": "balanced"},
        BINARY,
        DMLGBMClassifier(class_weight="balanced"),
        {},
    ),
    "multiclass": ({"objective": "softmax", "num_class": 3}, THREE, DMLGBMClassifier(), {}),
    "ranking": ({"objective": "lambdarank"}, THREE, DMLGBMRanker(), {"group": SIZES}),
    "weights": ({"objective": "l2"}, SIGNAL, DMLGBMRegressor(), {"weight": WEIGHT}),
    "first scores": ({}, SIGNAL, DMLGBMRegressor(), {"init_score": OTHER_SIGNAL.repeat(4)[:307]}),
    "sampled": (
        {"bagging_fraction": 0.5, "bagging_freq": 1, "seed": 3},
        SIGNAL,
        DMLGBMRegressor(subsample=0.5, subsample_freq=1, random_state=3),
        {},
    ),
}


@pytest.mark.parametrize("free_raw_data", [True, False])
@pytest.mark.parametrize("job", JOBS)
def test_train_gives_the_bytes_and_metrics_of_the_estimator_with_the_same_parameters(
    job: str, free_raw_data: bool
) -> None:
    params, label, estimator, more = JOBS[job]
    data = Dataset(X, label, free_raw_data=free_raw_data, **more)
    record: dict[str, dict[str, list[float]]] = {}
    booster = dmlgbm.train(SMALL | params, data, 6, [data], "seen", callbacks=[dmlgbm.record_evaluation(record)])
    names = {"weight": "sample_weight"}
    given = {names.get(name, name): value for name, value in more.items()}
    watched = {f"eval_{names.get(name, name)}": [value] for name, value in more.items()}
    estimator.set_params(n_estimators=6, **SMALL)
    estimator.fit(X, label, **given, eval_set=[(X, label)], eval_names=["seen"], **watched)
    assert booster.to_bytes() == estimator.booster_.to_bytes()
    assert record == estimator.evals_result_
    assert booster.best_score == {"seen": {name: values[-1] for name, values in record["seen"].items()}}
    assert data.has_table is not free_raw_data


def test_custom_objective_and_metric_get_predictions_and_data() -> None:
    def squared_error(scores: Any, data: Any) -> Any:
        return (scores - data.get_label()) * data.get_weight(), data.get_weight() * np.ones(data.num_data())

    def largest_error(prediction: Any, data: Any) -> tuple[str, float, bool]:
        return "largest", float(np.abs(prediction - data.get_label()).max()), False

    weight = WEIGHT + 1.0
    data, other = Dataset(X, SIGNAL, weight=weight), Dataset(OTHER, OTHER_SIGNAL)
    params = SMALL | {"objective": squared_error, "metric": "l1"}
    booster = dmlgbm.train(params, data, 5, [other], feval=largest_error)

    def for_estimator(y: Any, score: Any, weight: Any) -> Any:
        return (score - y) * weight, weight

    model = DMLGBMRegressor(objective=for_estimator, n_estimators=5, **SMALL).fit(X, SIGNAL, sample_weight=weight)
    assert booster.to_bytes() == model.booster_.to_bytes()
    errors = np.abs(booster.predict(OTHER) - OTHER_SIGNAL)
    assert booster.best_score["valid_0"]["largest"] == errors.max()
    assert booster.best_score["valid_0"]["l1"] == pytest.approx(errors.mean(), rel=1e-12)
    assert booster.eval(other, "again", largest_error) == [
        ("again", "l1", booster.best_score["valid_0"]["l1"], False),
        ("again", "largest", errors.max(), False),
    ]
    assert pickle.loads(pickle.dumps(booster)).params == SMALL | {"metric": "l1"}
    only = dmlgbm.train(SMALL | {"metric": "None"}, data, 2, [other], feval=largest_error)
    assert list(only.best_score["valid_0"]) == ["largest"]


def test_custom_objective_for_classes_gets_a_column_of_scores_for_each() -> None:
    def softmax(scores: Any, data: Any) -> Any:
        assert scores.shape == (307, 3)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = odds / odds.sum(axis=1, keepdims=True)
        return shares - np.eye(3)[data.get_label().astype(int)], shares * (1.0 - shares)

    booster = dmlgbm.train(SMALL | {"objective": softmax, "num_class": 3}, Dataset(X, THREE), 8)
    assert booster.predict(X, raw_score=True).shape == (307, 3)
    assert (booster.predict(X, raw_score=True).argmax(axis=1) == THREE).mean() > 0.8


@pytest.fixture
def binnings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    bin_table = dataset_file.bin_table

    def count(table: Any, *rest: Any) -> Any:
        counted.append(table.n_rows)
        return bin_table(table, *rest)

    monkeypatch.setattr(dataset_file, "bin_table", count)
    return counted


def test_dataset_is_binned_once_for_all_calls_with_the_same_binning(binnings: list[int]) -> None:
    data = Dataset(X, SIGNAL)
    for params in ({}, {"seed": 5}, {"learning_rate": 0.5}, {"objective": "l1"}, {"num_threads": 1}):
        dmlgbm.train(SMALL | params, data, 2)
    assert binnings == [307]
    with pytest.raises(ParameterError, match=r"bins of other settings \(max_bin\).*free_raw_data=False"):
        dmlgbm.train({"max_bin": 9}, data, 2)
    kept = Dataset(X, SIGNAL, params={"max_bin": 9}, free_raw_data=False)
    expected = DMLGBMRegressor(n_estimators=2, max_bin=9, **SMALL).fit(X, SIGNAL).booster_
    assert dmlgbm.train(SMALL, kept, 2).to_bytes() == expected.to_bytes()
    dmlgbm.train(SMALL | {"max_bins": 20}, kept, 2)
    dmlgbm.train(SMALL, kept, 2)
    assert binnings == [307, 307, 307]


def test_bins_follow_the_seed_where_it_draws_their_rows(binnings: list[int]) -> None:
    data = Dataset(X, SIGNAL, params={"subsample_for_bin": 200}, free_raw_data=False)
    for seed in (1, 2):
        booster = dmlgbm.train(SMALL | {"seed": seed}, data, 2)
        model = DMLGBMRegressor(n_estimators=2, subsample_for_bin=200, random_state=seed, **SMALL).fit(X, SIGNAL)
        assert booster.to_bytes() == model.booster_.to_bytes()
    assert binnings == [307, 307]


def test_early_stopping_finds_the_iteration_of_the_estimator_and_predictions_stop_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = Dataset(X, SIGNAL)
    valid = data.create_valid(OTHER, OTHER_SIGNAL)
    params = {"eta": 0.6, "min_data_in_leaf": 2}
    booster = dmlgbm.train(params, data, 200, [data, valid], callbacks=[dmlgbm.early_stopping(3)])
    assert "valid_1 l2 has not improved for 3 iterations" in capfd.readouterr().err
    model = DMLGBMRegressor(n_estimators=200, learning_rate=0.6, min_child_samples=2, early_stopping_rounds=3)
    model.fit(X, SIGNAL, eval_set=[(X, SIGNAL), (OTHER, OTHER_SIGNAL)])
    assert (booster.best_iteration, booster.best_score["valid_1"]["l2"]) == (
        model.best_iteration_,
        model.best_score_["valid_1"]["l2"],
    )
    assert booster.to_bytes() == model.booster_.to_bytes()
    assert booster.current_iteration() == booster.best_iteration + 3
    np.testing.assert_array_equal(booster.predict(OTHER), model.predict(OTHER))
    np.testing.assert_array_equal(booster.predict(OTHER, num_iteration=-1), model.predict(OTHER, num_iteration=-1))
    assert booster.predict(OTHER, pred_leaf=True).shape == (101, booster.best_iteration)
    by_params = dmlgbm.train(params | {"early_stopping_round": 3}, data, 200, valid)
    assert by_params.best_iteration == booster.best_iteration
    booster.save_model(tmp_path / "best")
    read = Booster.load_model(tmp_path / "best")
    assert read.current_iteration() == booster.best_iteration
    np.testing.assert_array_equal(read.predict(OTHER), booster.predict(OTHER))
    copied = pickle.loads(pickle.dumps(booster))
    assert (copied.best_iteration, copied.best_score) == (booster.best_iteration, booster.best_score)
    assert dmlgbm.train(params, data, 2).best_iteration == 0
    longer = dmlgbm.train(params, data, 2, init_model=booster)
    assert longer.current_iteration() == booster.best_iteration + 2
    assert (
        longer
        == DMLGBMRegressor(n_estimators=2, learning_rate=0.6, min_child_samples=2)
        .fit(X, SIGNAL, init_model=model)
        .booster_
    )


def test_early_stopping_callback_stops_an_estimator_too(capfd: pytest.CaptureFixture[str]) -> None:
    sets = {"eval_set": [(OTHER, OTHER_SIGNAL)]}
    by_callback = DMLGBMRegressor(n_estimators=300, learning_rate=0.6)
    by_callback.fit(X, SIGNAL, **sets, callbacks=[dmlgbm.early_stopping(3, verbose=False)])
    by_parameters = DMLGBMRegressor(n_estimators=300, learning_rate=0.6, early_stopping_rounds=3).fit(X, SIGNAL, **sets)
    assert by_callback.best_iteration_ == by_parameters.best_iteration_
    assert capfd.readouterr().err == ""
    with pytest.raises(ValueError, match="early_stopping needs an eval_set"):
        DMLGBMRegressor().fit(X, SIGNAL, callbacks=[dmlgbm.early_stopping(3)])


@pytest.mark.parametrize("free_raw_data", [True, False])
def test_training_goes_on_from_a_model_of_the_same_dataset(free_raw_data: bool) -> None:
    codes = Dataset(FRAME, THREE, free_raw_data=free_raw_data)
    params = SMALL | {"objective": "multiclass", "num_class": 3}
    whole = dmlgbm.train(params, codes, 5)
    first = dmlgbm.train(params, codes, 3)
    assert dmlgbm.train(params, codes, 2, init_model=first).to_bytes() == whole.to_bytes()
    coarse = dmlgbm.train(params | {"max_bin": 3}, Dataset(FRAME, THREE), 1)
    if free_raw_data:
        with pytest.raises(ValueError, match="init_model was trained on other bins"):
            dmlgbm.train(params, codes, 1, init_model=coarse)
    else:
        assert dmlgbm.train(params, codes, 1, init_model=coarse).num_trees() == 6


def test_reference_gives_other_rows_the_columns_and_categories_of_a_model() -> None:
    params = SMALL | {"objective": "l2"}
    first = dmlgbm.train(params, Dataset(FRAME, SIGNAL), 3)
    later = FRAME[FRAME["text"] != "a"][["number", "text"]]
    label = SIGNAL[FRAME["text"] != "a"]
    with pytest.raises(ValueError, match="make the Dataset with reference="):
        dmlgbm.train(params, Dataset(later, label), 2, init_model=first)
    booster = dmlgbm.train(params, Dataset(later, label, reference=first), 2, init_model=first)
    model = DMLGBMRegressor(n_estimators=2, **SMALL).fit(later, label, init_model=first)
    assert booster.to_bytes() == model.booster_.to_bytes()


def test_rows_to_watch_are_matched_to_the_columns_of_training_without_a_reference() -> None:
    data = Dataset(FRAME, SIGNAL)
    turned = pd.DataFrame(
        {"number": FRAME["number"][:50], "text": pd.Categorical(FRAME["text"][:50], ["c", "d", "a", "b"])}
    )
    booster = dmlgbm.train(SMALL, data, 4, [Dataset(turned, SIGNAL[:50])])
    error = np.mean((booster.predict(FRAME[:50]) - SIGNAL[:50]) ** 2)
    assert booster.best_score["valid_0"]["l2"] == pytest.approx(error, rel=1e-12)


def test_booster_tells_about_itself_as_lightgbm_does() -> None:
    booster = dmlgbm.train(SMALL | {"objective": "multiclass", "num_class": 3}, Dataset(FRAME, THREE), 4)
    assert (booster.num_trees(), booster.current_iteration(), booster.num_model_per_iteration()) == (12, 4, 3)
    assert (booster.num_feature(), booster.feature_name()) == (2, ["text", "number"])
    assert booster.feature_importance().tolist() == booster.feature_importance("split", 4).tolist()
    assert booster.feature_importance("gain", 1).sum() < booster.feature_importance("gain").sum()
    unnamed = dmlgbm.train(SMALL, Dataset(X, SIGNAL, feature_name=list("abcd")), 1)
    assert unnamed.feature_name() == list("abcd")
    assert dmlgbm.train(SMALL, Dataset(X, SIGNAL), 1).feature_name()[2] == "Column_2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_set": (X, SIGNAL)}, "train_set must be a Dataset"),
        ({"train_set": Dataset(X)}, "train_set has no label"),
        ({"valid_sets": [X]}, r"valid_sets\[0\] must be a Dataset"),
        ({"valid_sets": Dataset(OTHER, OTHER_SIGNAL), "valid_names": ["a", "b"]}, "valid_names must hold 1"),
        ({"valid_sets": Dataset(OTHER[:, :3], OTHER_SIGNAL)}, "valid_0 has 3 features"),
        ({"params": {"objective": "binery"}}, "did you mean 'binary'"),
        ({"params": {"learning_rte": 1}}, "train has no parameter 'learning_rte'"),
        ({"params": {"objective": "multiclass"}}, "needs num_class"),
        ({"params": {"num_class": 3}}, "needs objective='multiclass'"),
        ({"params": {"objective": "l2", "num_class": 3}}, "num_class=3 does not fit"),
        ({"params": {"objective": "binary"}}, "label of train_set holds .* classes are the whole numbers from 0 to 1"),
        ({"params": {"objective": "lambdarank"}}, "which rows form a query"),
        ({"params": {"warm_start": True}}, "warm_start has no place in params: pass init_model"),
        ({"params": {"categorical_feature": [0]}}, "pass it to Dataset"),
        ({"params": {"early_stopping_rounds": 3}}, "early stopping needs rows to watch"),
        ({"params": {"early_stopping": True}}, "early stopping needs rows to watch"),
        ({"params": {"num_leaves": 1}}, "num_leaves=1 is out of range"),
        ({"feval": "l2"}, "feval must be a function"),
    ],
)
def test_bad_arguments_get_one_clear_sentence(arguments: dict[str, Any], message: str) -> None:
    given = {"params": {}, "train_set": Dataset(X, SIGNAL), "num_boost_round": 1} | arguments
    with pytest.raises((TypeError, ValueError), match=message):
        dmlgbm.train(**given)


def test_bad_datasets_get_one_clear_sentence() -> None:
    with pytest.raises(ValueError, match="label has 3 values for 307 rows"):
        Dataset(X, [1, 2, 3])
    with pytest.raises(ValueError, match="Dataset has no parameter 'num_leaves'"):
        Dataset(X, SIGNAL, params={"num_leaves": 3})
    with pytest.raises(TypeError, match="reference must be a Dataset or a Booster"):
        Dataset(X, SIGNAL, reference=X)
    with pytest.raises(ValueError, match="feature_name and reference were passed"):
        Dataset(X, SIGNAL, reference=Dataset(X), feature_name=list("abcd"))
    trained = Dataset(X, SIGNAL)
    dmlgbm.train({}, trained, 1)
    with pytest.raises(ValueError, match="valid_0 was trained on and is kept as bins"):
        dmlgbm.train({}, Dataset(X, SIGNAL), 1, trained)
