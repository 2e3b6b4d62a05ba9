"""Every objective by way of the estimators: links, files, threads, names of other libraries, balance of classes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.model_selection import GridSearchCV as ScikitLearnsGridSearch

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor, GridSearchCV, load_model
from dmlgbm.command_line.task import known_task
from dmlgbm.gbdt.objectives.factory import CLASSIFIER_OBJECTIVES, REGRESSOR_OBJECTIVES

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(600, 4))
SIGNAL = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * RANDOM.normal(size=600)
TWO, THREE = (SIGNAL > 0.5).astype(int), np.digitize(SIGNAL, [-0.5, 0.5])
TARGETS = {
    "cross_entropy": 1.0 / (1.0 + np.exp(-SIGNAL)),
    "gamma": np.exp(SIGNAL),
    "tweedie": np.where(SIGNAL > 0.0, np.exp(SIGNAL), 0.0),
    "poisson": np.floor(np.exp(SIGNAL)),
    "mape": 30.0 + 2.0 * SIGNAL,
    **dict.fromkeys(("cox", "aft"), np.exp(SIGNAL) * np.where(RANDOM.random(600) < 0.2, -1.0, 1.0)),
    **dict.fromkeys(("binary", "focal"), TWO),
    **dict.fromkeys(("multiclass", "multiclassova"), THREE),
}
pytestmark = pytest.mark.medium
objectives = pytest.mark.parametrize("objective", [*REGRESSOR_OBJECTIVES, *CLASSIFIER_OBJECTIVES])


def target_of(objective: str) -> npt.NDArray[Any]:
    return TARGETS.get(objective, SIGNAL)


def fitted(objective: str, **options: Any) -> Any:
    kind: Any = DMLGBMClassifier if objective in CLASSIFIER_OBJECTIVES else DMLGBMRegressor
    return kind(**{"objective": objective, "n_estimators": 8, "num_leaves": 7} | options).fit(X, target_of(objective))


def predicted(model: Any) -> npt.NDArray[Any]:
    return np.asarray(model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X))


@objectives
def test_files_pickles_and_threads_keep_predictions(objective: str, tmp_path: Path) -> None:
    model = fitted(objective, n_jobs=1)
    assert model.booster_.objective == objective
    assert fitted(objective, n_jobs=2).booster_.to_bytes() == model.booster_.to_bytes()
    model.save_model(tmp_path / "model")
    for copy in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert copy.get_params() | {"n_jobs": 1} == model.get_params()
        np.testing.assert_array_equal(predicted(copy), predicted(model))
    np.testing.assert_array_equal(model.one_row()(X[3]), predicted(model)[3])


@objectives
def test_predictions_are_linked_scores_and_learn_the_target(objective: str) -> None:
    model = fitted(objective, n_estimators=40)
    raw, prediction = model.predict(X, raw_score=True), predicted(model)
    links: dict[str, Any] = {
        **dict.fromkeys(("poisson", "gamma", "tweedie", "cox", "aft"), np.exp),
        "cross_entropy": lambda score: 1.0 / (1.0 + np.exp(-score)),
    }
    if objective in CLASSIFIER_OBJECTIVES:
        np.testing.assert_allclose(prediction.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.log(prediction), model.predict_log_proba(X), 1e-9, 1e-12)
        np.testing.assert_array_equal(list(model.staged_predict_proba(X))[-1], prediction)
        assert model.score(X, target_of(objective)) > 0.85
        return
    np.testing.assert_allclose(links.get(objective, np.asarray)(raw), prediction, 1e-12)
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], prediction)
    expected = -SIGNAL if objective == "cox" else SIGNAL  # a high hazard is a short time
    ranks = [np.argsort(np.argsort(values)) for values in (prediction, expected)]
    assert np.corrcoef(*ranks)[0, 1] > (0.5 if objective in ("quantile", "poisson", "cox", "aft") else 0.8)


@objectives
def test_the_default_metric_falls_and_early_stopping_watches_it(objective: str) -> None:
    kind: Any = DMLGBMClassifier if objective in CLASSIFIER_OBJECTIVES else DMLGBMRegressor
    model = kind(objective=objective, n_estimators=400, early_stopping_rounds=3, learning_rate=0.3)
    model.fit(X[:400], target_of(objective)[:400], eval_set=[(X[400:], target_of(objective)[400:])])
    ((_, values),) = model.evals_result_["valid_0"].items()
    assert model.best_iteration_ < 400
    assert min(values) < values[0]


@pytest.mark.parametrize(
    ("alias", "objective"),
    [
        *(("reg:gamma", "gamma"), ("reg:tweedie", "tweedie"), ("reg:logistic", "cross_entropy")),
        *(("xentropy", "cross_entropy"), ("mean_absolute_percentage_error", "mape"), ("LogCosh", "logcosh")),
        *(("rmse", "regression"), ("RMSE", "regression"), ("l2_root", "regression"), ("MAE", "regression_l1")),
        *(("Logloss", "binary"), ("MultiClass", "multiclass"), ("multi:softmax", "multiclass"), ("Cox", "cox")),
        ("Poisson", "poisson"),
        *(("ova", "multiclassova"), ("ovr", "multiclassova"), ("MultiClassOneVsAll", "multiclassova")),
    ],
)
def test_names_of_other_libraries_mean_the_same(alias: str, objective: str) -> None:
    y = target_of(objective)
    kind: Any = DMLGBMClassifier if objective in CLASSIFIER_OBJECTIVES else DMLGBMRegressor
    assert (
        kind(objective=alias, n_estimators=2).fit(X, y).booster_
        == fitted(objective, n_estimators=2, num_leaves=31).booster_
    )


@objectives
def test_the_command_line_knows_the_task(objective: str) -> None:
    task = known_task("auto", objective, None)
    assert task is not None
    assert task.name == ("classification" if objective in CLASSIFIER_OBJECTIVES else "regression")


@pytest.mark.parametrize(
    ("name", "objective", "values"),
    [
        ("alpha", "huber", (0.5, 20.0)),
        ("alpha", "expectile", (0.1, 0.9)),
        ("fair_c", "fair", (0.1, 10.0)),
        ("tweedie_variance_power", "tweedie", (1.1, 1.9)),
        ("focal_gamma", "focal", (0.5, 4.0)),
        ("focal_alpha", "focal", (0.1, 0.9)),
        ("scale_pos_weight", "binary", (1.0, 5.0)),
        ("is_unbalance", "binary", (False, True)),
        ("is_unbalance", "multiclassova", (False, True)),
    ],
)
def test_a_search_that_shares_work_tells_values_apart(name: str, objective: str, values: tuple[Any, Any]) -> None:
    kind: Any = DMLGBMClassifier if objective in CLASSIFIER_OBJECTIVES else DMLGBMRegressor
    estimator, grid = kind(objective=objective, n_estimators=4, num_leaves=7), {name: list(values)}
    y = target_of(objective)
    expected = ScikitLearnsGridSearch(estimator, grid, cv=2).fit(X, y).cv_results_["mean_test_score"]
    found = GridSearchCV(estimator, grid, cv=2).fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)
    models = [fitted(objective, **{name: value}) for value in values]
    assert models[0].booster_ != models[1].booster_


def test_balance_weighs_on_top_of_sample_and_class_weights() -> None:
    weight = RANDOM.uniform(0.5, 2.0, 600)
    options: dict[str, Any] = {"n_estimators": 5, "reg_lambda": 0.0, "min_child_weight": 0.0}
    raised = DMLGBMClassifier(scale_pos_weight=2.0, class_weight={0: 1, 1: 2}, **options).fit(X, TWO, weight)
    alone = DMLGBMClassifier(scale_pos_weight=2.0, **options).fit(X, TWO, weight * (1 + TWO))
    assert raised.booster_.to_bytes() == alone.booster_.to_bytes()
    other = DMLGBMClassifier(class_weight={0: 1, 1: 2}, **options).fit(X, TWO, weight)
    assert raised.predict_proba(X)[:, 1].mean() > other.predict_proba(X)[:, 1].mean()
    # Every weight the same is no weight.
    even = DMLGBMClassifier(is_unbalance=True, **options).fit(X[:200], np.arange(200) % 2)
    assert even.booster_ == DMLGBMClassifier(**options).fit(X[:200], np.arange(200) % 2).booster_


def test_model_of_one_against_all_goes_on_from_its_like_only() -> None:
    first = fitted("multiclassova", n_estimators=3)
    more = DMLGBMClassifier(objective="ova", n_estimators=5, num_leaves=7).fit(X, THREE, init_model=first)
    assert more.booster_.to_bytes() == fitted("multiclassova", n_estimators=8).booster_.to_bytes()
    with pytest.raises(ValueError, match="trained with objective 'multiclassova'"):
        DMLGBMClassifier(objective="multiclass").fit(X, THREE, init_model=first)


def test_metrics_that_do_not_suit_the_model_are_refused_before_training() -> None:
    with pytest.raises(ValueError, match="eval_metric='focal' needs a classifier of two classes"):
        DMLGBMRegressor(eval_metric="focal").fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    with pytest.raises(ValueError, match="eval_metric='focal' needs a classifier of two classes: choose binary_log"):
        DMLGBMClassifier(eval_metric="focal").fit(X, THREE, eval_set=[(X, THREE)])
    amounts = np.exp(SIGNAL)
    with pytest.raises(ValueError, match="eval_metric='gamma' needs targets above 0, but the evaluation set 'valid_0'"):
        DMLGBMRegressor(objective="gamma").fit(X, amounts, eval_set=[(X, np.maximum(amounts - 1.0, 0.0))])
