"""All trees of a model in one set of arrays, and tables cut into tiles, so that kernels predict many rows at once.

The arrays are described in `dmlgbm.gbdt.kernels.predict`. The sum of a row is its base score plus the leaf values in
tree order, in float64, whatever the tile, block, thread or input type: equal rows get equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.feature_bins import MAX_CATEGORIES
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, SparseColumn, Table
from dmlgbm.gbdt.kernels.one_row import WalkedTrees
from dmlgbm.gbdt.kernels.predict import (
    COMPARISON,
    LANES,
    LOOKUP,
    SEGMENT,
    SEGMENT_LEAVES,
    TREE,
    WALKED_NODE,
    ForestArrays,
    Tiles,
    add_scores,
    fill_masks,
    write_leaves,
)
from dmlgbm.gbdt.kernels.ranked_predict import RankedForest, add_ranked_scores
from dmlgbm.gbdt.kernels.tiles import fill_tiles
from dmlgbm.gbdt.model.ranked_forest import RankedTrees
from dmlgbm.gbdt.model.row_major import RowMajor
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]

# Beyond this, walking a tree takes less time than comparing at all of its nodes.
_MOST_SEGMENTS = 6
# Masks of categorical features that a tree may look up before walking it is faster (they fill a level 1 cache).
_MOST_MASKS_PER_TREE = 4096
# Values gathered at a time (they stay in the level 2 cache), within bounds that keep the cost a column low.
_VALUES_PER_BLOCK = 1 << 16
_FEWEST_ROWS_PER_BLOCK, _MOST_ROWS_PER_BLOCK = 4 * LANES, 32 * LANES
_CACHE_LINE = 64
# Rows after which the layout for ranks has saved the time to make it (2.6 ms for 50 trees of 63 leaves).
_ROWS_WORTH_RANKS = 8_000
# Rows times trees below which another thread does not pay.
_VISITS_WORTH_A_THREAD = 50_000
# Trees that are looked at by ranks in the time of one.
_RANKED_IN_TIME_OF_ONE = 3


class Forest:
    """Trees ready to predict; tree t adds to output t % n_outputs."""

    def __init__(
        self,
        arrays: ForestArrays,
        n_outputs: int,
        n_features: int,
        used_features: npt.NDArray[np.int64],
        category_counts: Mapping[int, int],
        walked: bool,
    ) -> None:
        self._arrays = arrays
        self._n_features = n_features
        self._walked = walked
        self._n_rows_so_far = 0
        self._used_features = [int(feature) for feature in used_features]
        self._category_counts = category_counts
        self.n_outputs = n_outputs
        self.n_trees = len(arrays.trees)

    @classmethod
    def from_trees(
        cls,
        trees: Sequence[Tree],
        n_outputs: int,
        n_features: int,
        categorical_sizes: dict[int, int],
        *,
        walked: bool = False,
    ) -> Forest:
        """Lay out the trees; `categorical_sizes` is the number of categories of each categorical feature.

        `walked` trees are laid out in a fraction of the time, and predict to the same bits at a fraction of the speed.
        """
        feature = _joined([tree.feature for tree in trees])
        used_features, slot = np.unique(feature, return_inverse=True)
        category_counts = np.array([categorical_sizes.get(int(f), -1) for f in used_features], np.int64)
        arrays = _forest_arrays(trees, slot, category_counts, walked)
        return cls(arrays, n_outputs, n_features, used_features, dict(categorical_sizes), walked)

    def raw_scores(
        self,
        table: Table,
        base_scores: npt.NDArray[np.float64],
        *,
        first_tree: int = 0,
        n_trees: int | None = None,
        workers: Workers,
    ) -> npt.NDArray[np.float64]:
        """Base scores plus `n_trees` trees (all that follow by default), as [output, row]."""
        last_tree = self.n_trees if n_trees is None else first_tree + n_trees
        if not 0 <= first_tree <= last_tree <= self.n_trees:
            raise ValueError(
                f"first_tree={first_tree} and n_trees={n_trees} leave the {self.n_trees} trees of the model"
            )
        scores = np.repeat(base_scores.reshape(self.n_outputs, 1), table.n_rows, axis=1)
        self._add(table, scores, first_tree, last_tree, workers)
        return scores

    def add_all(self, table: Table, scores: npt.NDArray[np.float64], workers: Workers) -> None:
        """Add all trees to scores [output, row]: the bits are those of one sum over earlier trees and these."""
        self._add(table, scores, 0, self.n_trees, workers)

    def leaf_indices(self, table: Table, workers: Workers) -> npt.NDArray[np.int32]:
        """The number of the leaf that each row ends in, as [row, tree]."""
        columns = self._used_columns(table)
        leaves = np.empty((table.n_rows, self.n_trees), np.int32)

        def find_rows(start: int, stop: int) -> None:
            for first_row, last_row, tiles in self._blocks(columns, start, stop):
                write_leaves(self._arrays, tiles, first_row, last_row, leaves)

        workers.run_ranges(find_rows, table.n_rows, _rows_worth_a_thread(self.n_trees))
        return leaves

    def walked_trees(self, base_scores: npt.NDArray[np.float64], features: Sequence[int], n_trees: int) -> WalkedTrees:
        """The first trees for the prediction of single rows, whose slots are those features in this order."""
        slot_of = np.zeros(self._n_features, np.int64)
        slot_of[list(features)] = np.arange(len(features))
        nodes = self._arrays.nodes.copy()
        nodes["slot"] = slot_of[np.array(self._used_features, np.int64)][nodes["slot"]]
        roots = self._arrays.trees["root"][:n_trees].copy()
        return WalkedTrees(roots, nodes, self._arrays.words, self._arrays.leaf_value, base_scores.copy(), np.zeros(0))

    def _add(
        self, table: Table, scores: npt.NDArray[np.float64], first_tree: int, last_tree: int, workers: Workers
    ) -> None:
        columns = self._used_columns(table)
        ranked = self._ranked_if_worth_it(table.n_rows, last_tree - first_tree)

        def score_rows(start: int, stop: int) -> None:
            for first_row, last_row, tiles in self._blocks(columns, start, stop):
                if ranked is None:
                    add_scores(self._arrays, tiles, first_tree, last_tree, first_row, last_row, scores)
                else:
                    add_ranked_scores(self._arrays, ranked, tiles, first_tree, last_tree, first_row, last_row, scores)

        n_trees = last_tree - first_tree
        worth_a_thread = _rows_worth_a_thread(n_trees if ranked is None else n_trees // _RANKED_IN_TIME_OF_ONE)
        workers.run_ranges(score_rows, table.n_rows, worth_a_thread)

    @cached_property
    def _ranked(self) -> RankedTrees:
        return RankedTrees.of(self._arrays)

    def _ranked_if_worth_it(self, n_rows: int, n_trees: int) -> RankedForest | None:
        """What ranks the rows, if the trees are many enough for that, and all rows so far to lay it out."""
        self._n_rows_so_far += n_rows
        if self._walked or self._n_rows_so_far < _ROWS_WORTH_RANKS:
            return None
        return self._ranked.arrays if n_trees >= self._ranked.fewest_trees else None

    def _used_columns(self, table: Table) -> list[Column]:
        if table.n_features != self._n_features:
            raise ValueError(
                f"the table has {table.n_features} columns, but the model was fitted on {self._n_features}"
            )
        for feature in self._used_features:
            is_categorical = isinstance(table.columns[feature], CategoricalColumn)
            if is_categorical != (feature in self._category_counts):
                raise TypeError(
                    f"column {table.name_of(feature)} is {'categorical' if is_categorical else 'numeric'}, but was "
                    f"{'numeric' if is_categorical else 'categorical'} when the model was fitted: convert it"
                )
        return [table.columns[feature] for feature in self._used_features]

    def _blocks(self, columns: list[Column], start: int, stop: int) -> Iterator[tuple[int, int, Tiles]]:
        """Blocks of rows that together cover start..stop, each as tiles that are valid until the next block."""
        n_slots = len(columns)
        block_rows = min(max(_VALUES_PER_BLOCK // max(n_slots, 1), _FEWEST_ROWS_PER_BLOCK), _MOST_ROWS_PER_BLOCK)
        n_tiles = max(-(-min(block_rows, stop - start) // LANES), 1)
        tiles = _empty_tiles(n_tiles, n_slots)
        n_categories = [self._category_counts.get(feature, 0) for feature in self._used_features]
        if 0 < stop - start < LANES and n_slots > 0:
            # All columns in one step: for a single row the steps are what takes the time.
            slots = zip(columns, n_categories, strict=True)
            tiles[0, :, : stop - start] = [_slot_values(*slot, start, stop) for slot in slots]
            yield start, stop, tiles
            return
        row_major = RowMajor.of(columns)
        for first_row in range(start, stop, n_tiles * LANES):
            last_row = min(first_row + n_tiles * LANES, stop)
            if row_major is not None:
                fill_tiles(row_major.matrix, row_major.columns, first_row, last_row, tiles)
                yield first_row, last_row, tiles
                continue
            for slot, column in enumerate(columns):
                _fill_lanes(tiles[:, slot], _slot_values(column, n_categories[slot], first_row, last_row))
            yield first_row, last_row, tiles


def _rows_worth_a_thread(n_trees: int) -> int:
    return max(LANES, _VISITS_WORTH_A_THREAD // max(n_trees, 1))


def _empty_tiles(n_tiles: int, n_slots: int) -> Tiles:
    """Zeros, a valid value of every slot: kernels compute on the lanes behind the last row too."""
    n_bytes = n_tiles * n_slots * LANES * 8
    # Vector loads that straddle two cache lines would take a third more time.
    memory = np.zeros(n_bytes + _CACHE_LINE, np.uint8)
    offset = -memory.ctypes.data % _CACHE_LINE
    return memory[offset : offset + n_bytes].view(np.float64).reshape(n_tiles, n_slots, LANES)


def _slot_values(column: Column, n_categories: int, start: int, stop: int) -> npt.NDArray[np.generic]:
    """A range of a column as the kernels expect it, in any type that converts to float64."""
    if isinstance(column, CategoricalColumn):
        codes = column.codes[start:stop].astype(np.float64)
        if n_categories > MAX_CATEGORIES:
            codes[codes >= MAX_CATEGORIES] = -1.0
        return np.clip(codes, -1.0, n_categories) + 1.0
    if isinstance(column, SparseColumn):
        values = np.zeros(stop - start)
        # Bounds of another integer type would make searchsorted copy all row numbers.
        first, last = np.searchsorted(column.rows, np.array([start, stop], column.rows.dtype))
        values[column.rows[first:last] - start] = column.values[first:last]
        return values
    if column.missing is None:
        return column.values[start:stop]
    return np.where(column.missing[start:stop], np.nan, column.values[start:stop])


def _fill_lanes(lanes: npt.NDArray[np.float64], values: npt.NDArray[np.generic]) -> None:
    n_full, rest = divmod(len(values), LANES)
    if n_full:
        lanes[:n_full] = values[: n_full * LANES].reshape(n_full, LANES)
    if rest:
        lanes[n_full, :rest] = values[n_full * LANES :]


class _Shape(NamedTuple):
    """How the nodes and leaves of all trees, each numbered over the whole forest, hang together."""

    root: IntArray  # of each tree; below 0 it is leaf ~root, and so are the children
    left: IntArray
    right: IntArray
    tree: IntArray  # of each node
    first_leaf: IntArray  # of each tree, and the number of all leaves
    position: IntArray  # of each leaf, counted from left to right
    first_position: IntArray  # of the leaves below each node
    middle_position: IntArray  # of the leaves below each node's right child


def _joined(arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _starts(counts: npt.NDArray[np.integer]) -> IntArray:
    """Where each of consecutive runs begins, and the end of the last."""
    return np.append(0, np.cumsum(counts, dtype=np.int64))


def _forest_shape(trees: Sequence[Tree], walked: bool) -> _Shape:
    n_nodes = np.array([tree.n_nodes for tree in trees], np.int64)
    first_node, first_leaf = _starts(n_nodes), _starts(np.array([tree.n_leaves for tree in trees], np.int64))
    tree = np.repeat(np.arange(len(trees)), n_nodes)

    def over_forest(child: IntArray) -> IntArray:
        return np.where(child >= 0, child + first_node[tree], child - first_leaf[tree])

    left = over_forest(_joined([t.left for t in trees]).astype(np.int64))
    right = over_forest(_joined([t.right for t in trees]).astype(np.int64))
    root = np.where(n_nodes > 0, first_node[:-1], ~first_leaf[:-1])
    if walked:  # the order of leaves is of no matter, and what is below a node is not looked at
        nothing = np.zeros(0, np.int64)
        return _Shape(root, left, right, tree, first_leaf, np.arange(first_leaf[-1]), nothing, nothing)
    position, first_position, middle_position = _left_to_right(root, left, right, first_leaf)
    return _Shape(root, left, right, tree, first_leaf, position, first_position, middle_position)


def _left_to_right(
    root: IntArray, left: IntArray, right: IntArray, first_leaf: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Positions of leaves, and of the first leaf below each node and below its right child."""
    levels = [root[root >= 0]]
    while levels[-1].size:
        children = np.concatenate((left[levels[-1]], right[levels[-1]]))
        levels.append(children[children >= 0])
    # One entry more than there are nodes: a leaf, whose child number is below 0, looks up the last one.
    leaves_below = np.ones(len(left) + 1, np.int64)
    for level in reversed(levels):
        leaves_below[level] = leaves_below[np.maximum(left[level], -1)] + leaves_below[np.maximum(right[level], -1)]
    position, first_position = np.zeros(first_leaf[-1], np.int64), np.zeros(len(left), np.int64)

    def put(children: IntArray, first: IntArray) -> None:
        is_node = children >= 0
        first_position[children[is_node]] = first[is_node]
        position[~children[~is_node]] = first[~is_node]

    put(root, first_leaf[:-1])
    for level in levels:
        put(left[level], first_position[level])
        put(right[level], first_position[level] + leaves_below[np.maximum(left[level], -1)])
    return position, first_position, first_position + leaves_below[np.maximum(left, -1)]


