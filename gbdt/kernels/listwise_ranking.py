"""XE-NDCG's gradients, one query at a time: the cross entropy of the scores' softmax and shares drawn from the grades.

Shares are drawn anew in each iteration. A draw is a hash of its key and of the row's number, so no thread, rank or
earlier iteration has a say in it. The derivatives are those of LightGBM, which adds terms of second and third order to
the slope of the cross entropy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import exp, float_of_count, hash_counter

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SingleArray = npt.NDArray[np.float32]

# 52 random bits become a number from 0 to below 1.
_BITS_TO_DROP = np.uint64(12)
_LAST_BIT = 2.0**-52
# Keeps quotients finite where one row has all of the softmax.
_SMALLEST_REST = 2.0**-53

# Rows of the scratch array of one query.
_SHARE, _TERM, _GRADIENT = range(3)
_N_LIST_SCRATCH = 3


class Lists(NamedTuple):
    """The rows of all queries, and the numbers by which their draws are known."""

    power: FloatArray  # [row]: two to the power of its grade
    weight: FloatArray  # [row], or empty: every row counts one
    group_starts: IntArray  # [query + 1]
    first_numbers: IntArray  # [query]: the global number of its first row


@inlined
def _drawn(key: np.uint64, number: int) -> float:
    return float_of_count(np.int64(hash_counter(key, np.uint64(number)) >> _BITS_TO_DROP)) * _LAST_BIT


@kernel
def _write_softmax_of_query(score: FloatArray, scratch: FloatArray) -> None:
    share = scratch[_SHARE]
    highest = -np.inf
    for position in range(score.size):
        highest = max(highest, score[position])
    total = 0.0
    for position in range(score.size):
        share[position] = exp(score[position] - highest)
        total += share[position]
    for position in range(score.size):
        share[position] /= total


@kernel
def _add_next_order(n_rows: int, total: float, scratch: FloatArray) -> float:
    """Add the terms of the next order to the gradients; returns the sum that the order after it needs."""
    share, term, gradient = scratch[_SHARE], scratch[_TERM], scratch[_GRADIENT]
    next_total = 0.0
    for position in range(n_rows):
        value = share[position] * (total - term[position])
        gradient[position] += value
        term[position] = value / max(1.0 - share[position], _SMALLEST_REST)
        next_total += term[position]
    return next_total


@kernel
def cross_entropy_gradients(
    lists: Lists,
    key: np.uint64,
    score: FloatArray,
    first_query: int,
    stop_query: int,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Write the gradients and hessians of the rows of some queries; a row alone has none."""
    power, weight, group_starts = lists.power, lists.weight, lists.group_starts
    largest = 0
    for query in range(first_query, stop_query):
        largest = max(largest, group_starts[query + 1] - group_starts[query])
    scratch = np.empty((_N_LIST_SCRATCH, largest))
    share, term, gradient = scratch[_SHARE], scratch[_TERM], scratch[_GRADIENT]
    for query in range(first_query, stop_query):
        start, stop = group_starts[query], group_starts[query + 1]
        size = stop - start
        if size == 1:
            gradients[start] = 0.0
            hessians[start] = 0.0
            continue
        _write_softmax_of_query(score[start:stop], scratch)
        total = 0.0
        for position in range(size):
            term[position] = power[start + position] - _drawn(key, lists.first_numbers[query] + position)
            total += term[position]
        # A draw is below 1 and a power at least 1: the total is positive.
        next_total = 0.0
        for position in range(size):
            gradient[position] = share[position] - term[position] / total
            term[position] = gradient[position] / max(1.0 - share[position], _SMALLEST_REST)
            next_total += term[position]
        next_total = _add_next_order(size, next_total, scratch)
        _add_next_order(size, next_total, scratch)
        for position in range(size):
            row = start + position
            row_weight = weight[row] if weight.size > 0 else 1.0
            gradients[row] = np.float32(row_weight * gradient[position])
            hessians[row] = np.float32(row_weight * share[position] * (1.0 - share[position]))
