"""Prediction: which leaf of each tree every row of a tile ends in, and what the leaves add up to.

One idea is needed to read this file. Number the leaves of a tree from left to right and give every row a word
with one bit a leaf. A row that goes right at a node can end in none of the leaves below the node's left child,
so the node clears their bits; once every node has had its say, in any order, the lowest bit left is the leaf:

    leaves        d c b a        x > 3 clears a b, x > 1 clears a, y > 5 clears c
    row (2, 9)    1 0 1 0        lowest bit: leaf b

No step depends on another or on a branch, so one comparison serves as many rows as a vector register holds.
A tree of more than 64 leaves has several words, its *segments*, each with its own list of comparisons; the
first segment with a bit left has the leaf. Large trees, and the last few rows of a table, are walked from the
root instead.

Tiles are [tile, slot, lane]: a *slot* is a feature that some tree uses, a *lane* is a row of the tile. NaN is
missing; the slot of a categorical feature holds category code + 1, and 0 for missing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel, trailing_zeros
from dmlgbm.gbdt.kernels.layout import RecordArray

# Rows of a tile. With 28 slots a tile fills half of a level 1 cache.
LANES = 128
SEGMENT_LEAVES = 64

# A tile with fewer rows is walked: clearing bits costs the same for one row as for a full tile.
FEWEST_LANES = 16
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)

TREE = np.dtype(
    [
        ("root", np.int32),  # as `left` of a node
        ("first_segment", np.int32),
        ("last_segment", np.int32),  # one beyond the last; no segments: the tree is walked
    ]
)
"""Where a tree is found."""

WALKED_NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("slot", np.uint32),
        ("left", np.int32),  # a node, or ~position for the leaf at that position
        ("right", np.int32),
        ("missing_right", np.uint8),
        ("categorical", np.uint8),
        ("first_word", np.uint32),  # of the set of values that go left; only where categorical
        ("n_words", np.uint32),
    ],
    align=True,
)
"""A node as it is walked."""

SEGMENT = np.dtype(
    [
        ("first_position", np.int32),  # of the leaf that the lowest bit stands for
        ("first_comparison", np.int32),
        ("first_missing_right", np.int32),  # comparisons from here on send missing values right
        ("last_comparison", np.int32),  # one beyond the last
        ("first_lookup", np.int32),
        ("last_lookup", np.int32),  # one beyond the last
    ]
)
"""The word of up to 64 neighbouring leaves of a tree."""

COMPARISON = np.dtype([("threshold", np.float64), ("kept", np.uint64), ("slot", np.uint64)])
"""A numeric node: `kept` are the bits that stay when a row goes right."""

LOOKUP = np.dtype([("first_mask", np.uint64), ("slot", np.uint64)])
"""All nodes of a segment on one categorical feature: the bits that stay, by slot value."""


class ForestArrays(NamedTuple):
    """All trees of a forest. A leaf's *position* counts from left to right, over all trees."""

    trees: RecordArray
    nodes: RecordArray
    words: npt.NDArray[np.uint64]  # bit sets of the slot values that go left
    segments: RecordArray
    comparisons: RecordArray
    lookups: RecordArray
    masks: npt.NDArray[np.uint64]
    leaf_value: npt.NDArray[np.float64]  # by position
    leaf_number: npt.NDArray[np.int32]  # by position, as the tree numbers its leaves


Tiles = npt.NDArray[np.float64]


@inlined
def is_in_set(nodes: RecordArray, words: npt.NDArray[np.uint64], node: np.uint64, value: np.uint64) -> bool:
    """Whether a slot value goes left at a categorical node."""
    word = value >> np.uint64(6)
    if word >= nodes[node].n_words:
        return False
    return (words[nodes[node].first_word + word] >> (value & np.uint64(63))) & np.uint64(1) == np.uint64(1)


@kernel
def fill_masks(
    nodes: RecordArray,
    words: npt.NDArray[np.uint64],
    node: npt.NDArray[np.int64],
    kept: npt.NDArray[np.uint64],
    first_mask: npt.NDArray[np.int64],
    last_mask: npt.NDArray[np.int64],
    masks: npt.NDArray[np.uint64],
) -> None:
    """Apply kept[k] to the masks first_mask[k]..last_mask[k], one a slot value, of the values that go right."""
    for k in range(node.size):
        for value in range(last_mask[k] - first_mask[k]):
            if not is_in_set(nodes, words, np.uint64(node[k]), np.uint64(value)):
                masks[first_mask[k] + value] &= kept[k]


