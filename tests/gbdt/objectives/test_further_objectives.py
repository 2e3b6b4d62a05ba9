"""Further objectives: steps that never explode, classes that count as told, first scores that have no order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.objectives import Objective, ObjectiveSettings, objective_for
from dmlgbm.gbdt.objectives.averages import shared_expectile
from dmlgbm.gbdt.objectives.binary import Balance
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers
from tests.reference import objectives as naive
from tests.reference.further_losses import CONSTANTS

FloatArray = npt.NDArray[np.float64]


def make(name: str, target: Any, weight: Any = None, **options: Any) -> Objective:
    settings_of = ObjectiveSettings(name, **options)
    return objective_for(settings_of, target=np.asarray(target, float), weight=weight, group_starts=None)


def derivatives(objective: Objective, score: FloatArray) -> tuple[FloatArray, FloatArray]:
    gradients = np.empty(score.shape, np.float32)
    hessians = np.empty((len(score), 0 if objective.constant_hessian else score.shape[1]), np.float32)
    with Workers(1) as workers:
        objective.compute_gradients(score, gradients, hessians, workers, np.uint64(0))
    return gradients.astype(float), hessians.astype(float)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["fair", "logcosh"]),
    target=st.lists(st.floats(-300, 300), min_size=1, max_size=20),
    score=st.floats(-300, 300),
    rate=st.floats(0.01, 1.0),
)
def test_a_leaf_of_any_rows_never_makes_the_loss_grow(
    name: str, target: list[float], score: float, rate: float
) -> None:
    objective = make(name, target, constants=CONSTANTS)
    gradients, hessians = derivatives(objective, np.full((1, len(target)), score))
    after = score - rate * gradients.sum() / hessians.sum()
    before_and_after = [sum(naive.loss(name, y, [s], 0.9) for y in target) for s in (score, after)]
    # Derivatives are rounded to float32.
    assert before_and_after[1] <= before_and_after[0] * (1.0 + 1e-5) + 1e-9


@pytest.mark.parametrize("name", ["binary", "focal", "cross_entropy", "poisson", "gamma", "tweedie"])
def test_no_row_steps_farther_than_the_largest_step(name: str) -> None:
    score = np.linspace(-40.0, 40.0, 801)[None, :]
    for low in (0.0, 1.0):
        target = np.append(np.full(800, max(low, 1e-3 * (name == "gamma"))), 1.0)
        gradients, hessians = derivatives(make(name, target), score)
        assert np.all(hessians >= 0.0999 * np.abs(gradients))


def test_focal_loss_without_its_exponent_is_half_the_log_loss() -> None:
    random = np.random.default_rng(0)
    target, score = random.integers(0, 2, 500).astype(float), random.normal(size=(1, 500)) * 4.0
    focal = make("focal", target, constants=LossConstants(focal_gamma=0.0, focal_alpha=0.5))
    for found, expected in zip(derivatives(focal, score), derivatives(make("binary", target), score), strict=True):
        np.testing.assert_allclose(found, 0.5 * expected, 1e-6)


def test_tweedie_of_power_one_is_poisson_with_its_own_hessian() -> None:
    random = np.random.default_rng(0)
    target, score = random.poisson(2.0, 500).astype(float), random.normal(size=(1, 500))
    tweedie = make("tweedie", target, constants=LossConstants(tweedie_variance_power=1.0))
    gradients, hessians = derivatives(tweedie, score)
    np.testing.assert_allclose(gradients, derivatives(make("poisson", target), score)[0], 1e-6)
    np.testing.assert_allclose(hessians, np.maximum(np.exp(score), 0.1 * np.abs(gradients)), 1e-6)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9])
def test_expectiles_have_no_order_and_take_weights_for_repeats(level: float) -> None:
    random = np.random.default_rng(3)
    values = np.round(random.standard_t(2, 999) * 10.0 ** random.integers(-8, 8, 999), 3)
    weight = random.integers(0, 5, 999).astype(float)
    found = shared_expectile(values, weight, level)
    order = random.permutation(999)
    assert shared_expectile(values[order], weight[order], level) == found
    repeated = np.repeat(values, weight.astype(int))
    assert shared_expectile(repeated, None, level) == found
    pull = np.where(repeated > found, level, 1.0 - level) * (repeated - found)
    assert abs(math.fsum(pull)) <= 1e-12 * np.abs(pull).sum()


def test_weights_of_relative_errors_do_not_run_over_where_whole_weights_are_large() -> None:
    target = np.random.default_rng(5).permutation(np.linspace(1.0, 9.0, 200_000))
    weight = np.where(np.arange(200_000) % 2, 1 << 20, (1 << 20) - 1).astype(float)
    heavy, plain = make("mape", target, weight), make("mape", target)
    assert heavy.weights.repeats is not None
    assert heavy.base_scores()[0] == pytest.approx(plain.base_scores()[0], rel=1e-3)
    assert plain.base_scores()[0] == pytest.approx(3.0, rel=1e-3)


def test_the_expectile_of_equal_values_is_their_value() -> None:
    assert shared_expectile(np.full(7, 0.1), None, 0.3) == 0.1
    assert shared_expectile(np.array([1.0, 2.0]), None, 0.75) == 1.75


@pytest.mark.parametrize("weighted", [False, True])
def test_scale_pos_weight_multiplies_derivatives_of_the_second_class_alone(weighted: bool) -> None:
    random = np.random.default_rng(1)
    target, score = (random.random(400) < 0.1).astype(float), random.normal(size=(1, 400))
    weight = random.uniform(0.5, 2.0, 400) if weighted else None
    plain, scaled = make("binary", target, weight), make("binary", target, weight, balance=Balance(3.0))
    factor = np.where(target == 1.0, 3.0, 1.0)
    for found, expected in zip(derivatives(scaled, score), derivatives(plain, score), strict=True):
        np.testing.assert_allclose(found, factor * expected, 1e-6)
    assert scaled.base_scores() == plain.base_scores()


def test_is_unbalance_weighs_the_rarer_class_by_the_ratio_of_rows() -> None:
    target, score = np.array([0.0] * 6 + [1.0] * 2), np.zeros((1, 8))
    plain = derivatives(make("binary", target), score)[0][0]
    found = derivatives(make("binary", target, balance=Balance(is_unbalance=True)), score)[0][0]
    np.testing.assert_allclose(found, plain * np.where(target == 1.0, 3.0, 1.0))
    other = derivatives(make("binary", 1.0 - target, balance=Balance(is_unbalance=True)), score)[0][0]
    np.testing.assert_allclose(other, -found)


def test_one_vs_all_weighs_each_class_against_the_rest() -> None:
    target = np.array([0.0] * 5 + [1.0] * 3 + [2.0] * 2)
    objective = make("multiclassova", target, n_classes=3, balance=Balance(is_unbalance=True))
    gradients, _ = derivatives(objective, np.zeros((3, 10)))
    for number in range(3):
        own = make("binary", target == number, balance=Balance(is_unbalance=True))
        np.testing.assert_array_equal(gradients[number], derivatives(own, np.zeros((1, 10)))[0][0])
        assert objective.base_scores()[number] == pytest.approx(own.base_scores()[0], rel=1e-12)


def test_a_class_that_scale_pos_weight_lifts_is_no_longer_rare() -> None:
    target = np.zeros(60_000)
    target[:30] = 1.0
    assert make("binary", target).rare_class_limits().leaf_hessians[0] > 1.0
    assert make("binary", target, balance=Balance(2_000.0)).rare_class_limits().leaf_hessians[0] == 0.0
    options: dict[str, Any] = {"n_classes": 2, "balance": Balance(is_unbalance=True)}
    assert make("multiclassova", target, **options).rare_class_limits().leaf_hessians.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "balance", "message"),
    [
        ("binary", Balance(2.0, is_unbalance=True), "scale_pos_weight=2.0 and is_unbalance=True both weigh"),
        ("binary", Balance(0.0), "scale_pos_weight=0.0 is out of range"),
        ("binary", Balance(math.nan), "scale_pos_weight=nan is out of range"),
        ("multiclass", Balance(2.0), "scale_pos_weight=2.0 does not fit objective 'multiclass'.*class_weight"),
        ("multiclass", Balance(is_unbalance=True), "is_unbalance=True does not fit objective 'multiclass'"),
        ("regression", Balance(2.0), "does not fit objective 'regression'"),
    ],
)
def test_balances_that_make_no_sense(name: str, balance: Balance, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ObjectiveSettings(name, balance=balance)
