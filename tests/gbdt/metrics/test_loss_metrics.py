"""Metrics that are the losses of objectives agree with naive formulas, scikit-learn and LightGBM, in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics

from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, MeanMetric
from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.metrics.loss_metrics import LOSS_METRICS
from dmlgbm.gbdt.parameters import ParameterError
from tests.reference import metrics as naive
from tests.reference.further_losses import CONSTANTS

FloatArray = npt.NDArray[np.float64]
ALPHA = 0.7
C, POWER = CONSTANTS.fair_c, CONSTANTS.tweedie_variance_power
names = pytest.mark.parametrize("name", LOSS_METRICS)


def metric_named(name: str, constants: LossConstants = CONSTANTS) -> MeanMetric:
    (found,) = metrics_for([name], objective_alpha=ALPHA, eval_at=[], constants=constants)
    assert not found.higher_is_better
    assert isinstance(found.function, MeanMetric)
    return found.function


def sample(name: str, n_rows: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Targets, predictions and weights that suit the metric; losses of "gamma" and "tweedie" have both signs."""
    random = np.random.default_rng(seed)
    weight = random.choice([0.0, 0.25, 1.0, 7.5], n_rows)
    weight[0] = 1.0
    if name in ("cross_entropy", "focal"):
        target = random.random(n_rows) if name == "cross_entropy" else random.integers(0, 2, n_rows).astype(float)
        return target, random.random(n_rows), weight
    if name in ("gamma", "gamma_deviance", "tweedie"):
        amounts = random.gamma(0.5, 2.0, n_rows) + 1e-6
        return amounts * (random.random(n_rows) < 0.7) if name == "tweedie" else amounts, random.random(n_rows), weight
    return random.normal(size=n_rows) * 3.0, random.normal(size=n_rows) * 3.0, weight


def focal(y: float, p: float) -> float:
    right, share = (p, CONSTANTS.focal_alpha) if y == 1.0 else (1.0 - p, 1.0 - CONSTANTS.focal_alpha)
    return -share * (1.0 - right) ** CONSTANTS.focal_gamma * math.log(right)


def huber(y: float, p: float) -> float:
    return 0.5 * (y - p) ** 2 if abs(y - p) <= ALPHA else ALPHA * (abs(y - p) - 0.5 * ALPHA)


ROW_LOSSES: dict[str, Callable[[float, float], float]] = {
    "huber": huber,
    "fair": lambda y, p: C * abs(y - p) - C**2 * math.log1p(abs(y - p) / C),
    "logcosh": lambda y, p: math.log(math.cosh(y - p)),
    "expectile": lambda y, p: (ALPHA if y > p else 1.0 - ALPHA) * (y - p) ** 2,
    "mape": lambda y, p: abs(y - p) / max(1.0, abs(y)),
    "gamma": lambda y, p: y / p + math.log(p),
    "gamma_deviance": lambda y, p: 2.0 * (y / p - math.log(y / p) - 1.0),
    "tweedie": lambda y, p: p ** (2.0 - POWER) / (2.0 - POWER) - y * p ** (1.0 - POWER) / (1.0 - POWER),
    "cross_entropy": lambda y, p: -y * math.log(p) - (1.0 - y) * math.log(1.0 - p),
    "focal": focal,
}


@names
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_mean_of_the_formula(name: str, weighted: bool) -> None:
    target, prediction, weight = sample(name, 501)
    losses = [ROW_LOSSES[name](y, p) for y, p in zip(target.tolist(), prediction.tolist(), strict=True)]
    found = metric_named(name)(target, prediction, weight if weighted else None, None)
    assert found == pytest.approx(naive.mean(losses, weight.tolist() if weighted else None), rel=1e-12)


def test_losses_of_both_signs_make_a_negative_mean() -> None:
    target, prediction, weight = sample("gamma", 300)
    assert metric_named("gamma")(target, prediction * 0.01 + target, weight, None) < 0.0
    counts = np.random.default_rng(1).poisson(3.0, 300).astype(float)
    poisson = metric_named("tweedie", LossConstants(tweedie_variance_power=1.0))
    assert poisson(counts, np.full(300, 3.0), None, None) == pytest.approx(3.0 - counts.mean() * math.log(3.0))