def _forest_arrays(trees: Sequence[Tree], slot: IntArray, category_counts: IntArray, walked: bool) -> ForestArrays:
    """`category_counts` is by slot, -1 where the feature is numeric."""
    shape = _forest_shape(trees, walked)
    nodes, words = _walked_nodes(trees, shape, slot)
    if np.any((category_counts[slot] >= 0) != (nodes["categorical"] == 1)):
        raise ValueError("categorical_sizes must name exactly the features of categorical nodes")
    found = _no_segments(len(trees)) if walked else _segments(shape, nodes, words, slot, category_counts)
    forest_trees = np.zeros(len(trees), TREE)
    forest_trees["root"] = _walked_children(shape, shape.root)
    forest_trees["first_segment"], forest_trees["last_segment"] = found.first_segment[:-1], found.first_segment[1:]
    leaf_value, leaf_number = np.zeros(len(shape.position)), np.zeros(len(shape.position), np.int32)
    leaf_value[shape.position] = _joined([tree.leaf_value for tree in trees])
    leaf_number[shape.position] = _joined([np.arange(tree.n_leaves) for tree in trees])
    return ForestArrays(forest_trees, nodes, words, *found[1:], leaf_value, leaf_number)


class _Segments(NamedTuple):
    """The segments of all trees and what is compared in them."""

    first_segment: IntArray  # of each tree, and the number of all
    segments: npt.NDArray[np.void]
    comparisons: npt.NDArray[np.void]
    lookups: npt.NDArray[np.void]
    masks: npt.NDArray[np.uint64]


