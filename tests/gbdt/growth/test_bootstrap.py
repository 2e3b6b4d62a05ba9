"""Bootstraps: weights that have the right distribution, keep sums right, and depend on nothing but row numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.data.exchange import ALONE
from dmlgbm.gbdt.data.row_numbers import Segment, whole_table
from dmlgbm.gbdt.data.row_weights import Repeats
from dmlgbm.gbdt.growth.bootstrap import bayesian_weights, variance_weights
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers
from tests.gbdt.ranks.test_rank_equality import make_fit

N_ROWS = 40_001


def gradients_of(n_outputs: int = 1) -> np.ndarray:
    random = np.random.default_rng(n_outputs)
    return (random.normal(size=(n_outputs, N_ROWS)) * np.exp(random.normal(size=N_ROWS) * 2)).astype(np.float32)


def weights_of(gradients: np.ndarray, n_threads: int = 1, segments: Any = None, **options: Any) -> np.ndarray:
    repeats = options.pop("repeats", None)
    n_rows = gradients.shape[1]
    segments = segments or whole_table(n_rows)
    with Workers(n_threads) as workers:
        if options["bootstrap_type"] == "bayesian":
            return bayesian_weights(TrainParameters(**options), 3, n_rows, segments, workers)
        return variance_weights(TrainParameters(**options), 3, gradients, segments, n_rows, repeats, workers, ALONE)


BAYESIAN: dict[str, Any] = {"bootstrap_type": "bayesian"}
MVS: dict[str, Any] = {"bootstrap_type": "mvs", "subsample": 0.3}


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_random_weights_are_powers_of_exponential_ones(temperature: float) -> None:
    weights = weights_of(gradients_of(), **BAYESIAN, bagging_temperature=temperature)
    expected = np.random.default_rng(0).exponential(size=N_ROWS) ** temperature
    shares = np.linspace(0.01, 0.99, 30)
    np.testing.assert_allclose(np.quantile(weights, shares), np.quantile(expected, shares), rtol=0.1, atol=0.002)


def test_the_temperature_of_no_difference_gives_the_model_of_all_rows() -> None:
    plain = make_fit("binary", {"n_estimators": 3}).locally().booster
    assert make_fit("binary", {**BAYESIAN, "bagging_temperature": 0.0, "n_estimators": 3}).locally().booster == plain


def slow_certain_size(sizes: np.ndarray, n_wanted: float) -> float:
    low, high = 0.0, float(sizes.sum())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1.0, sizes / middle).sum() > n_wanted else (low, middle)
    return high


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("subsample", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("mvs_reg", [None, 0.0, 4.0])
def test_rows_are_drawn_by_their_size(n_outputs: int, subsample: float, mvs_reg: float | None) -> None:
    gradients = gradients_of(n_outputs)
    squares = (gradients.astype(np.float64) ** 2).sum(axis=0)
    ridge = np.sqrt(squares).mean() ** 2 if mvs_reg is None else mvs_reg
    sizes = np.sqrt(squares + ridge)
    weights = weights_of(gradients, bootstrap_type="mvs", subsample=subsample, mvs_reg=mvs_reg)
    certain = slow_certain_size(sizes, subsample * N_ROWS)
    is_drawn = weights > 0
    assert is_drawn[sizes >= 1.07 * certain].all()
    np.testing.assert_allclose(weights[is_drawn], np.maximum(1.0, certain / sizes[is_drawn]), rtol=0.07)
    assert is_drawn.sum() == pytest.approx(subsample * N_ROWS, rel=0.1)
    assert (weights * sizes).sum() == pytest.approx(sizes.sum(), rel=0.05), "sums stay right on average"


def test_a_large_ridge_makes_all_rows_alike() -> None:
    weights = weights_of(gradients_of(), **MVS, mvs_reg=1e12)
    np.testing.assert_allclose(weights[weights > 0], 1 / 0.3, rtol=1e-3)


def test_rows_without_any_gradient_are_all_drawn() -> None:
    assert (weights_of(np.zeros((1, 50), np.float32), **MVS) == 1.0).all()


@pytest.mark.parametrize("options", [BAYESIAN, MVS])
def test_nothing_depends_on_threads_or_storage(options: dict[str, Any]) -> None:
    gradients = gradients_of(2)
    expected = weights_of(gradients, **options)
    np.testing.assert_array_equal(weights_of(gradients, 3, **options), expected)
    split = 1_234
    rows = np.r_[split:N_ROWS, :split]
    segments = (Segment(0, N_ROWS - split, split), Segment(N_ROWS - split, split, 0))
    stored = np.ascontiguousarray(gradients[:, rows])
    np.testing.assert_array_equal(weights_of(stored, segments=segments, **options), expected[rows])


def test_a_repeated_row_is_as_large_as_one_of_that_weight() -> None:
    gradients = gradients_of()
    counts = np.random.default_rng(0).integers(0, 4, N_ROWS)
    repeats = Repeats(counts, 3, int(counts.sum()))
    weighted = np.ascontiguousarray(gradients * counts.astype(np.float32))
    np.testing.assert_array_equal(weights_of(gradients, repeats=repeats, **MVS), weights_of(weighted, **MVS))


def test_weights_are_new_in_every_iteration() -> None:
    with Workers(1) as workers:
        drawn = [bayesian_weights(TrainParameters(**BAYESIAN), k, 100, whole_table(100), workers) for k in range(3)]
    assert len({each.tobytes() for each in drawn}) == 3
