"""`reset_parameter`: a learning rate for each iteration, listed or computed, ours and LightGBM's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.metrics import mean_squared_error

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor, reset_parameter
from dmlgbm.gbdt.callbacks import TrainingState
from dmlgbm.gbdt.parameters import ParameterError

X, TARGET = make_friedman1(600, 6, noise=1.0, random_state=0)
RATES = [0.5, 0.3, 0.05, 0.2]
SMALL: dict[str, Any] = {"n_estimators": 4, "num_leaves": 7}


def fitted(rates: Any, kind: Any = DMLGBMRegressor, y: Any = TARGET, **options: Any) -> Any:
    return kind(**SMALL | options).fit(X, y, callbacks=reset_parameter(learning_rate=rates))


@pytest.mark.parametrize("objective", ["regression", "regression_l1", "multiclass"])
def test_each_iteration_has_its_rate(objective: str) -> None:
    """One fit for each iteration, which goes on from the fit before, is a run with its rate."""
    kind: Any = DMLGBMClassifier if objective == "multiclass" else DMLGBMRegressor
    y = np.digitize(TARGET, [12.0, 17.0]) if objective == "multiclass" else TARGET
    options = {"objective": objective, "subsample": 0.7, "subsample_freq": 1}
    model = None
    for rate in RATES:
        one = kind(**SMALL | {"n_estimators": 1, "learning_rate": rate} | options)
        model = one.fit(X, y, init_model=model)
    assert model is not None
    scheduled = fitted(RATES, kind, y, **options).booster_
    # A model says that its rates have changed within a fit.
    assert scheduled.changed_rate
    assert replace(scheduled, changed_rate=False) == model.booster_


def test_a_list_an_array_and_a_function_say_the_same() -> None:
    expected = fitted(RATES).booster_
    assert fitted(np.array(RATES)).booster_ == expected
    assert fitted(lambda iteration: RATES[iteration]).booster_ == expected
    assert fitted([0.1] * 4).booster_ == DMLGBMRegressor(**SMALL).fit(X, TARGET).booster_ != expected


def test_rates_are_those_of_the_iterations_that_a_fit_adds() -> None:
    before = DMLGBMRegressor(**SMALL).fit(X, TARGET)
    calls: list[int] = []

    def rate(iteration: int) -> float:
        calls.append(iteration)
        return RATES[iteration]

    schedule = reset_parameter(learning_rate=rate)
    after = DMLGBMRegressor(**SMALL).fit(X, TARGET, init_model=before, callbacks=[schedule])
    warm = DMLGBMRegressor(**SMALL, warm_start=True).fit(X, TARGET)
    warm.set_params(n_estimators=8).fit(X, TARGET, callbacks=schedule)
    assert calls == [0, 1, 2, 3] * 2
    assert warm.booster_ == after.booster_


def test_beside_other_callbacks_and_early_stopping() -> None:
    seen: list[int] = []

    def watch(state: TrainingState) -> None:
        seen.append(state.iteration)

    patience = {"early_stopping": True, "early_stopping_rounds": 2, "early_stopping_min_delta": 1e-4}
    model = DMLGBMRegressor(n_estimators=50, num_leaves=7, **patience)
    model.fit(X, TARGET, callbacks=[watch, reset_parameter(learning_rate=lambda k: 0.9 if k < 5 else 1e-9)])
    assert seen == list(range(1, model.n_iter_ + 1))
    assert model.n_iter_ < 50


@pytest.mark.parametrize("xgboost_dart_mode", [False, True])
def test_with_dropout(xgboost_dart_mode: bool) -> None:
    options = {"boosting_type": "dart", "skip_drop": 0.0, "drop_rate": 0.0, "xgboost_dart_mode": xgboost_dart_mode}
    assert fitted(RATES, **options).booster_ == fitted(RATES).booster_
    # The second iteration leaves the first one out, so that both fit the gradients at the first score.
    first = fitted(RATES[:1], n_estimators=1).booster_.trees[0].leaf_value
    trees = fitted(RATES[:2], **{**options, "drop_rate": 1.0, "uniform_drop": True, "n_estimators": 2}).booster_.trees
    weight = 1.0 / (1.0 + (RATES[1] if xgboost_dart_mode else 1.0))
    np.testing.assert_allclose(trees[0].leaf_value, weight * first, rtol=1e-9)
    np.testing.assert_allclose(trees[1].leaf_value, weight * first * RATES[1] / RATES[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("rates", "error", "message"),
    [
        ([0.1] * 3, ParameterError, "lists 3 rates, but this fit adds 4 iterations: give a rate for each, or a"),
        ([0.1, 0.1, 0.0, 0.1], ParameterError, "learning_rate of reset_parameter=0.0 is out of range"),
        (lambda k: math.nan, ParameterError, "learning_rate of reset_parameter=nan is out of range"),
        (lambda k: "fast", TypeError, "learning_rate of reset_parameter must give numbers, got 'fast'"),
        (0.1, TypeError, "learning_rate of reset_parameter must be a list or a function, got 0.1"),
    ],
)
def test_rates_that_make_no_sense(rates: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fitted(rates)


def test_a_forest_has_no_rate() -> None:
    with pytest.raises(ParameterError, match="reset_parameter changes learning_rate, which has no effect with"):
        fitted(RATES, boosting_type="rf", colsample_bytree=0.5)


@pytest.mark.parametrize("rates", [RATES, lambda iteration: RATES[iteration]])
def test_lightgbms_callback_is_understood(rates: list[float] | Callable[[int], float]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    model = DMLGBMRegressor(**SMALL).fit(X, TARGET, callbacks=[lightgbm.reset_parameter(learning_rate=rates)])
    assert model.booster_ == fitted(RATES).booster_
    with pytest.raises(ValueError, match="reset_parameter changes num_leaves, but only learning_rate can change"):
        DMLGBMRegressor(**SMALL).fit(X, TARGET, callbacks=[lightgbm.reset_parameter(num_leaves=[3] * 4)])


@pytest.mark.parity
def test_as_accurate_as_lightgbm_with_the_same_rates() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    table, target = make_friedman1(4_000, 10, noise=1.0, random_state=1)
    callbacks = [lightgbm.reset_parameter(learning_rate=lambda iteration: 0.3 * 0.97**iteration)]
    errors = []
    for model in (DMLGBMRegressor(n_estimators=60), lightgbm.LGBMRegressor(n_estimators=60, verbose=-1, n_jobs=1)):
        model.fit(table[:2_500], target[:2_500], callbacks=callbacks)
        errors.append(mean_squared_error(target[2_500:], model.predict(table[2_500:])))
    assert errors[0] <= 1.05 * errors[1]