def _no_segments(n_trees: int) -> _Segments:
    empty = (np.zeros(0, SEGMENT), np.zeros(0, COMPARISON), np.zeros(0, LOOKUP), np.zeros(0, np.uint64))
    return _Segments(np.zeros(n_trees + 1, np.int64), *empty)


def _segments(
    shape: _Shape,
    nodes: npt.NDArray[np.void],
    words: npt.NDArray[np.uint64],
    slot: IntArray,
    category_counts: IntArray,
) -> _Segments:
    n_segments = _segments_per_tree(shape, slot, category_counts)
    first_segment = _starts(n_segments)
    segments = np.zeros(first_segment[-1], SEGMENT)
    within_tree = np.arange(len(segments)) - np.repeat(first_segment[:-1], n_segments)
    segments["first_position"] = np.repeat(shape.first_leaf[:-1], n_segments) + SEGMENT_LEAVES * within_tree
    node, segment, kept = _cleared_segments(shape, n_segments, first_segment)
    numeric = nodes["categorical"][node] == 0
    comparisons = _comparisons(segments, nodes, node[numeric], segment[numeric], kept[numeric])
    lookups, masks = _lookups(
        segments, nodes, words, category_counts, node[~numeric], segment[~numeric], kept[~numeric]
    )
    return _Segments(first_segment, segments, comparisons, lookups, masks)


