"""`eval_metric` takes names of metrics and scorers of scikit-learn: values, directions, early stopping, bad input."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import fbeta_score, get_scorer, make_scorer, mean_absolute_error

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.gbdt.metrics import metrics_for

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(400, 4))
SIGNAL = X[:, 0] + np.abs(X[:, 1]) + RANDOM.normal(size=400)
TWO = np.array(["few", "many"])[(SIGNAL > 1.0).astype(int)]
THREE = np.array(["a", "b", "c"])[np.digitize(SIGNAL, [0.0, 1.2])]
COUNTS = np.maximum(np.round(SIGNAL), 0.0)
WEIGHT = RANDOM.integers(1, 5, 400).astype(np.float64)
TRAIN, TEST = slice(0, 250), slice(250, None)
OF_CLASSES = ["accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "f1_weighted", "mcc"]
SCORER_OF = {"mcc": "matthews_corrcoef", "auc": "roc_auc", "auc_ovr": "roc_auc_ovr", "auc_ovo": "roc_auc_ovo"}
GROUPS = [50, 30, 20, 100, 50], [75, 75]


def fitted(kind: Any, y: Any, eval_metric: Any, weight: Any = None, **parameters: Any) -> Any:
    model = kind(**{"n_estimators": 4, "num_leaves": 7, "eval_metric": eval_metric, **parameters})
    weights = None if weight is None else [weight[TEST]]
    return model.fit(X[TRAIN], y[TRAIN], eval_set=[(X[TEST], y[TEST])], eval_sample_weight=weights)


def test_names_of_two_classes_give_the_value_of_the_scorer() -> None:
    names = ["auc", "average_precision", "f1", *OF_CLASSES]
    y = (TWO == "many").astype(int)
    for weight in (None, WEIGHT):
        model = fitted(DMLGBMClassifier, y, names, weight)
        for name, values in model.evals_result_["valid_0"].items():
            scorer = get_scorer(SCORER_OF.get(name, name))
            weights = {} if weight is None else {"sample_weight": weight[TEST]}
            assert values[-1] == pytest.approx(scorer(model, X[TEST], y[TEST], **weights), rel=1e-12), name


def test_names_of_several_classes_give_the_value_of_the_scorer() -> None:
    names = ["auc_ovr", "auc_ovo", *OF_CLASSES]
    model = fitted(DMLGBMClassifier, THREE, names)
    for name, values in model.evals_result_["valid_0"].items():
        scorer = get_scorer(SCORER_OF.get(name, name))
        assert values[-1] == pytest.approx(scorer(model, X[TEST], THREE[TEST]), rel=1e-12), name


def test_r2_and_logarithmic_error_of_a_regressor() -> None:
    model = fitted(DMLGBMRegressor, COUNTS, ["r2", "rmsle"], WEIGHT, objective="poisson")
    for name, scorer in {"r2": "r2", "rmsle": "neg_root_mean_squared_log_error"}.items():
        expected = get_scorer(scorer)(model, X[TEST], COUNTS[TEST], sample_weight=WEIGHT[TEST])
        assert model.evals_result_["valid_0"][name][-1] == pytest.approx(abs(expected), rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "y", "name", "best"),
    [
        (DMLGBMClassifier, TWO, "average_precision", np.argmax),
        (DMLGBMClassifier, TWO, "f1", np.argmax),
        (DMLGBMClassifier, THREE, "mcc", np.argmax),
        (DMLGBMClassifier, THREE, "brier", np.argmin),
        (DMLGBMClassifier, THREE, "top_2_error", np.argmin),
        (DMLGBMRegressor, SIGNAL, "r2", np.argmax),
        (DMLGBMRegressor, SIGNAL, "pinball@0.2", np.argmin),
        (DMLGBMRegressor, SIGNAL, "neg_max_error", np.argmax),
        (DMLGBMClassifier, TWO, "neg_log_loss", np.argmax),
    ],
)
def test_early_stopping_goes_by_the_direction_of_the_metric(kind: Any, y: Any, name: str, best: Any) -> None:
    model = fitted(kind, y, name, WEIGHT, n_estimators=80, learning_rate=0.3, early_stopping_rounds=4)
    history = model.evals_result_["valid_0"][name]
    assert model.best_iteration_ == best(history) + 1
    assert model.n_iter_ == model.best_iteration_ + 4 < 80


def test_scorers_and_their_names_are_metrics_of_the_fitted_model() -> None:
    fbeta = make_scorer(fbeta_score, beta=2, pos_label="many")
    model = fitted(DMLGBMClassifier, TWO, ["auc", "neg_log_loss", fbeta, "jaccard_macro"])
    results = model.evals_result_["valid_0"]
    assert list(results) == ["auc", "neg_log_loss", "fbeta_score", "jaccard_macro"]
    for name, scorer in (("neg_log_loss", get_scorer("neg_log_loss")), ("fbeta_score", fbeta)):
        assert results[name][-1] == scorer(model, X[TEST], TWO[TEST])
    assert pickle.loads(pickle.dumps(model)).evals_result_ == model.evals_result_


def test_a_scorer_in_eval_metric_is_what_scoring_watches() -> None:
    watched = fitted(DMLGBMRegressor, SIGNAL, "l1", early_stopping_rounds=3, n_estimators=60, scoring="neg_max_error")
    evaluated = fitted(DMLGBMRegressor, SIGNAL, "neg_max_error", early_stopping_rounds=3, n_estimators=60)
    assert evaluated.booster_.to_bytes() == watched.booster_.to_bytes()
    name = "neg_max_error"
    assert evaluated.evals_result_["valid_0"][name] == watched.evals_result_["valid_0"][name]


def test_rankers_measure_reciprocal_ranks_at_eval_at() -> None:
    grades = np.digitize(SIGNAL, [0.0, 1.0, 2.0])
    model = DMLGBMRanker(n_estimators=3, num_leaves=7, eval_metric=["mrr", "err", "map@7"], eval_at=(1, 5))
    model.fit(X[TRAIN], grades[TRAIN], group=GROUPS[0], eval_set=[(X[TEST], grades[TEST])], eval_group=[GROUPS[1]])
    results = model.evals_result_["valid_0"]
    assert list(results) == ["mrr@1", "mrr@5", "err@1", "err@5", "map@7"]
    assert all(0.0 <= value <= 1.0 for values in results.values() for value in values)


def two_class_loss(y: Any, score: Any) -> tuple[Any, Any]:
    probability = 1.0 / (1.0 + np.exp(-score))
    return probability - y, probability * (1.0 - probability)


def three_class_loss(y: Any, score: Any) -> tuple[Any, Any]:
    probability = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    return probability - np.eye(3)[y.astype(int)], probability * (1.0 - probability)


@pytest.mark.parametrize(
    ("objective", "y", "names"),
    [
        (two_class_loss, TWO, ["auc", "average_precision", "f1_macro", "mcc", "brier", "calibration_error"]),
        (three_class_loss, THREE, ["auc_ovo", "average_precision", "f1_macro", "mcc", "brier", "top_2_error"]),
    ],
)
def test_metrics_of_an_own_objective_see_probabilities(objective: Any, y: Any, names: list[str]) -> None:
    model = fitted(DMLGBMClassifier, y, [*names, "neg_log_loss"], objective=objective)
    results = model.evals_result_["valid_0"]
    found = metrics_for(names, objective_alpha=0.5, eval_at=())
    target = np.searchsorted(model.classes_, y[TEST]).astype(np.float64)
    probability = np.ascontiguousarray(model.predict_proba(X[TEST]).T)
    for metric in found:
        value = metric.function(target, probability if len(probability) > 2 else probability[1], None, None)
        assert results[metric.name][-1] == pytest.approx(value, rel=1e-12)
    assert results["neg_log_loss"][-1] == get_scorer("neg_log_loss")(model, X[TEST], y[TEST])


REFUSED: list[tuple[Any, Any, Any, str]] = [
    (DMLGBMClassifier, THREE, "f1", "eval_metric='f1' needs a classifier of two classes: choose f1_macro, f1_micro"),
    (DMLGBMClassifier, THREE, "auc", "needs one prediction for each row: choose auc_ovr or auc_ovo"),
    (DMLGBMClassifier, THREE, "aucpr", "needs one prediction for each row: choose average_precision"),
    (DMLGBMClassifier, THREE, "l2", "eval_metric='l2' needs one prediction for each row"),
    (DMLGBMClassifier, THREE, "top_3_error", "'top_3_error' is always 0 for 3 classes: ask for fewer than 3"),
    (DMLGBMClassifier, TWO, "auc_ovr", "needs the probabilities of several classes: choose auc"),
    (DMLGBMClassifier, TWO, "multi_logloss", "needs the probabilities of several classes"),
    (DMLGBMClassifier, TWO, "ndcg", "eval_metric='ndcg@1' needs a ranker"),
    (DMLGBMRegressor, SIGNAL, "mrr@3", "eval_metric='mrr@3' needs a ranker"),
    (DMLGBMRegressor, SIGNAL, "mcc", "eval_metric='mcc' needs a classifier"),
    (
        DMLGBMRegressor,
        SIGNAL,
        "neg_log_loss",
        "'neg_log_loss' needs predict_proba, which DMLGBMRegressor does not have",
    ),
    (DMLGBMRegressor, SIGNAL - 50.0, "rmsle", "needs targets above -1, but the evaluation set 'valid_0' has one of -5"),
    (DMLGBMRegressor, SIGNAL, "neg_max_err", "unknown metric 'neg_max_err'"),
    (DMLGBMRegressor, SIGNAL, "NDGC", "unknown metric 'NDGC'. Did you mean 'ndcg'?"),
    (
        DMLGBMClassifier,
        TWO,
        "recall",
        "eval_metric='recall' cannot tell which of the classes 'few' and 'many' is the positive one: make the scorer",
    ),
    (
        DMLGBMClassifier,
        TWO,
        ["auc", "neg_brier_score"],
        "eval_metric='neg_brier_score' cannot tell which of the classes",
    ),
    (DMLGBMClassifier, TWO, make_scorer(fbeta_score, beta=2), "eval_metric='fbeta_score' cannot tell which"),
    (DMLGBMRegressor, SIGNAL, [make_scorer(mean_absolute_error)] * 2, "two metrics that are called 'mean_absolute_err"),
]


@pytest.mark.parametrize(("kind", "y", "eval_metric", "message"), REFUSED)
def test_a_metric_that_is_not_for_the_model_is_refused_before_training(
    kind: Any, y: Any, eval_metric: Any, message: str
) -> None:
    trained: list[Any] = []
    model = kind(n_estimators=2, eval_metric=eval_metric)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(X[TRAIN], y[TRAIN], eval_set=[(X[TEST], y[TEST])], callbacks=[trained.append])
    assert trained == []
