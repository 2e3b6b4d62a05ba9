"""Percentiles over several processes are those of all values together, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.gbdt.objectives.averages import percentile
from dmlgbm.gbdt.objectives.shared_percentiles import percentiles_of_groups
from dmlgbm.gbdt.ranks.exchange import RankExchange


def over_ranks(values: Any, weight: Any, group: Any, n_groups: int, level: float, n_ranks: int) -> np.ndarray:
    def work(communicator: Communicator) -> np.ndarray:
        own = slice(communicator.rank, None, n_ranks)
        own_weight = None if weight is None else weight[own]
        return percentiles_of_groups(values[own], own_weight, group[own], n_groups, level, RankExchange(communicator))

    results = run_threads(work, n_ranks)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    return results[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("level", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_percentiles_of_leaves(level: float, weighted: bool) -> None:
    random = np.random.default_rng(0)
    values = np.round(random.normal(size=1_000) * 10.0 ** random.integers(-3, 4, 1_000), 2)
    values[::7] = -0.0
    group = random.integers(0, 9, 1_000)
    weight = random.random(1_000) * random.integers(0, 2, 1_000) if weighted else None
    found = over_ranks(values, weight, group, 9, level, 3)
    for leaf in range(9):
        own = group == leaf
        expected = percentile(values[own], None if weight is None else weight[own], level)
        assert found[leaf].tobytes() == np.float64(expected).tobytes()


@given(
    numbers=st.lists(st.floats(-1e300, 1e300, allow_subnormal=True), min_size=1, max_size=30),
    level=st.floats(0.01, 0.99),
    n_ranks=st.integers(1, 3),
)
def test_percentile_of_any_numbers(numbers: list[float], level: float, n_ranks: int) -> None:
    values = np.array(numbers)
    found = over_ranks(values, None, np.zeros(len(values), np.int64), 1, level, n_ranks)
    assert found.tobytes() == np.array([percentile(values, None, level)]).tobytes()


def test_groups_that_weigh_nothing_get_zero() -> None:
    values, weight = np.array([3.0, 4.0, 5.0]), np.array([0.0, 0.0, 2.0])
    found = over_ranks(values, weight, np.array([0, 0, 1]), 3, 0.5, 2)
    np.testing.assert_array_equal(found, [0.0, 5.0, 0.0])