def _walked_children(shape: _Shape, child: IntArray) -> IntArray:
    return np.where(child >= 0, child, ~shape.position[~np.minimum(child, -1)])


def _walked_nodes(
    trees: Sequence[Tree], shape: _Shape, slot: IntArray
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint64]]:
    """The nodes, and the bit sets of slot values (category code + 1, 0 for missing) that go left."""
    nodes = np.zeros(len(slot), WALKED_NODE)
    nodes["threshold"] = _joined([tree.threshold for tree in trees])
    nodes["slot"] = slot
    nodes["left"], nodes["right"] = _walked_children(shape, shape.left), _walked_children(shape, shape.right)
    nodes["missing_right"] = 1 - _joined([tree.missing_left for tree in trees])
    nodes["categorical"] = _joined([tree.categorical for tree in trees])
    n_categories = _joined([np.diff(tree.category_start) for tree in trees]).astype(np.int64)
    missing_left = np.flatnonzero((nodes["categorical"] == 1) & (nodes["missing_right"] == 0))
    node = np.append(np.repeat(np.arange(len(nodes)), n_categories), missing_left)
    value = np.append(_joined([tree.categories for tree in trees]).astype(np.int64) + 1, np.zeros_like(missing_left))
    n_words = np.zeros(len(nodes), np.int64)
    np.maximum.at(n_words, node, (value >> 6) + 1)
    first_word = _starts(n_words)
    nodes["first_word"], nodes["n_words"] = first_word[:-1], n_words
    words = np.zeros(first_word[-1], np.uint64)
    np.bitwise_or.at(words, first_word[node] + (value >> 6), np.uint64(1) << (value & 63).astype(np.uint64))
    return nodes, words