@names
def test_no_order_and_no_chunking_changes_a_bit(name: str) -> None:
    target, prediction, weight = sample(name, 40_001)
    function = metric_named(name)
    expected = function(target, prediction, weight, None)
    order = np.random.default_rng(1).permutation(40_001)
    assert function(target[order], prediction[order], weight[order], None) == expected
    merged = ExactMean()
    for start, stop in pairwise([0, 1, 16_000, 16_385, 40_001]):
        part = slice(start, stop)
        merged.sums[...] += function.partial_mean(target[part], prediction[part], weight[part], None).sums
    assert function.finish(merged) == expected


@names
def test_three_equal_rows_are_one_of_weight_three(name: str) -> None:
    target, prediction, _ = sample(name, 200)
    weight = np.random.default_rng(2).integers(0, 4, 200)
    repeated = np.repeat(np.arange(200), weight)
    function = metric_named(name)
    expected = function(target[repeated], prediction[repeated], None, None)
    assert function(target, prediction, weight.astype(float), None) == expected


@names
def test_a_prediction_of_nan_makes_the_metric_nan(name: str) -> None:
    target, prediction, weight = sample(name, 5)
    prediction[3], weight[3] = math.nan, 1.0
    assert math.isnan(metric_named(name)(target, prediction, weight, None))


@pytest.mark.parametrize("name", ["cross_entropy", "focal", "gamma", "gamma_deviance", "tweedie"])
def test_certain_and_wrong_costs_a_finite_loss(name: str) -> None:
    for target, prediction in ((1.0, 0.0), (0.0, 1.0)):
        found = metric_named(name)(np.array([target]), np.array([prediction]), None, None)
        assert math.isfinite(found)


def test_equals_scikit_learn() -> None:
    target, prediction, weight = sample("gamma_deviance", 4_000)
    expected = sklearn.metrics.mean_gamma_deviance(target, prediction, sample_weight=weight)
    assert metric_named("gamma_deviance")(target, prediction, weight, None) == pytest.approx(expected, rel=1e-12)
    target, prediction, weight = sample("mape", 4_000)
    far = np.where(np.abs(target) < 1.0, 1.0, target)
    expected = sklearn.metrics.mean_absolute_percentage_error(far, prediction, sample_weight=weight)
    assert metric_named("mape")(far, prediction, weight, None) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"fair_c": 0.0}, "fair_c=0.0 is out of range"),
        ({"fair_c": math.inf}, "fair_c=inf is out of range"),
        ({"tweedie_variance_power": 0.9}, "tweedie_variance_power=0.9 is out of range"),
        ({"tweedie_variance_power": 2.0}, "less than 2 \\(2 is objective 'gamma'\\)"),
        ({"focal_gamma": -1.0}, "focal_gamma=-1.0 is out of range"),
        ({"focal_alpha": 1.0}, "focal_alpha=1.0 is out of range"),
        ({"focal_alpha": math.nan}, "focal_alpha=nan is out of range"),
    ],
)
def test_constants_out_of_range(constants: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LossConstants(**constants)


@pytest.mark.parity
@pytest.mark.parametrize("name", ["huber", "fair", "mape", "gamma", "tweedie", "cross_entropy"])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_lightgbm(name: str, weighted: bool) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    target, prediction, weight = sample(name, 3_000)
    # float32, as LightGBM stores targets and weights.
    target, weight = target.astype(np.float32).astype(float), (weight + 0.25).astype(np.float32).astype(float)
    raw = np.log(prediction) if name in ("gamma", "tweedie") else prediction
    raw = np.log(prediction / (1.0 - prediction)) if name == "cross_entropy" else raw
    data = lightgbm.Dataset(
        np.zeros((3_000, 1)), target, weight=weight if weighted else None, init_score=raw, free_raw_data=False
    )
    settings = {"objective": name, "metric": name, "alpha": ALPHA, "fair_c": C, "tweedie_variance_power": POWER}
    results: dict[str, dict[str, list[float]]] = {}
    record = lightgbm.record_evaluation(results)
    lightgbm.train(
        settings | {"verbosity": -1, "num_leaves": 2, "learning_rate": 1e-300, "num_threads": 1, "max_depth": 1},
        data, 1, valid_sets=[data], valid_names=["rows"], callbacks=[record],
    )  # fmt: skip
    found = metric_named(name)(target, prediction, weight if weighted else None, None)
    assert found == pytest.approx(results["rows"][name][-1], rel=1e-7)
