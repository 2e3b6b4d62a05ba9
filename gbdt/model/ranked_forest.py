"""The layout of trees whose comparisons are made on ranks; see `dmlgbm.gbdt.kernels.ranked_predict`.

It is made of a forest's other arrays when the first prediction comes that is worth it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.predict import LANES, ForestArrays
from dmlgbm.gbdt.kernels.ranked_predict import (
    COUNTED_AT_ONCE,
    COUNTED_THRESHOLDS,
    MOST_PLANES,
    MOST_THRESHOLDS,
    PLANE_LEAVES,
    RANKED_COMPARISON,
    SCALE,
    RankedForest,
)

IntArray = npt.NDArray[np.int64]

# Nanoseconds, measured: what it takes to compare a value with a threshold, to search it among many, to store its rank;
# and what a tree of 63 leaves then saves a row.
_COST_OF_COUNTING, _COST_OF_SEARCH, _COST_OF_SCALE, _GAIN_OF_TREE = 0.12, 8.0, 1.0, 7.0


class RankedTrees:
    """The arrays, and how many trees pay for ranking a row."""

    def __init__(self, arrays: RankedForest) -> None:
        self.arrays = arrays
        n_thresholds = arrays.scales["n_thresholds"].astype(np.int64)
        searched = n_thresholds > COUNTED_THRESHOLDS
        cost = np.where(searched, _COST_OF_SEARCH, _COST_OF_COUNTING * n_thresholds) + _COST_OF_SCALE
        self.fewest_trees = float(cost.sum()) / _GAIN_OF_TREE

    @classmethod
    def of(cls, forest: ForestArrays) -> RankedTrees:
        """All trees that can be ranked; the others are without planes."""
        spans = _Spans.of(forest)
        tree = _tree_of_nodes(forest)
        has_categories = np.bincount(tree, forest.nodes["categorical"], minlength=len(forest.trees)) > 0
        n_leaves = np.diff(np.append(spans.of_tree, len(forest.leaf_value)))
        n_planes = -(-n_leaves // PLANE_LEAVES)
        n_planes[has_categories | (n_planes > MOST_PLANES)] = 0
        first_plane = _starts(n_planes)
        node = np.flatnonzero(n_planes[tree] > 0)
        scales, thresholds, beyond, rank_row, n_rank_rows = _scales(forest, node)
        owner, plane, kept = _cleared_planes(spans, tree, node)
        comparisons = np.zeros(len(owner), RANKED_COMPARISON)
        comparisons["first_rank"] = rank_row[owner] * LANES
        comparisons["beyond"], comparisons["kept"] = beyond[owner], kept
        plane += first_plane[tree[node[owner]]]
        order = np.lexsort((comparisons["first_rank"], plane))
        first_comparison = _starts(np.bincount(plane, minlength=int(first_plane[-1])))
        return cls(
            RankedForest(
                scales,
                thresholds,
                first_plane,
                spans.of_tree,
                first_comparison,
                comparisons[order],
                np.zeros(n_rank_rows, np.uint8),
            )
        )


def _starts(counts: npt.NDArray[np.integer]) -> IntArray:
    return np.append(0, np.cumsum(counts, dtype=np.int64))


def _tree_of_nodes(forest: ForestArrays) -> IntArray:
    """Nodes stand one tree after the other, each with its root first."""
    roots = forest.trees["root"].astype(np.int64)
    with_nodes = np.flatnonzero(roots >= 0)
    ends = np.append(roots[with_nodes][1:], len(forest.nodes)) if len(with_nodes) else np.zeros(0, np.int64)
    return np.repeat(with_nodes, ends - roots[with_nodes])


class _Spans(NamedTuple):
    """Positions of leaves: the first of each tree, below each node, and below its right child."""

    of_tree: IntArray
    of_node: IntArray
    of_right: IntArray

    @classmethod
    def of(cls, forest: ForestArrays) -> _Spans:
        left, right = forest.nodes["left"].astype(np.int64), forest.nodes["right"].astype(np.int64)
        root = forest.trees["root"].astype(np.int64)
        levels = [root[root >= 0]]
        while levels[-1].size:
            children = np.concatenate((left[levels[-1]], right[levels[-1]]))
            levels.append(children[children >= 0])
        of_node = np.zeros(len(left) + 1, np.int64)  # one more: a leaf looks the last one up

        def first_below(child: IntArray) -> IntArray:
            return np.where(child >= 0, of_node[np.maximum(child, -1)], ~child)

        for level in reversed(levels):
            of_node[level] = first_below(left[level])
        return cls(first_below(root), of_node[:-1], first_below(right))


def _scales(
    forest: ForestArrays, node: IntArray
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.float64], IntArray, IntArray, int]:
    """Scales and thresholds; of each node, what ranks must reach to go right and its row of ranks; how many rows."""
    slot, threshold = forest.nodes["slot"][node].astype(np.int64), forest.nodes["threshold"][node]
    missing_right = forest.nodes["missing_right"][node] == 1
    order = np.lexsort((threshold, slot))
    slot_in_order, threshold_in_order = slot[order], threshold[order]
    is_new_slot = np.diff(slot_in_order, prepend=-1) != 0
    is_new = is_new_slot.copy()
    is_new[1:] |= threshold_in_order[1:] != threshold_in_order[:-1]
    number = np.cumsum(is_new) - 1  # of the threshold, over all slots
    first_number = np.maximum.accumulate(np.where(is_new_slot, number, 0))
    within_slot = number - first_number
    within_scale = within_slot % MOST_THRESHOLDS
    scale_in_order = np.cumsum(is_new & (within_scale == 0)) - 1
    scale, position = np.empty(len(node), np.int64), np.empty(len(node), np.int64)
    scale[order], position[order] = scale_in_order, within_scale
    n_scales = int(scale_in_order[-1]) + 1 if len(node) else 0
    scales = np.zeros(n_scales, SCALE)
    scales["slot"][scale] = slot
    n_thresholds = np.bincount(scale_in_order[is_new], minlength=n_scales)
    counted = -(-n_thresholds // COUNTED_AT_ONCE) * COUNTED_AT_ONCE
    first_threshold = _starts(np.where(n_thresholds <= COUNTED_THRESHOLDS, counted, MOST_THRESHOLDS))
    scales["n_thresholds"], scales["first_threshold"] = n_thresholds, first_threshold[:-1]
    thresholds = np.full(first_threshold[-1], np.inf)
    thresholds[first_threshold[scale] + position] = threshold
    has_row = np.zeros((n_scales, 2), bool)
    has_row[scale, missing_right.astype(np.int64)] = True
    rows = np.where(has_row, np.cumsum(has_row).reshape(has_row.shape) - 1, -1)
    scales["missing_left"], scales["missing_right"] = rows[:, 0], rows[:, 1]
    beyond = position - (MOST_THRESHOLDS // 2)
    return scales, thresholds, beyond, rows[scale, missing_right.astype(np.int64)], int(has_row.sum())


def _cleared_planes(spans: _Spans, tree: IntArray, node: IntArray) -> tuple[IntArray, IntArray, npt.NDArray[np.uint8]]:
    """For every node and every plane with leaves below its left child: position in `node`, plane, bits that stay."""
    first = spans.of_node[node] - spans.of_tree[tree[node]]
    beyond = spans.of_right[node] - spans.of_tree[tree[node]]
    n_touched = (beyond - 1) // PLANE_LEAVES - first // PLANE_LEAVES + 1
    owner = np.repeat(np.arange(len(node)), n_touched)
    plane = first[owner] // PLANE_LEAVES + np.arange(len(owner)) - np.repeat(_starts(n_touched)[:-1], n_touched)
    low = np.maximum(first[owner] - PLANE_LEAVES * plane, 0)
    high = np.minimum(beyond[owner] - PLANE_LEAVES * plane, PLANE_LEAVES)
    return owner, plane, (255 - ((1 << high) - (1 << low))).astype(np.uint8)