def _segments_per_tree(shape: _Shape, slot: IntArray, category_counts: IntArray) -> IntArray:
    """How many words of leaves each tree has; 0 for a tree that is better walked."""
    n_leaves = np.diff(shape.first_leaf)
    n_segments = -(-n_leaves // SEGMENT_LEAVES)
    categorical = category_counts[slot] >= 0
    tree, used_slot = np.unique(np.stack((shape.tree[categorical], slot[categorical])), axis=1)
    n_masks = np.bincount(tree, category_counts[used_slot] + 2.0, minlength=len(n_leaves)) * n_segments
    return np.where((n_segments <= _MOST_SEGMENTS) & (n_masks <= _MOST_MASKS_PER_TREE), n_segments, 0)


def _cleared_segments(
    shape: _Shape, n_segments: IntArray, first_segment: IntArray
) -> tuple[IntArray, IntArray, npt.NDArray[np.uint64]]:
    """For every node and every segment with leaves below its left child: node, segment, bits that stay."""
    node = np.flatnonzero(n_segments[shape.tree] > 0)
    tree = shape.tree[node]
    first = shape.first_position[node] - shape.first_leaf[tree]
    beyond = shape.middle_position[node] - shape.first_leaf[tree]
    n_touched = (beyond - 1) // SEGMENT_LEAVES - first // SEGMENT_LEAVES + 1
    node, tree, first, beyond = (np.repeat(array, n_touched) for array in (node, tree, first, beyond))
    within_node = np.arange(len(node)) - np.repeat(_starts(n_touched)[:-1], n_touched)
    segment = first // SEGMENT_LEAVES + within_node
    low = np.maximum(first - SEGMENT_LEAVES * segment, 0).astype(np.uint64)
    unused = np.maximum(SEGMENT_LEAVES * (segment + 1) - beyond, 0).astype(np.uint64)
    all_bits = ~np.zeros(len(node), np.uint64)
    return node, first_segment[tree] + segment, ~((all_bits << low) & (all_bits >> unused))


def _comparisons(
    segments: npt.NDArray[np.void],
    nodes: npt.NDArray[np.void],
    node: IntArray,
    segment: IntArray,
    kept: npt.NDArray[np.uint64],
) -> npt.NDArray[np.void]:
    """The numeric nodes of all segments; fills in where each segment finds its own."""
    missing_right = nodes["missing_right"][node]
    order = np.lexsort((nodes["slot"][node], missing_right, segment))
    comparisons = np.zeros(len(node), COMPARISON)
    comparisons["threshold"], comparisons["slot"] = nodes["threshold"][node[order]], nodes["slot"][node[order]]
    comparisons["kept"] = kept[order]
    starts = _starts(np.bincount(segment, minlength=len(segments)))
    segments["first_comparison"], segments["last_comparison"] = starts[:-1], starts[1:]
    n_missing_left = np.bincount(segment[missing_right == 0], minlength=len(segments))
    segments["first_missing_right"] = starts[:-1] + n_missing_left
    return comparisons


def _lookups(
    segments: npt.NDArray[np.void],
    nodes: npt.NDArray[np.void],
    words: npt.NDArray[np.uint64],
    category_counts: IntArray,
    node: IntArray,
    segment: IntArray,
    kept: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint64]]:
    """One table of masks for the nodes of a segment on one categorical feature; fills in where each segment's are."""
    n_slots = max(len(category_counts), 1)
    keys, lookup = np.unique(segment * n_slots + nodes["slot"][node], return_inverse=True)
    slot = keys % n_slots
    first_mask = _starts(category_counts[slot] + 2)
    lookups = np.zeros(len(keys), LOOKUP)
    lookups["first_mask"], lookups["slot"] = first_mask[:-1], slot
    starts = _starts(np.bincount(keys // n_slots, minlength=len(segments)))
    segments["first_lookup"], segments["last_lookup"] = starts[:-1], starts[1:]
    masks = ~np.zeros(first_mask[-1], np.uint64)
    if len(node):
        fill_masks(nodes, words, node, kept, first_mask[lookup], first_mask[lookup + 1], masks)
    return lookups, masks