@inlined
def _clear_bits(
    forest: ForestArrays, segment: int, tiles: Tiles, tile: np.uint64, bits: npt.NDArray[np.uint64]
) -> None:
    """Leave in bits[lane] the leaves of the segment that the lane's row may end in."""
    comparisons, lookups, masks = forest.comparisons, forest.lookups, forest.masks
    for lane in range(np.uint64(LANES)):
        bits[lane] = _ALL_BITS
    for k in range(forest.segments[segment].first_comparison, forest.segments[segment].first_missing_right):
        threshold, kept, slot = comparisons[k].threshold, comparisons[k].kept, comparisons[k].slot
        for lane in range(np.uint64(LANES)):
            bits[lane] &= kept if tiles[tile, slot, lane] > threshold else _ALL_BITS
    for k in range(forest.segments[segment].first_missing_right, forest.segments[segment].last_comparison):
        threshold, kept, slot = comparisons[k].threshold, comparisons[k].kept, comparisons[k].slot
        for lane in range(np.uint64(LANES)):
            bits[lane] &= _ALL_BITS if tiles[tile, slot, lane] <= threshold else kept
    for k in range(forest.segments[segment].first_lookup, forest.segments[segment].last_lookup):
        first_mask, slot = lookups[k].first_mask, lookups[k].slot
        for lane in range(np.uint64(LANES)):
            bits[lane] &= masks[first_mask + np.uint64(np.int64(tiles[tile, slot, lane]))]


@inlined
def _walk(
    forest: ForestArrays,
    root: int,
    tiles: Tiles,
    tile: np.uint64,
    n_lanes: int,
    active: npt.NDArray[np.uint64],
    positions: npt.NDArray[np.int32],
) -> None:
    """Move all rows down one level at a time; rows that reached a leaf leave the list of active lanes."""
    nodes, words = forest.nodes, forest.words
    for lane in range(np.uint64(n_lanes)):
        active[lane] = lane
        positions[lane] = root
    n_active = np.uint64(n_lanes if root >= 0 else 0)
    while n_active > np.uint64(0):
        n_still_active = np.uint64(0)
        for k in range(n_active):
            lane = active[k]
            node = np.uint64(np.uint32(positions[lane]))
            value = tiles[tile, np.uint64(nodes[node].slot), lane]
            if nodes[node].categorical:
                goes_right = np.int32(not is_in_set(nodes, words, node, np.uint64(np.int64(value))))
            else:
                is_missing_right = np.int32(value != value) & np.int32(nodes[node].missing_right)
                goes_right = np.int32(value > nodes[node].threshold) | is_missing_right
            # A choice between two loads would become a branch, and mispredicted half of the time.
            left = nodes[node].left
            child = left ^ ((left ^ nodes[node].right) & -goes_right)
            positions[lane] = child
            active[n_still_active] = lane
            n_still_active += np.uint64(child >= 0)
        n_active = n_still_active
    for lane in range(np.uint64(n_lanes)):
        positions[lane] = ~positions[lane]


@kernel
def find_leaves(
    forest: ForestArrays,
    tree: int,
    tiles: Tiles,
    tile: np.uint64,
    n_lanes: int,
    bits: npt.NDArray[np.uint64],
    positions: npt.NDArray[np.int32],
) -> None:
    """Write the position of the leaf that each of the first `n_lanes` rows of the tile ends in."""
    first_segment, last_segment = forest.trees[tree].first_segment, forest.trees[tree].last_segment
    if n_lanes < FEWEST_LANES or first_segment == last_segment:
        _walk(forest, forest.trees[tree].root, tiles, tile, n_lanes, bits, positions)
        return
    for segment in range(last_segment - 1, first_segment - 1, -1):
        _clear_bits(forest, segment, tiles, tile, bits)
        first_position = forest.segments[segment].first_position
        for lane in range(np.uint64(LANES)):
            position = first_position + np.int32(trailing_zeros(bits[lane]))
            positions[lane] = position if bits[lane] != np.uint64(0) else positions[lane]


@kernel
def add_scores(
    forest: ForestArrays,
    tiles: Tiles,
    first_tree: int,
    last_tree: int,
    first_row: int,
    last_row: int,
    scores: npt.NDArray[np.float64],
) -> None:
    """Add to scores[output, first_row:last_row], which the tiles hold, the trees first_tree..last_tree in order."""
    leaf_value = forest.leaf_value
    bits = np.empty(LANES, np.uint64)
    positions = np.empty(LANES, np.int32)
    for tile in range(np.uint64((last_row - first_row + LANES - 1) // LANES)):
        start = np.uint64(first_row) + tile * np.uint64(LANES)
        n_lanes = min(LANES, last_row - np.int64(start))
        for tree in range(first_tree, last_tree):
            find_leaves(forest, tree, tiles, tile, n_lanes, bits, positions)
            output = np.uint64(tree % scores.shape[0])
            for lane in range(np.uint64(n_lanes)):
                scores[output, start + lane] += leaf_value[np.uint64(np.uint32(positions[lane]))]


@kernel
def write_leaves(
    forest: ForestArrays, tiles: Tiles, first_row: int, last_row: int, leaves: npt.NDArray[np.int32]
) -> None:
    """Write to leaves[first_row:last_row, tree], which the tiles hold, the leaf of every row in every tree."""
    leaf_number = forest.leaf_number
    bits = np.empty(LANES, np.uint64)
    positions = np.empty(LANES, np.int32)
    for tile in range(np.uint64((last_row - first_row + LANES - 1) // LANES)):
        start = np.uint64(first_row) + tile * np.uint64(LANES)
        n_lanes = min(LANES, last_row - np.int64(start))
        for tree in range(len(forest.trees)):
            find_leaves(forest, tree, tiles, tile, n_lanes, bits, positions)
            for lane in range(np.uint64(n_lanes)):
                leaves[start + lane, tree] = leaf_number[np.uint64(np.uint32(positions[lane]))]
