"""A search starts from running sums, and looks only at thresholds with enough rows and hessian on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgbm.gbdt.kernels.layout import PACKING, SPLIT_RULES
from dmlgbm.gbdt.kernels.split_search import add_up
from dmlgbm.gbdt.kernels.threshold_search import admissible_range

GRADIENT_SHIFT, HESSIAN_SHIFT = 39, 16


def packing_of_words() -> np.ndarray:
    packing = np.zeros(1, PACKING)
    packing["gradient_shift"], packing["hessian_shift"] = GRADIENT_SHIFT, HESSIAN_SHIFT
    packing["hessian_mask"], packing["count_mask"] = (1 << 23) - 1, (1 << 16) - 1
    return packing


def rules_of_sides(min_rows: int, min_hessian: int) -> np.ndarray:
    rules = np.zeros(1, SPLIT_RULES)
    rules["min_rows"], rules["min_hessian"] = min_rows, min_hessian
    return rules


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 255, 1000])
def test_running_sums_are_those_added_one_by_one(n: int) -> None:
    random = np.random.default_rng(n)
    parts, before = random.integers(-(2**62), 2**62, n), int(random.integers(-(2**40), 2**40))
    sums = np.full(n + 3, 77)
    with np.errstate(over="ignore"):
        expected = np.cumsum(np.append(np.int64(before), parts))
    assert add_up(parts, before, sums) == expected[-1]
    assert sums[:n].tolist() == expected[1:].tolist()
    assert sums[n:].tolist() == [77] * 3


@pytest.mark.parametrize("n", [0, 1, 2, 3, 31, 32, 33, 34, 63, 64, 65, 255, 256, 999])
@pytest.mark.parametrize("rows_per_bin", [1, 4, 60])
def test_the_admissible_bins_are_those_with_enough_on_both_sides(n: int, rows_per_bin: int) -> None:
    random = np.random.default_rng([n, rows_per_bin])
    for min_rows, min_hessian in ((0, 0), (1, 0), (20, 0), (20, 500), (3, 900), (n * rows_per_bin, 0)):
        counts = random.integers(0, rows_per_bin + 1, n + 2)
        hessians = counts * random.integers(0, 30, n + 2)
        words = (random.integers(-500, 500, n + 2) << GRADIENT_SHIFT) + (hessians << HESSIAN_SHIFT) + counts
        # The last bin holds missing values, which stay right or, set aside, go left.
        total = int(words.sum())
        for aside_bins in (0, 1):
            aside = int(words[-1]) * aside_bins
            left_rows = np.cumsum(counts)[:n] + counts[-1] * aside_bins
            left_hessians = np.cumsum(hessians)[:n] + hessians[-1] * aside_bins
            enough_left = (left_rows >= min_rows) & (left_hessians >= min_hessian)
            enough_right = (counts.sum() - left_rows >= min_rows) & (hessians.sum() - left_hessians >= min_hessian)
            lowest, beyond = admissible_range(
                rules_of_sides(min_rows, min_hessian), packing_of_words(), total, aside, np.cumsum(words)[:n]
            )
            expected = np.flatnonzero(enough_left & enough_right)
            assert list(range(lowest, beyond)) == expected.tolist()
