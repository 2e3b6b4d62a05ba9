"""Gradient-based one-side sampling: all rows of large gradients, and some others that count for those left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.data.exchange import ALONE
from dmlgbm.gbdt.data.row_numbers import Segment, whole_table
from dmlgbm.gbdt.data.row_weights import Repeats
from dmlgbm.gbdt.growth.gradient_sampling import gradient_factors, samples_by_gradient
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers
from tests.gbdt.ranks.test_rank_equality import make_fit

N_ROWS = 4_001


def factors_of(
    gradients: np.ndarray, hessians: np.ndarray, n_threads: int = 1, segments: Any = None, **options: Any
) -> np.ndarray:
    repeats = options.pop("repeats", None)
    parameters = TrainParameters(data_sample_strategy="goss", **options)
    segments = segments or whole_table(gradients.shape[1])
    with Workers(n_threads) as workers:
        return gradient_factors(
            parameters, 7, gradients, hessians, segments, gradients.shape[1], repeats, workers, ALONE
        )


def derivatives(n_outputs: int = 1, n_rows: int = N_ROWS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n_outputs)
    gradients = random.normal(size=(n_outputs, n_rows)) * np.exp(random.normal(size=n_rows) * 3)
    return gradients.astype(np.float32), random.random((n_outputs, n_rows)).astype(np.float32)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("top_rate", "other_rate"), [(0.2, 0.1), (0.05, 0.6), (0.9, 0.1), (1e-9, 1e-9)])
def test_largest_rows_are_taken_and_others_stand_for_the_rest(
    n_outputs: int, top_rate: float, other_rate: float
) -> None:
    gradients, hessians = derivatives(n_outputs)
    factors = factors_of(gradients, hessians, top_rate=top_rate, other_rate=other_rate)
    products = np.abs(gradients.astype(np.float64) * hessians).sum(axis=0)
    n_large = max(1, int(N_ROWS * top_rate))
    order = np.argsort(-products)
    large, others = order[:n_large], order[n_large:]
    assert products[large[-1]] > products[others[0]] * (1 + 1e-8), "the leading bits tell them apart"
    assert (factors[large] == 1.0).all()
    drawn = factors[others]
    n_drawn = max(1, int(N_ROWS * other_rate))
    factor = np.float32(max(1.0, len(others) / n_drawn))
    assert set(np.unique(drawn)) <= {np.float32(0.0), factor}
    assert abs(np.count_nonzero(drawn) - n_drawn) <= 4 * np.sqrt(n_drawn) + 1


def test_rows_that_are_all_alike_are_taken_at_random() -> None:
    gradients, hessians = np.ones((1, N_ROWS), np.float32), np.ones((1, N_ROWS), np.float32)
    factors = factors_of(gradients, hessians)
    whole = np.flatnonzero(factors == 1.0)
    assert len(whole) == int(N_ROWS * 0.2)
    assert abs(whole.mean() / N_ROWS - 0.5) < 0.05, "not the first rows"
    assert abs(factors.sum() / N_ROWS - 1.0) < 0.1


@pytest.mark.parametrize("n_threads", [2, 3])
def test_nothing_depends_on_threads(n_threads: int) -> None:
    gradients, hessians = derivatives(2, 300_001)
    gradients = np.round(gradients)  # many ties
    np.testing.assert_array_equal(factors_of(gradients, hessians), factors_of(gradients, hessians, n_threads))


def test_nothing_depends_on_where_rows_are_stored() -> None:
    gradients, hessians = derivatives()
    gradients = np.round(gradients)
    expected = factors_of(gradients, hessians)
    split = 1_234
    rows = np.r_[split:N_ROWS, :split]
    segments = (Segment(0, N_ROWS - split, split), Segment(N_ROWS - split, split, 0))
    found = factors_of(
        np.ascontiguousarray(gradients[:, rows]), np.ascontiguousarray(hessians[:, rows]), segments=segments
    )
    np.testing.assert_array_equal(found, expected[rows])


def test_a_repeated_row_is_as_large_as_one_of_that_weight() -> None:
    gradients, hessians = derivatives()
    counts = np.random.default_rng(0).integers(0, 4, N_ROWS)
    weighted = [np.ascontiguousarray(values * counts.astype(np.float32)) for values in (gradients, hessians)]
    repeats = Repeats(counts, 3, int(counts.sum()))
    np.testing.assert_array_equal(factors_of(gradients, hessians, repeats=repeats), factors_of(*weighted))


@pytest.mark.parametrize(("options", "n_first"), [({}, 10), ({"learning_rate": 0.3}, 3), ({"learning_rate": 3.0}, 0)])
def test_first_iterations_see_all_rows(options: dict[str, float], n_first: int) -> None:
    parameters = TrainParameters(data_sample_strategy="goss", **options)
    sampled = [samples_by_gradient(parameters, iteration) for iteration in range(12)]
    assert sampled == [False] * n_first + [True] * (12 - n_first)


@pytest.mark.parametrize("objective", ["binary", "regression_l1", "multiclass"])
def test_trees_hold_the_rows_that_were_drawn(objective: str) -> None:
    options = {"data_sample_strategy": "goss", "learning_rate": 0.5, "n_estimators": 4}
    model = make_fit(objective, options).locally().booster
    n_rows = [int(tree.leaf_count.sum()) for tree in model.trees]
    n_whole = 2 * model.n_outputs
    assert n_rows[:n_whole] == [2_003] * n_whole
    assert all(0.25 * 2_003 < n < 0.35 * 2_003 for n in n_rows[n_whole:])


def test_a_sample_of_all_rows_gives_the_model_of_all_rows() -> None:
    options = {"n_estimators": 4, "learning_rate": 0.9}
    everything = {**options, "data_sample_strategy": "goss", "top_rate": 1 - 1e-9, "other_rate": 1e-9}
    assert make_fit("binary", everything).locally().booster == make_fit("binary", options).locally().booster
