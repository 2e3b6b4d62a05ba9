"""The rows that early stopping sets aside when the user gives no evaluation set.

Which rows these are is a pure function of the seed and of row (or query) numbers, and exact in number: each class
gives its share, and a query stays whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.system.counter_random import GOLDEN, mix

IntArray = npt.NDArray[np.int64]

# The row samples of trees are numbered from 0, so the hold-out shares its random numbers with none of them.
_BEFORE_ALL_TREES = -1


class Split(NamedTuple):
    """The rows to learn from and the rows to watch, both ascending."""

    training: IntArray
    validation: IntArray


def split_rows(n_rows: int, fraction: float, seed: int) -> Split:
    """A random share of the rows, rounded up, for validation."""
    _require_two(n_rows, "row")
    n_validation = min(math.ceil(fraction * n_rows), n_rows - 1)
    return _split(n_rows, _shuffled(n_rows, seed)[:n_validation])


def split_classes(class_numbers: npt.NDArray[np.float64], fraction: float, seed: int) -> Split:
    """The same share of every class, to the nearest row; a class keeps at least one row to learn from."""
    n_rows = len(class_numbers)
    _require_two(n_rows, "row")
    shuffled = _shuffled(n_rows, seed)
    by_class = shuffled[np.argsort(class_numbers[shuffled], kind="stable")]
    counts = np.bincount(class_numbers.astype(np.intp))
    ends = np.cumsum(counts)
    taken = [
        by_class[end - count : end - count + min(round(fraction * count), count - 1)]
        for end, count in zip(ends.tolist(), counts.tolist(), strict=True)
        if count
    ]
    validation = np.concatenate(taken)
    if not len(validation):
        # Every class is too small for its share to be a row.
        return split_rows(n_rows, fraction, seed)
    return _split(n_rows, validation)


def split_groups(group_starts: IntArray, fraction: float, seed: int) -> Split:
    """A random share of the queries, rounded up, for validation."""
    n_groups = len(group_starts) - 1
    _require_two(n_groups, "query")
    n_validation = min(math.ceil(fraction * n_groups), n_groups - 1)
    in_validation = np.zeros(n_groups, np.bool_)
    in_validation[_shuffled(n_groups, seed)[:n_validation]] = True
    of_row = np.repeat(in_validation, np.diff(group_starts))
    return Split(np.flatnonzero(~of_row), np.flatnonzero(of_row))


def _shuffled(n: int, seed: int) -> IntArray:
    """0..n in an order drawn by hashing each number with the seed."""
    key = random_key(seed, Purpose.ROW_SAMPLE, _BEFORE_ALL_TREES)
    return np.argsort(mix(key + np.arange(n, dtype=np.uint64) * GOLDEN), kind="stable")


def _split(n: int, validation: IntArray) -> Split:
    in_validation = np.zeros(n, np.bool_)
    in_validation[validation] = True
    return Split(np.flatnonzero(~in_validation), np.flatnonzero(in_validation))


def _require_two(n: int, unit: str) -> None:
    if n < 2:
        raise ValueError(
            f"early_stopping=True cannot set a {unit} aside, because X has {n} {unit}: pass an eval_set instead."
        )
