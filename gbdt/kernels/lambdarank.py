"""Gradients of pairs of rows, LambdaRank's and RankNet's, one query at a time.

The one idea: rows of a query are brought into the order of their scores first; then the row at each of the first
positions meets all rows behind it. Sums run in that order, whatever thread the query falls to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import exp, log
from dmlgbm.gbdt.kernels.sorting import order_by_key

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SingleArray = npt.NDArray[np.float32]

_LN2 = 0.6931471805599453
# LightGBM's regularisation of a pair's weight by the distance of its scores.
_SMALLEST_DISTANCE = 0.01

# Rows of the scratch array of one query, in the order of positions.
_SCORE, _GAIN, _LAMBDA, _HESSIAN, _PAIR_LAMBDA, _PAIR_HESSIAN = range(6)
_N_SCRATCH = 6


class Queries(NamedTuple):
    """The rows of all queries, and what their positions are worth."""

    gain: FloatArray  # [row]
    weight: FloatArray  # [row], or empty: every row counts one
    group_starts: IntArray  # [query + 1]
    inverse_ideal: FloatArray  # [query]: one over its best possible discounted gain, or 0
    discount: FloatArray  # [position]


@kernel
def inverse_ideal_gains(
    label: IntArray,
    group_starts: IntArray,
    gain_of_label: FloatArray,
    discount: FloatArray,
    n_positions: int,
    inverse_ideal: FloatArray,
) -> None:
    """Write one over each query's best possible discounted gain of its first positions; 0 if there is none."""
    n_rows_of_label = np.empty(gain_of_label.size, np.int64)
    for query in range(inverse_ideal.size):
        start, stop = group_starts[query], group_starts[query + 1]
        for value in range(gain_of_label.size):
            n_rows_of_label[value] = 0
        for row in range(start, stop):
            n_rows_of_label[label[row]] += 1
        ideal = 0.0
        highest = gain_of_label.size - 1
        for position in range(min(n_positions, stop - start)):
            while n_rows_of_label[highest] == 0:
                highest -= 1
            n_rows_of_label[highest] -= 1
            ideal += gain_of_label[highest] * discount[position]
        inverse_ideal[query] = 1.0 / ideal if ideal > 0.0 else 0.0


@inlined
def _settle_position(position: int, pair_lambda: FloatArray, pair_hessian: FloatArray, scratch: FloatArray) -> float:
    """Give one position its part in its pairs; returns the sum of their lambdas, each counted twice."""
    own_lambda, own_hessian, total = 0.0, 0.0, 0.0
    for other in range(pair_lambda.size):
        own_lambda += pair_lambda[other]
        own_hessian += pair_hessian[other]
        total += 2.0 * abs(pair_lambda[other])
    scratch[_LAMBDA, position] -= own_lambda
    scratch[_HESSIAN, position] += own_hessian
    return total


@kernel
def _add_pairs_of_position(
    position: int, size: int, inverse_ideal: float, by_distance: bool, discount: FloatArray, scratch: FloatArray
) -> float:
    """Add the pairs of one position with all positions behind it; returns the sum of their lambdas, each counted twice.

    A pair of equal gains has a gap of zero and adds nothing, which saves a branch.
    """
    own_score, own_gain, own_discount = scratch[_SCORE, position], scratch[_GAIN, position], discount[position]
    # Slices count from zero: the compiler makes vector code only of loops that cannot meet a negative index.
    behind = slice(position + 1, size)
    score, gain, discounts = scratch[_SCORE, behind], scratch[_GAIN, behind], discount[behind]
    lambdas, hessians = scratch[_LAMBDA, behind], scratch[_HESSIAN, behind]
    pair_lambda, pair_hessian = scratch[_PAIR_LAMBDA, behind], scratch[_PAIR_HESSIAN, behind]
    distance_factor = 1.0 if by_distance else 0.0
    distance_offset = _SMALLEST_DISTANCE if by_distance else 1.0
    for other in range(score.size):
        gap = own_gain - gain[other]
        distance = own_score - score[other]
        change = abs(gap) * (own_discount - discounts[other]) * inverse_ideal
        change /= distance_offset + distance_factor * distance
        wrong = 1.0 / (1.0 + exp(distance if gap > 0.0 else -distance))
        pair_lambda[other] = wrong * change if gap > 0.0 else -wrong * change
        pair_hessian[other] = wrong * (1.0 - wrong) * change
        lambdas[other] += pair_lambda[other]
        hessians[other] += pair_hessian[other]
    return _settle_position(position, pair_lambda, pair_hessian, scratch)


