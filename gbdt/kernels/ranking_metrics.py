"""NDCG, average precision and reciprocal ranks of each query.

The one idea: all look only at the first few positions of a query, so its best rows are selected with a small heap
instead of sorting all of them. Rows with equal scores rank in the order in which they came.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Fixed-point sums of the weights of a query stay below 2^62.
_WEIGHT_SUM_BITS = 62


@inlined
def _ranks_after(score: FloatArray, row: int, other: int) -> bool:
    return score[row] < score[other] or (score[row] == score[other] and row > other)


@inlined
def _sift_down(score: FloatArray, heap: IntArray, parent: int, size: int) -> None:
    """Restore the heap, worst row on top, after its entry at `parent` was replaced."""
    row = heap[parent]
    while True:
        child = 2 * parent + 1
        if child + 1 < size and _ranks_after(score, heap[child + 1], heap[child]):
            child += 1
        if child >= size or not _ranks_after(score, heap[child], row):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = row


@kernel
def _select_best_rows(score: FloatArray, start: int, stop: int, best: IntArray) -> int:
    """Write the best rows of start..stop into `best`, best first; returns how many there are."""
    size = min(best.size, stop - start)
    root = np.int64(0)
    for position in range(size):
        best[position] = start + position
    for parent in range(size // 2 - 1, -1, -1):
        _sift_down(score, best, parent, size)
    for row in range(start + size, stop):
        if score[row] > score[best[root]]:
            best[root] = row
            _sift_down(score, best, root, size)
    for last in range(size - 1, 0, -1):
        worst = best[root]
        best[root] = best[last]
        best[last] = worst
        _sift_down(score, best, root, last)
    return size


@kernel
def ndcg_of_queries(
    label: IntArray,
    score: FloatArray,
    group_starts: IntArray,
    gain_of_label: FloatArray,
    discount: FloatArray,
    ndcg: FloatArray,
) -> None:
    """Write each query's NDCG over the first `discount.size` positions; a query without any gain counts as 1."""
    best = np.empty(discount.size, np.int64)
    n_rows_of_label = np.empty(gain_of_label.size, np.int64)
    for query in range(ndcg.size):
        start = group_starts[query]
        stop = group_starts[query + 1]
        size = _select_best_rows(score, start, stop, best)
        reached = 0.0
        for position in range(size):
            reached += gain_of_label[label[best[position]]] * discount[position]
        for value in range(n_rows_of_label.size):
            n_rows_of_label[value] = 0
        for row in range(start, stop):
            n_rows_of_label[label[row]] += 1
        ideal = 0.0
        highest = gain_of_label.size - 1
        for position in range(size):
            while n_rows_of_label[highest] == 0:
                highest -= 1
            n_rows_of_label[highest] -= 1
            ideal += gain_of_label[highest] * discount[position]
        ndcg[query] = reached / ideal if ideal > 0.0 else 1.0


@kernel
def average_precision_of_queries(
    label: IntArray, score: FloatArray, group_starts: IntArray, n_positions: int, precision: FloatArray
) -> None:
    """Write each query's average precision over the first positions; a query without a relevant row counts as 1."""
    best = np.empty(n_positions, np.int64)
    for query in range(precision.size):
        start = group_starts[query]
        stop = group_starts[query + 1]
        size = _select_best_rows(score, start, stop, best)
        n_relevant = 0
        for row in range(start, stop):
            n_relevant += label[row] > 0
        n_hits = 0
        total = 0.0
        for position in range(size):
            if label[best[position]] > 0:
                n_hits += 1
                total += n_hits / (position + 1)
        precision[query] = total / min(n_relevant, size) if n_relevant > 0 else 1.0


@kernel
def reciprocal_rank_of_queries(
    label: IntArray, score: FloatArray, group_starts: IntArray, n_positions: int, reciprocal: FloatArray
) -> None:
    """Write 1 / position of each query's first relevant row; 0 if there is none among the first positions."""
    best = np.empty(n_positions, np.int64)
    for query in range(reciprocal.size):
        size = _select_best_rows(score, group_starts[query], group_starts[query + 1], best)
        reciprocal[query] = 0.0
        for position in range(size):
            if label[best[position]] > 0:
                reciprocal[query] = 1.0 / (position + 1)
                break


@kernel
def expected_reciprocal_rank_of_queries(
    label: IntArray,
    score: FloatArray,
    group_starts: IntArray,
    stops_at_label: FloatArray,
    n_positions: int,
    reciprocal: FloatArray,
) -> None:
    """Write each query's expected 1 / position at which a reader stops, who reads on past a row by its label."""
    best = np.empty(n_positions, np.int64)
    for query in range(reciprocal.size):
        size = _select_best_rows(score, group_starts[query], group_starts[query + 1], best)
        reads_on = 1.0
        expected = 0.0
        for position in range(size):
            stops = stops_at_label[label[best[position]]]
            expected += reads_on * stops / (position + 1)
            reads_on *= 1.0 - stops
        reciprocal[query] = expected


@kernel
def mean_weight_of_queries(weight: FloatArray, group_starts: IntArray, mean_weight: FloatArray) -> None:
    """Write each query's mean row weight, summed in fixed point so that the order of its rows does not matter."""
    for query in range(mean_weight.size):
        start = group_starts[query]
        stop = group_starts[query + 1]
        largest = 0.0
        for row in range(start, stop):
            largest = max(largest, weight[row])
        if largest == 0.0:
            mean_weight[query] = 0.0
            continue
        _, exponent = math.frexp(largest)
        _, size_bits = math.frexp(float(stop - start))
        shift = _WEIGHT_SUM_BITS - size_bits - exponent
        total = 0
        for row in range(start, stop):
            total += np.int64(np.rint(math.ldexp(weight[row], shift)))
        mean_weight[query] = math.ldexp(total / (stop - start), -shift)
