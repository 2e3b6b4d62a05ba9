"""Kernels put items in the order of (key, item), all of them or only those at both ends."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgbm.gbdt.kernels.sorting import order_by_key, order_ends_by_key


def shuffled_items(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys with ties, some of their items in any order, and the same items sorted."""
    keys = random.integers(-n, n + 1, 2 * n + 1) / 2.0
    items = random.permutation(len(keys))[:n].astype(np.int64)
    return keys, items, items[np.lexsort((items, keys[items]))]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 257])
def test_all_items_are_sorted(n: int) -> None:
    keys, items, expected = shuffled_items(np.random.default_rng(n), n)
    order_by_key(keys, items, n)
    assert items.tolist() == expected.tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 11, 257])
@pytest.mark.parametrize("n_ends", [1, 2, 5, 24, 300])
def test_both_ends_are_those_of_the_sorted_items(n: int, n_ends: int) -> None:
    keys, items, expected = shuffled_items(np.random.default_rng(n), n)
    order_ends_by_key(keys, items, n, n_ends)
    n_ends = min(n_ends, n)
    assert items[:n_ends].tolist() == expected[:n_ends].tolist()
    assert items[n - n_ends :].tolist() == expected[n - n_ends :].tolist()
    assert sorted(items.tolist()) == sorted(expected.tolist())


@pytest.mark.parametrize("descending", [False, True])
def test_items_beyond_the_given_number_stay(descending: bool) -> None:
    keys = np.arange(20.0) * (-1 if descending else 1)
    items = np.arange(20)
    order_ends_by_key(keys, items, 15, 4)
    assert items[15:].tolist() == [15, 16, 17, 18, 19]
