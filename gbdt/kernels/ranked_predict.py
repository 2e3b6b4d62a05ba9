"""Prediction with many trees: values are ranked among the thresholds of their feature once, then compared as bytes.

Two ideas are needed to read this file, beyond the one of `dmlgbm.gbdt.kernels.predict`. A value is above the k-th
threshold of its feature, counted from 0, if it is above more than k of them: its *rank*, which is how many it is above,
answers the comparisons of all trees, and as it fits a byte, one instruction compares 32 rows. And a comparison clears
few bits, most of them side by side: the word of a tree's leaves is cut into bytes, its *planes*, each with its own
comparisons.

Ranks are stored less 128, because signed bytes are compared in one step. A missing value has the lowest rank where it
goes left and the highest where it goes right, so a feature with nodes of both kinds has two rows of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel, lowest_leaves
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.predict import FEWEST_LANES, LANES, ForestArrays, Tiles, find_leaves

PLANE_LEAVES = 8
MOST_PLANES = 32  # the number of a leaf within its tree is a byte
MOST_THRESHOLDS = 255
# Up to so many thresholds, comparing with each takes less time than a search, which takes 8 ns a value.
COUNTED_THRESHOLDS = 48
COUNTED_AT_ONCE = 4
_LOWEST_RANK, _HIGHEST_RANK = np.int64(-128), np.int8(127)

SCALE = np.dtype(
    [
        ("slot", np.uint32),
        ("first_threshold", np.uint32),
        ("n_thresholds", np.uint32),
        ("missing_left", np.int32),  # the row of ranks in which a missing value is lowest; -1 if there is none
        ("missing_right", np.int32),  # the one in which it is highest
    ]
)
"""Up to 255 thresholds of a feature, ascending.

Infinity follows them up to a multiple of four if they are counted, and up to 255 if they are searched.
"""

RANKED_COMPARISON = np.dtype(
    [
        ("first_rank", np.uint32),  # of the row of ranks to compare, as a position in all of them
        ("beyond", np.int8),  # ranks below it go left
        ("kept", np.uint8),  # the bits that stay when a row goes right
        ("unused", np.uint16),
    ]
)
"""A numeric node in one plane. `lowest_leaves` of `gbdt/machine_code/intrinsics.py` knows where each field is."""


class RankedForest(NamedTuple):
    """Trees without categories, of at most 256 leaves; any other tree has no planes."""

    scales: RecordArray
    thresholds: npt.NDArray[np.float64]
    first_plane: npt.NDArray[np.int64]  # of each tree, and the number of all
    first_position: npt.NDArray[np.int64]  # of the leaves of each tree
    first_comparison: npt.NDArray[np.int64]  # of each plane, and the number of all
    comparisons: RecordArray
    rank_rows: npt.NDArray[np.uint8]  # one for each row of ranks, of no other use


@inlined
def _count_below(
    values: npt.NDArray[np.float64], thresholds: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    """counts[lane] = number of thresholds below the value, less 128; none is below NaN."""
    for lane in range(np.uint64(LANES)):
        counts[lane] = _LOWEST_RANK
    for k in range(np.uint64(0), np.uint64(thresholds.size), np.uint64(COUNTED_AT_ONCE)):
        first, second = thresholds[k], thresholds[k + np.uint64(1)]
        third, fourth = thresholds[k + np.uint64(2)], thresholds[k + np.uint64(3)]
        for lane in range(np.uint64(LANES)):
            value = values[lane]
            n_below = np.int64(value > first) + np.int64(value > second)
            counts[lane] += n_below + np.int64(value > third) + np.int64(value > fourth)


@inlined
def _search_below(
    values: npt.NDArray[np.float64], thresholds: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    """The same by a search, whose steps are written out as in `search_bins`."""
    for lane in range(np.uint64(LANES)):
        value = values[lane]
        below = np.uint64(thresholds[np.uint64(127)] < value) << np.uint64(7)
        below += np.uint64(thresholds[below + np.uint64(63)] < value) << np.uint64(6)
        below += np.uint64(thresholds[below + np.uint64(31)] < value) << np.uint64(5)
        below += np.uint64(thresholds[below + np.uint64(15)] < value) << np.uint64(4)
        below += np.uint64(thresholds[below + np.uint64(7)] < value) << np.uint64(3)
        below += np.uint64(thresholds[below + np.uint64(3)] < value) << np.uint64(2)
        below += np.uint64(thresholds[below + np.uint64(1)] < value) << np.uint64(1)
        below += np.uint64(thresholds[below] < value)
        counts[lane] = np.int64(below) + _LOWEST_RANK


@kernel
def _write_ranks(
    ranked: RankedForest,
    tiles: Tiles,
    tile: np.uint64,
    counts: npt.NDArray[np.int64],
    ranks: npt.NDArray[np.int8],
) -> None:
    """Write the ranks of a tile's rows, [row of ranks, lane]."""
    scales = ranked.scales
    for k in range(np.uint64(scales.size)):
        values = tiles[tile, np.uint64(scales[k].slot)]
        first, n_thresholds = np.int64(scales[k].first_threshold), np.int64(scales[k].n_thresholds)
        if n_thresholds <= COUNTED_THRESHOLDS:
            n_padded = (n_thresholds + COUNTED_AT_ONCE - 1) // COUNTED_AT_ONCE * COUNTED_AT_ONCE
            _count_below(values, ranked.thresholds[first : first + n_padded], counts)
        else:
            _search_below(values, ranked.thresholds[first : first + MOST_THRESHOLDS], counts)
        if scales[k].missing_left >= 0:
            row = ranks[scales[k].missing_left]
            for lane in range(np.uint64(LANES)):
                row[lane] = np.int8(counts[lane])
        if scales[k].missing_right >= 0:
            row = ranks[scales[k].missing_right]
            for lane in range(np.uint64(LANES)):
                rank = np.int8(counts[lane])
                row[lane] = rank if values[lane] == values[lane] else _HIGHEST_RANK


