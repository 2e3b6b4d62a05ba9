"""Objectives agree with naive oracles, finite differences and LightGBM, whatever the row order and thread count."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlgbm.gbdt.objectives import Objective, ObjectiveSettings, objective_for, transform
from dmlgbm.gbdt.threads import Workers
from tests.reference import objectives as naive
from tests.reference.further_losses import CONSTANTS

FloatArray = npt.NDArray[np.float64]
SingleArray = npt.NDArray[np.float32]
ALPHA = 0.7
N_CLASSES = 4
SINGLE = 2e-7
NOISE_KEY = np.uint64(0xFEDCBA9876543210)
CONSTANT_HESSIANS = ["regression", "regression_l1", "quantile", "huber", "mape"]
SIGMOIDS = ["binary", "focal", "cross_entropy"]
RATES = ["poisson", "gamma", "tweedie"]
POINTWISE = [*CONSTANT_HESSIANS, *SIGMOIDS, *RATES, "fair", "logcosh", "expectile"]
SEVERAL = ["multiclass", "multiclassova"]
BY_ROW = [*POINTWISE, *SEVERAL]
RANKING = ["lambdarank", "pairwise", "rank_xendcg"]
NAMES = [*BY_ROW, *RANKING]
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


def make(name: str | Callable[..., Any], target: Any, weight: Any = None, **options: Any) -> Objective:
    group_starts = options.pop("group_starts", None)
    # Without a limit derivatives are the loss's own.
    defaults: dict[str, Any] = {"n_classes": N_CLASSES, "alpha": ALPHA, "truncation_level": 3, "max_delta_step": 0.0}
    defaults["constants"] = CONSTANTS
    settings = ObjectiveSettings(name, **(defaults | options))
    return objective_for(settings, target=np.asarray(target, np.float64), weight=weight, group_starts=group_starts)


def derivatives(objective: Objective, score: FloatArray, n_threads: int = 1) -> tuple[SingleArray, SingleArray]:
    gradients = np.full(score.shape, np.nan, np.float32)
    hessians = np.full((score.shape[0], 0 if objective.constant_hessian else score.shape[1]), np.nan, np.float32)
    with Workers(n_threads) as workers:
        objective.compute_gradients(score, gradients, hessians, workers, NOISE_KEY)
    return gradients, hessians


def sample(name: str, n_rows: int, weighted: bool = False) -> tuple[FloatArray, FloatArray | None, FloatArray]:
    """Targets, weights with some zeros, and scores [output, row], some of them equal to the target."""
    random = np.random.default_rng(n_rows)
    weight = random.choice([0.0, 0.1, 1.0, 7.0], n_rows) + 0.5 * random.random(n_rows) if weighted else None
    score = random.normal(size=(N_CLASSES if name in SEVERAL else 1, n_rows)) * 3.0
    if name in ("binary", "focal"):
        return random.integers(0, 2, n_rows).astype(float), weight, score
    if name in (*SEVERAL, *RANKING):
        return random.integers(0, N_CLASSES, n_rows).astype(float), weight, np.round(score, 1)
    if name == "cross_entropy":
        return np.clip(random.normal(0.5, 0.4, n_rows), 0.0, 1.0), weight, score
    if name == "gamma":
        return random.gamma(2.0, 2.0, n_rows) + 1e-3, weight, score
    if name in RATES:
        return random.poisson(2.0, n_rows).astype(float), weight, score
    return np.round(random.normal(size=n_rows) * 3.0, 1), weight, np.round(score, 1)


def starts_of_queries(n_rows: int) -> npt.NDArray[np.int64]:
    """Queries of 1, 2, 3 ... rows, over and over."""
    sizes = 1 + np.arange(n_rows) % 23
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return np.append(starts[starts < n_rows], n_rows).astype(np.int64)


@pytest.mark.parametrize("name", BY_ROW)
@WEIGHTED
def test_derivatives_match_the_oracle(name: str, weighted: bool) -> None:
    target, weight, score = sample(name, 700, weighted)
    objective = make(name, target, weight)
    gradients, hessians = derivatives(objective, score)
    factor = np.ones(700) if weight is None else weight
    rows = [naive.derivatives(name, target[row], list(score[:, row]), ALPHA) for row in range(700)]
    np.testing.assert_allclose(gradients, np.array([gradient for gradient, _ in rows]).T * factor, SINGLE, 1e-12)
    assert objective.n_outputs == len(score)
    assert objective.constant_hessian == (not weighted and name in CONSTANT_HESSIANS)
    if not objective.constant_hessian:
        np.testing.assert_allclose(hessians, np.array([hessian for _, hessian in rows]).T * factor, SINGLE)


@pytest.mark.parametrize("name", BY_ROW)
def test_gradients_are_slopes_of_the_loss(name: str) -> None:
    target, _, score = sample(name, 200)
    score += 0.01234  # away from the kinks, which are at round numbers
    gradients, _ = derivatives(make(name, target), score)
    step = 1e-5
    for row in range(200):
        for output in range(len(score)):
            above, below = score[:, row].copy(), score[:, row].copy()
            above[output] += step
            below[output] -= step
            losses = [naive.loss(name, target[row], list(scores), ALPHA) for scores in (above, below)]
            assert gradients[output, row] == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", BY_ROW)
@WEIGHTED
def test_base_scores_match_the_oracle_in_any_order(name: str, weighted: bool) -> None:
    target, weight, _ = sample(name, 1001, weighted)
    scores = make(name, target, weight).base_scores()
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, naive.base_scores(name, target, weight, N_CLASSES, ALPHA), 1e-12)
    order = np.random.default_rng(1).permutation(1001)
    shuffled = make(name, target[order], None if weight is None else weight[order]).base_scores()
    assert shuffled.tobytes() == scores.tobytes()


def test_base_score_of_one_class_is_finite() -> None:
    low, high = make("binary", np.zeros(5)).base_scores(), make("binary", np.ones(5)).base_scores()
    assert low[0] == pytest.approx(math.log(1e-15), rel=1e-3)
    assert high[0] == pytest.approx(-math.log(1e-15), rel=1e-2)
    assert np.isfinite(make("multiclass", np.zeros(5)).base_scores()).all()


@pytest.mark.parametrize("name", NAMES)
@WEIGHTED
def test_threads_give_the_same_bits(name: str, weighted: bool) -> None:
    n_rows = 40_001
    target, weight, score = sample(name, n_rows, weighted)
    objective = make(name, target, weight, group_starts=starts_of_queries(n_rows))
    alone, together = derivatives(objective, score, 1), derivatives(objective, score, 2)
    for one, two in zip(alone, together, strict=True):
        assert one.tobytes() == two.tobytes()
        assert np.isfinite(one).all()


@pytest.mark.parametrize("truncation_level", [1, 3, 30])
@WEIGHTED
def test_lambdarank_matches_all_pairs(truncation_level: int, weighted: bool) -> None:
    target, weight, score = sample("lambdarank", 600, weighted)
    starts = starts_of_queries(600)
    score[0, starts[10] : starts[11]] = 1.5
    target[starts[11] : starts[12]] = 0.0
    objective = make("lambdarank", target, weight, group_starts=starts, truncation_level=truncation_level)
    gradients, hessians = derivatives(objective, score)
    for start, stop in pairwise(starts):
        factor = 1.0 if weight is None else weight[start:stop]
        gradient, hessian = naive.lambdarank_of_query(
            list(target[start:stop].astype(int)), list(score[0, start:stop]), truncation_level
        )
        np.testing.assert_allclose(gradients[0, start:stop], gradient * factor, 1e-6, 1e-7)
        np.testing.assert_allclose(hessians[0, start:stop], hessian * factor, 1e-6, 1e-7)
    assert objective.base_scores().tolist() == [0.0]


def test_extreme_scores_stay_finite() -> None:
    score = np.array([[-1e4, 1e4, 1e300, -1e300]])
    for name in POINTWISE:
        target = np.array([0.0, 1.0, 1.0, 0.0]) + (name == "gamma")
        for values in derivatives(make(name, target), score):
            assert np.isfinite(values).all()


def test_transform() -> None:
    random = np.random.default_rng(0)
    raw = random.normal(size=(1, 300)) * 5.0
    for name in SIGMOIDS:
        np.testing.assert_allclose(transform(name, raw), 1.0 / (1.0 + np.exp(-raw)), 1e-14)
    for name in (*RATES, "cox", "aft"):
        np.testing.assert_allclose(transform(name, raw), np.exp(raw), 1e-14)
    for name in (*CONSTANT_HESSIANS, "fair", "logcosh", "expectile", *RANKING, "custom"):
        assert transform(name, raw) is raw
    raw = random.normal(size=(N_CLASSES, 300)) * 5.0
    expected = np.array([naive.softmax(list(scores)) for scores in raw.T]).T
    np.testing.assert_allclose(transform("multiclass", raw), expected, 1e-13)
    shares = 1.0 / (1.0 + np.exp(-raw))
    np.testing.assert_allclose(transform("multiclassova", raw), shares / shares.sum(axis=0), 1e-13)
    far = transform("multiclassova", np.full((N_CLASSES, 3), -1e300))
    np.testing.assert_allclose(far, 1.0 / N_CLASSES)


def squared_error(y_true: FloatArray, y_pred: FloatArray) -> tuple[FloatArray, FloatArray]:
    return y_pred - y_true, np.ones_like(y_pred)


def test_custom_function_of_two_arguments_is_weighted() -> None:
    target, weight, score = sample("regression", 50, weighted=True)
    objective = make(squared_error, target, weight, n_classes=1)
    built_in = derivatives(make("regression", target, weight), score)
    for own, expected in zip(derivatives(objective, score), built_in, strict=True):
        np.testing.assert_array_equal(own, expected)
    assert (objective.name, objective.n_outputs, objective.base_scores().tolist()) == ("custom", 1, [0.0])
    assert ObjectiveSettings(squared_error).name == "custom"


def test_custom_function_takes_weight_and_group() -> None:
    seen: list[Any] = []

    def three(y_true: FloatArray, y_pred: FloatArray, weight: FloatArray | None = None, scale: float = 2.0) -> Any:
        seen.append((weight, scale))
        return y_pred * 0.0 + scale, np.ones_like(y_pred)

    def four(y_true: FloatArray, y_pred: FloatArray, weight: FloatArray, group: Any) -> Any:
        seen.append((weight, group))
        return squared_error(y_true, y_pred)

    weight, score = np.array([1.0, 2.0, 3.0]), np.zeros((1, 3))
    gradients, hessians = derivatives(make(three, np.zeros(3), weight), np.zeros((N_CLASSES, 3)))
    assert gradients.tolist() == [[2.0] * 3] * N_CLASSES
    assert hessians.tolist() == [[1.0] * 3] * N_CLASSES
    derivatives(make(four, np.zeros(3), weight, n_classes=2, group_starts=np.array([0, 1, 3])), score)
    assert seen[0][1] == 2.0
    assert [list(values) for values in (seen[0][0], *seen[1])] == [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1, 2]]


def test_custom_function_of_several_outputs_sees_rows_first() -> None:
    def numbered(y_true: FloatArray, y_pred: FloatArray) -> Any:
        assert y_pred.shape == (3, N_CLASSES)
        y_pred += 1.0
        return y_pred, np.ones_like(y_pred)

    score = np.arange(3.0 * N_CLASSES).reshape(N_CLASSES, 3)
    gradients, _ = derivatives(make(numbered, np.zeros(3)), score)
    np.testing.assert_array_equal(gradients, score + 1.0)
    assert score[0, 0] == 0.0


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(3), "two arrays"),
        ((np.zeros(2), np.ones(3)), r"gradient has shape \(2,\).*\(3,\)"),
        ((np.zeros(3), np.ones((3, 1))), "hessian has shape"),
        ((np.array([0.0, np.nan, 0.0]), np.ones(3)), "gradient of row 1 is nan"),
        ((np.zeros(3), np.array([1.0, 1.0, 1e39])), "hessian of row 2 is 1e"),
        ((np.zeros(3), np.array([1.0, -1.0, 1.0])), "hessian of row 1 is -1.0"),
    ],
)
def test_bad_results_of_a_custom_function(returned: Any, message: str) -> None:
    objective = make(lambda y_true, y_pred: returned, np.zeros(3), n_classes=1)
    with pytest.raises(ValueError, match=message):
        derivatives(objective, np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("name", "target", "options", "message"),
    [
        ("binary", [0.0, 2.0], {}, "row 1 is 2.0.*0 to 1"),
        ("multiclass", [0.0, 1.5], {}, "row 1 is 1.5.*0 to 3"),
        ("multiclass", [0.0], {"n_classes": 1}, "n_classes=1"),
        ("regression", [0.0, 1.0, math.nan], {}, "row 2 is nan"),
        ("regression_l1", [math.inf], {}, "row 0 is inf"),
        ("quantile", [-1e300], {}, "row 0 is -1e"),
        ("quantile", [1.0], {"alpha": 1.0}, "alpha=1.0"),
        ("quantile", [1.0], {"alpha": math.nan}, "alpha=nan"),
        ("poisson", [1.0, -1.0], {}, "row 1 is -1.0"),
        ("poisson", [0.0, 0.0], {}, "All targets"),
        ("poisson", [math.nan], {}, "row 0 is nan"),
        ("gamma", [1.0, 0.0], {}, "row 1 is 0.0, but objective 'gamma' needs targets above 0"),
        ("gamma", [math.inf], {}, "row 0 is inf"),
        ("tweedie", [1.0, -1.0], {}, "row 1 is -1.0, but objective 'tweedie' needs targets of at least 0"),
        ("tweedie", [0.0, 0.0], {}, "All targets.*'tweedie' needs one above 0"),
        ("cross_entropy", [0.0, 1.5], {}, "row 1 is 1.5, but objective 'cross_entropy' needs targets from 0 to 1"),
        ("cross_entropy", [math.nan], {}, "row 0 is nan"),
        ("focal", [0.0, 2.0], {}, "row 1 is 2.0.*0 to 1"),
        ("multiclassova", [4.0], {}, "row 0 is 4.0.*0 to 3"),
        ("huber", [math.nan], {}, "row 0 is nan"),
        ("huber", [1.0], {"alpha": 0.0}, "alpha=0.0"),
        ("mape", [1.0, math.inf], {}, "row 1 is inf"),
        ("fair", [1e300], {}, "row 0 is 1e"),
        ("logcosh", [math.nan], {}, "row 0 is nan"),
        ("expectile", [math.nan], {}, "row 0 is nan"),
        ("expectile", [1.0], {"alpha": 1.0}, "alpha=1.0"),
        ("lambdarank", [0.0, 0.5], {"group_starts": np.array([0, 2])}, "row 1 is 0.5"),
        ("lambdarank", [-1.0], {"group_starts": np.array([0, 1])}, "row 0 is -1.0"),
        ("lambdarank", [32.0], {"group_starts": np.array([0, 1])}, "row 0 is 32.0.*0 to 31"),
        ("lambdarank", [1.0], {}, "`group` or `qid`"),
        ("lambdarank", [1.0], {"group_starts": np.array([0, 2])}, "add up to the number of rows, 1"),
        ("lambdarank", [1.0], {"group_starts": np.array([0, 1]), "truncation_level": 0}, "truncation_level=0"),
        (squared_error, [math.nan], {}, "row 0 is nan"),
        (lambda y_true: (y_true, y_true), [0.0], {}, "takes 1 arguments"),
        ("poison", [1.0], {}, "objective='poison' is not one of 'binary'"),
    ],
)
def test_bad_input_is_named(name: Any, target: list[float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, target, **options)


# LightGBM has no hessian of "fair" that stays away from zero, interpolates weighted medians and lacks the others.
OTHER_STEPS = ("fair", "mape", "logcosh", "expectile", "focal")


@pytest.mark.parity
@pytest.mark.parametrize("name", [name for name in [*BY_ROW, "lambdarank"] if name not in OTHER_STEPS])
def test_first_step_matches_lightgbm(name: str) -> None:
    """A single leaf of rate 1 shows LightGBM's first score; two leaves by sign of x show the sums of gradients."""
    lightgbm = pytest.importorskip("lightgbm")
    target, _, _ = sample(name, 2000)
    starts = starts_of_queries(2000)
    side = np.random.default_rng(3).integers(0, 2, (2000, 1)).astype(float)
    parameters = {"objective": name, "num_leaves": 2, "learning_rate": 1.0, "min_sum_hessian_in_leaf": 0.0}
    parameters |= {"verbose": -1, "alpha": ALPHA, "lambdarank_truncation_level": 3, "num_threads": 1, "seed": 1}
    parameters["tweedie_variance_power"] = CONSTANTS.tweedie_variance_power
    if name in SEVERAL:
        parameters["num_class"] = N_CLASSES
    data = lightgbm.Dataset(side, target, group=np.diff(starts) if name == "lambdarank" else None)
    raw = lightgbm.train(parameters, data, 1).predict(side, raw_score=True).reshape(2000, -1).T
    objective = make(name, target, group_starts=starts)
    score = np.repeat(objective.base_scores()[:, None], 2000, axis=1)
    gradients, hessians = derivatives(objective, score)
    for output in range(objective.n_outputs):
        for value in (0.0, 1.0):
            rows = np.flatnonzero(side[:, 0] == value)
            if objective.leaf_percentile is not None:
                step = np.quantile(target[rows] - score[0, rows], objective.leaf_percentile.level)
            else:
                hessian = len(rows) if objective.constant_hessian else hessians[output, rows].sum(dtype=float)
                step = -gradients[output, rows].sum(dtype=float) / hessian
            assert raw[output, rows[0]] == pytest.approx(score[output, 0] + step, rel=1e-4, abs=1e-5)