@kernel
def _add_even_pairs_of_position(position: int, size: int, scratch: FloatArray) -> float:
    """The same for pairs that all weigh one."""
    own_score, own_gain = scratch[_SCORE, position], scratch[_GAIN, position]
    behind = slice(position + 1, size)
    score, gain = scratch[_SCORE, behind], scratch[_GAIN, behind]
    lambdas, hessians = scratch[_LAMBDA, behind], scratch[_HESSIAN, behind]
    pair_lambda, pair_hessian = scratch[_PAIR_LAMBDA, behind], scratch[_PAIR_HESSIAN, behind]
    for other in range(score.size):
        gap = own_gain - gain[other]
        distance = own_score - score[other]
        weight = 1.0 if gap != 0.0 else 0.0
        wrong = 1.0 / (1.0 + exp(distance if gap > 0.0 else -distance))
        pair_lambda[other] = wrong * weight if gap > 0.0 else -wrong * weight
        pair_hessian[other] = wrong * (1.0 - wrong) * weight
        lambdas[other] += pair_lambda[other]
        hessians[other] += pair_hessian[other]
    return _settle_position(position, pair_lambda, pair_hessian, scratch)


@kernel
def pair_gradients(
    queries: Queries,
    n_positions: int,
    normalised: bool,
    all_alike: bool,
    score: FloatArray,
    first_query: int,
    stop_query: int,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Write the gradients and hessians of the rows of some queries; pairs count `all_alike`, or by what NDCG gains."""
    gain, weight, discount = queries.gain, queries.weight, queries.discount
    group_starts, inverse_ideal = queries.group_starts, queries.inverse_ideal
    largest = 0
    for query in range(first_query, stop_query):
        largest = max(largest, group_starts[query + 1] - group_starts[query])
    scratch = np.empty((_N_SCRATCH, largest))
    descending = np.empty(largest)
    order = np.empty(largest, np.int64)
    for query in range(first_query, stop_query):
        start = group_starts[query]
        size = group_starts[query + 1] - start
        for position in range(size):
            descending[position] = -score[start + position]
            order[position] = position
        order_by_key(descending, order, size)
        for position in range(size):
            scratch[_SCORE, position] = score[start + order[position]]
            scratch[_GAIN, position] = gain[start + order[position]]
            scratch[_LAMBDA, position] = 0.0
            scratch[_HESSIAN, position] = 0.0
        total = 0.0
        if inverse_ideal[query] > 0.0:
            by_distance = normalised and scratch[_SCORE, 0] != scratch[_SCORE, size - 1]
            for position in range(min(n_positions, size - 1)):
                if all_alike:
                    total += _add_even_pairs_of_position(position, size, scratch)
                else:
                    total += _add_pairs_of_position(
                        position, size, inverse_ideal[query], by_distance, discount, scratch
                    )
        factor = log(1.0 + total) / (_LN2 * total) if normalised and total > 0.0 else 1.0
        for position in range(size):
            row = start + order[position]
            row_factor = factor * weight[row] if weight.size > 0 else factor
            gradients[row] = np.float32(scratch[_LAMBDA, position] * row_factor)
            hessians[row] = np.float32(scratch[_HESSIAN, position] * row_factor)