@kernel
def add_ranked_scores(
    forest: ForestArrays,
    ranked: RankedForest,
    tiles: Tiles,
    first_tree: int,
    last_tree: int,
    first_row: int,
    last_row: int,
    scores: npt.NDArray[np.float64],
) -> None:
    """What `add_scores` does, to the same bits."""
    leaf_value = forest.leaf_value
    bits = np.empty(LANES, np.uint64)
    positions = np.empty(LANES, np.int32)
    counts = np.empty(LANES, np.int64)
    leaves = np.empty(LANES, np.uint8)
    ranks = np.empty((ranked.rank_rows.size, LANES), np.int8)
    for tile in range(np.uint64((last_row - first_row + LANES - 1) // LANES)):
        start = np.uint64(first_row) + tile * np.uint64(LANES)
        n_lanes = int(min(LANES, last_row - np.int64(start)))
        if n_lanes >= FEWEST_LANES:
            _write_ranks(ranked, tiles, tile, counts, ranks)
        for tree in range(first_tree, last_tree):
            output = np.uint64(tree % scores.shape[0])
            first_plane, last_plane = ranked.first_plane[tree], ranked.first_plane[tree + 1]
            if n_lanes < FEWEST_LANES or first_plane == last_plane:
                find_leaves(forest, tree, tiles, tile, n_lanes, bits, positions)
                for lane in range(np.uint64(n_lanes)):
                    scores[output, start + lane] += leaf_value[np.uint64(np.uint32(positions[lane]))]
            else:
                lowest_leaves(ranked.first_comparison, first_plane, last_plane, ranked.comparisons, ranks, leaves)
                first_position = np.uint64(ranked.first_position[tree])
                for lane in range(np.uint64(n_lanes)):
                    scores[output, start + lane] += leaf_value[first_position + np.uint64(leaves[lane])]
