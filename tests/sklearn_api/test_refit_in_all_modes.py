"""Leaf values fitted again where more than gradients decides them: order, averages, factors of rows, changing rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgbm
from dmlgbm import Dataset, DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, ParameterError, reset_parameter
from dmlgbm.gbdt.boosting import refitting

RANDOM = np.random.default_rng(23)
X = RANDOM.normal(size=(420, 3))
SIGNAL = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * RANDOM.normal(size=420)
BINARY = (SIGNAL > 0.9).astype(int)
WEIGHT = RANDOM.uniform(0.5, 2.0, 420)
NEW = RANDOM.normal(size=(300, 3))
AGAINST = -2.0 * NEW[:, 0] + NEW[:, 1]
SMALL: dict[str, Any] = {"n_estimators": 6, "num_leaves": 7, "learning_rate": 0.3}
ALL_OF_A_FOREST: dict[str, Any] = {"boosting_type": "rf", "colsample_bytree": 0.7, "learning_rate": 0.1}
ORDER: dict[str, Any] = {"monotone_constraints": [1, 0, 0]}

# All rows are in every tree, so that training and a refit see the same.
MODELS: dict[str, tuple[Any, Any]] = {
    "forest": (DMLGBMRegressor(**SMALL | ALL_OF_A_FOREST), SIGNAL),
    "forest of medians": (DMLGBMRegressor(**SMALL | ALL_OF_A_FOREST, objective="l1"), SIGNAL),
    "order": (DMLGBMRegressor(**SMALL, **ORDER, reg_lambda=2.0), SIGNAL),
    "looser order": (DMLGBMRegressor(**SMALL, **ORDER, monotone_constraints_method="intermediate"), SIGNAL),
    "order of medians": (DMLGBMRegressor(**SMALL, **ORDER, objective="l1"), SIGNAL),
    "ordered classes": (DMLGBMClassifier(**SMALL, **ORDER), BINARY),
    "rare class": (DMLGBMClassifier(**SMALL, scale_pos_weight=3.0), BINARY),
    "balanced": (DMLGBMClassifier(**SMALL, is_unbalance=True), BINARY),
    "focal": (DMLGBMClassifier(**SMALL, objective="focal", scale_pos_weight=2.0), BINARY),
    "relative errors": (DMLGBMRegressor(**SMALL, objective="mape"), 20.0 + 4.0 * SIGNAL),
    "huber": (DMLGBMRegressor(**SMALL, objective="huber"), SIGNAL),
    "random thresholds": (DMLGBMRegressor(**SMALL, extra_trees=True), SIGNAL),
}


def falls(model: Any, rows: Any) -> float:
    """By how much any prediction falls where the first column rises."""
    values = np.linspace(-3, 3, 25)
    steps = np.repeat(rows, len(values), axis=0)
    steps[:, 0] = np.tile(values, len(rows))
    scores = model.booster_.predict(steps, raw_score=True).reshape(len(rows), -1)
    return float(np.maximum(-np.diff(scores, axis=1), 0.0).max())


@pytest.mark.parametrize("objective", ["lambdarank", "pairwise", "rank_xendcg"])
@pytest.mark.parametrize("boosting", [{}, {"boosting_type": "rf", "colsample_bytree": 0.7, "learning_rate": 0.1}])
def test_rows_of_training_give_rankings_their_own_bytes(objective: str, boosting: dict[str, Any]) -> None:
    model = DMLGBMRanker(**SMALL | boosting, objective=objective, random_state=4)
    before = model.fit(X, BINARY, group=[20] * 21).booster_
    assert model.refit(X, BINARY, 0.0, group=[20] * 21).booster_ == before


@pytest.mark.parametrize("objective", ["cox", "aft"])
def test_survival_times_are_refitted_and_known_to_train(objective: str) -> None:
    times = np.exp(SIGNAL / 2) * np.where(BINARY == 1, -1.0, 1.0)
    model = DMLGBMRegressor(**SMALL, objective=objective).fit(X, times)
    before = model.booster_
    params = {"objective": objective, "num_leaves": 7, "learning_rate": 0.3, "metric": "c_index"}
    booster = dmlgbm.train(params, data := Dataset(X, times), 6, [data], ["seen"])
    assert booster == before
    assert booster.best_score["seen"]["c_index"] == pytest.approx(model.score(X, times))
    assert model.refit(X, times, 0.0).booster_ == before
    stopped = DMLGBMRegressor(**SMALL, objective=objective, early_stopping=True).fit(X, times)
    both = DMLGBMRegressor(**SMALL, objective=objective, early_stopping=True, refit_after_stopping=True).fit(X, times)
    assert both.booster_ == stopped.refit(X, times, 0.0).booster_


@pytest.mark.parametrize("weight", [None, WEIGHT, np.ceil(WEIGHT)], ids=["none", "fractions", "whole"])
@pytest.mark.parametrize("kind", MODELS)
def test_rows_of_training_give_such_models_their_own_bytes(kind: str, weight: Any) -> None:
    estimator, y = MODELS[kind]
    model = type(estimator)(**estimator.get_params()).fit(X, y, sample_weight=weight)
    before = model.booster_
    assert model.refit(X, y, 0.0, sample_weight=weight).booster_ == before
    assert model.refit(X, y, 1.0, sample_weight=weight).booster_ == before


@pytest.mark.parametrize("decay_rate", [0.0, 0.5])
@pytest.mark.parametrize("objective", ["regression", "l1"])
def test_no_rows_bring_leaves_out_of_order(objective: str, decay_rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    constrained = DMLGBMRegressor(**SMALL, **ORDER, objective=objective).fit(X, SIGNAL)
    assert falls(constrained.refit(NEW, AGAINST, decay_rate), NEW[:20]) == 0.0
    few = DMLGBMRegressor(**SMALL, **ORDER, objective=objective).fit(X, SIGNAL)
    assert falls(few.refit(NEW[:4], AGAINST[:4] * 5, decay_rate), NEW[:20]) == 0.0  # most leaves are not reached
    monkeypatch.setattr(refitting, "_in_order", lambda tree, values, hessians, parameters: values)
    free = DMLGBMRegressor(**SMALL, **ORDER, objective=objective).fit(X, SIGNAL)
    assert falls(free.refit(NEW, AGAINST, 0.0), NEW[:20]) > 0.0


def test_order_holds_by_column_name_in_a_booster_of_train() -> None:
    data = Dataset(X, SIGNAL, feature_name=["a", "b", "c"])
    booster = dmlgbm.train({"num_leaves": 7, "monotone_constraints": {"a": 1}}, data, 6)
    again = booster.refit(X, SIGNAL, 0.0)
    assert again == booster
    model = DMLGBMRegressor(num_leaves=7, n_estimators=6, **ORDER).fit(X, SIGNAL)
    trees = zip(booster.refit(NEW, AGAINST, 0.2).trees, model.refit(NEW, AGAINST, 0.2).booster_.trees, strict=True)
    assert all((one.leaf_value == other.leaf_value).all() for one, other in trees)


def test_all_trees_of_a_forest_start_from_the_first_scores() -> None:
    model = DMLGBMRegressor(**SMALL | ALL_OF_A_FOREST).fit(X, SIGNAL)
    model.refit(NEW, AGAINST, 0.0)
    base, leaves = AGAINST.mean(), model.apply(NEW)
    for tree, own in zip(model.booster_.trees, leaves.T, strict=True):
        for leaf in np.unique(own):
            assert tree.leaf_value[leaf] == pytest.approx((AGAINST - base)[own == leaf].mean(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {"boosting_type": "goss"},
        {"bootstrap_type": "Bayesian"},
        {"bootstrap_type": "MVS", "subsample": 0.6},
        {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1, "learning_rate": 0.1},
        ORDER,
        {"objective": "mape"},
    ],
    ids=str,
)
def test_refit_after_stopping_is_a_refit_of_the_chosen_trees_on_all_rows(more: dict[str, Any]) -> None:
    y = 20.0 + SIGNAL if "objective" in more else SIGNAL
    asked = {**SMALL, "n_estimators": 25, "early_stopping": True, "early_stopping_rounds": 4, **more}
    stopped = DMLGBMRegressor(**asked).fit(X, y)
    both = DMLGBMRegressor(**asked, refit_after_stopping=True).fit(X, y)
    assert both.best_iteration_ == stopped.best_iteration_
    assert both.booster_ == stopped.refit(X, y, 0.0).booster_


def test_changing_rates_are_followed_after_stopping_and_refused_later(tmp_path: Path) -> None:
    rates = reset_parameter(learning_rate=lambda iteration: 0.6 * 0.7**iteration)
    asked = {**SMALL, "early_stopping": True, "refit_after_stopping": True, "early_stopping_rounds": 100}
    model = DMLGBMRegressor(**asked).fit(X, SIGNAL, callbacks=rates)
    booster, scores = model.booster_, np.full(len(X), SIGNAL.mean())
    for number, (tree, own) in enumerate(zip(booster.trees, model.apply(X).T, strict=True)):
        for leaf in np.unique(own):
            step = 0.6 * 0.7**number * (SIGNAL - scores)[own == leaf].mean()
            assert tree.leaf_value[leaf] == pytest.approx(step, rel=1e-5, abs=1e-8)
        scores += tree.leaf_value[own]
    model.save_model(tmp_path / "model")
    for known in (model, dmlgbm.load_model(tmp_path / "model")):
        with pytest.raises(ParameterError, match="trained with rates that reset_parameter changed"):
            known.refit(NEW, AGAINST)
    trained = dmlgbm.train({"num_leaves": 7}, Dataset(X, SIGNAL), 6, callbacks=rates)
    for booster in (trained, trained[2:], dmlgbm.train({"num_leaves": 7}, Dataset(X, SIGNAL), 1) + trained):
        with pytest.raises(ParameterError, match="trained with rates that reset_parameter changed"):
            booster.refit(NEW, AGAINST, params={"num_leaves": 7})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"boosting_type": "dart"}, "cannot follow boosting_type='dart'"),
        ({"path_smooth": 2.0}, "cannot smooth leaves \\(path_smooth=2.0\\)"),
    ],
)
def test_what_a_refit_cannot_follow_is_refused_before_anything_happens(more: dict[str, Any], message: str) -> None:
    model = DMLGBMRegressor(**SMALL, **more).fit(X, SIGNAL)
    before = model.booster_
    with pytest.raises(ParameterError, match=message):
        model.refit(NEW, AGAINST)
    assert model.booster_ is before
    with pytest.raises(ParameterError, match=message):
        dmlgbm.train(more, Dataset(X, SIGNAL), 3).refit(NEW, AGAINST)


def test_smoothed_leaves_are_not_refitted_after_stopping() -> None:
    with pytest.raises(ParameterError, match="cannot smooth leaves"):
        DMLGBMRegressor(early_stopping=True, refit_after_stopping=True, path_smooth=1.0).fit(X, SIGNAL)


def test_parameters_must_say_how_trees_count() -> None:
    forest = DMLGBMRegressor(**SMALL | ALL_OF_A_FOREST).fit(X, SIGNAL)
    with pytest.raises(ParameterError, match="does not fit a model whose trees are averaged"):
        forest.booster_.refit(NEW, AGAINST, params={"num_leaves": 7})
