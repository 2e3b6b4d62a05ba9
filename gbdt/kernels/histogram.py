"""Histograms of a node: sums of packed gradient words by bin.

A node of few rows keeps one packed word a bin (plane 0 of its slot); a larger one is summed in blocks that
are flushed into three planes (gradient, hessian, count). Integers have no order, so rows may come in any.

Joint bytes are summed by byte, and these sums are then spread onto the bins of their columns (`joint_sums`); in nodes
of few rows it is faster to look the value of every column up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, inlined, kernel, prefetch
from dmlgbm.gbdt.kernels.joint_sums import add_parts, spread_sums
from dmlgbm.gbdt.kernels.layout import NARROW, WIDE, BinStorage, PackedGradients, RecordArray

# How many rows ahead to prefetch, and how thinly spread rows must be for that to pay (measured: at one row in
# 32, 1.28 ns a row and column without, 0.74 with; at every second row 0.59 and 0.63).
_ROWS_AHEAD = np.uint64(32)
_ROWS_APART = 6
# Where a row's sparse entries are must be known before they can be prefetched.
_STARTS_AHEAD = np.uint64(16)
_ENTRIES_AHEAD = np.uint64(8)
# To spread the sums of a joint byte takes about as long as to look up so many values of its parts (measured: with two
# parts a byte, both ways take the same time at 40 to 55 rows, with eight at about 12).
_VALUES_WORTH_JOINT_SUMS = 100


@inlined
def add_four_rows(
    narrow: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.uint32],
    words: npt.NDArray[np.int64],
    histogram: npt.NDArray[np.int64],
    rows: tuple[np.uint64, np.uint64, np.uint64, np.uint64],
    first: np.uint64,
    last: np.uint64,
) -> None:
    """Add four rows column by column: rows that share a bin wait for each other less than columns in a row do.

    Measured on real bins: 0.52 ns a row and column, against 0.59 to 1.1 with one row at a time.
    """
    row_0, row_1, row_2, row_3 = rows
    word_0, word_1, word_2, word_3 = words[row_0], words[row_1], words[row_2], words[row_3]
    for column in range(first, last):
        position = np.uint64(positions[column])
        histogram[position + np.uint64(narrow[row_0, column])] += word_0
        histogram[position + np.uint64(narrow[row_1, column])] += word_1
        histogram[position + np.uint64(narrow[row_2, column])] += word_2
        histogram[position + np.uint64(narrow[row_3, column])] += word_3


@inlined
def add_narrow_words(
    storage: BinStorage,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    words: npt.NDArray[np.int64],
    histogram: npt.NDArray[np.int64],
    first_column: int,
    last_column: int,
) -> None:
    """The part of `add_words` that reads one-byte columns."""
    narrow, positions = storage.narrow, storage.sum_positions
    n_columns = np.uint64(narrow.shape[1])
    first, last = np.uint64(first_column), np.uint64(last_column)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    begin, end = np.uint64(start), np.uint64(stop)
    fours_end = begin + (end - begin) // four * four
    near_end = begin
    if not every_row and fours_end > begin + _ROWS_AHEAD:
        spread = np.int64(rows[stop - 1]) - np.int64(rows[start])
        if spread > _ROWS_APART * (stop - start):
            near_end = fours_end - _ROWS_AHEAD
    for i in range(begin, fours_end, four):
        if i < near_end:
            for k in range(i + _ROWS_AHEAD, i + _ROWS_AHEAD + four):
                ahead = np.uint64(rows[k])
                prefetch(words, ahead)
                prefetch(narrow, ahead * n_columns + first)
                prefetch(narrow, ahead * n_columns + last - one)
        four_rows = (i, i + one, i + two, i + three)
        if not every_row:
            row_0, row_1, row_2, row_3 = rows[i], rows[i + one], rows[i + two], rows[i + three]
            four_rows = (np.uint64(row_0), np.uint64(row_1), np.uint64(row_2), np.uint64(row_3))
        add_four_rows(narrow, positions, words, histogram, four_rows, first, last)
    for i in range(fours_end, end):
        row = i if every_row else np.uint64(rows[i])
        word = words[row]
        for column in range(first, last):
            histogram[np.uint64(positions[column]) + np.uint64(narrow[row, column])] += word


@inlined
def add_words(
    storage: BinStorage,
    tile: int,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    words: npt.NDArray[np.int64],
    histogram: npt.NDArray[np.int64],
    by_parts: bool,
) -> None:
    """Add the words of rows[start:stop] (of rows start..stop themselves with `every_row`) to a tile's bins."""
    kind = storage.tiles[tile].storage
    first, last = storage.tiles[tile].first_column, storage.tiles[tile].last_column
    first_part, last_part = storage.tiles[tile].first_part, storage.tiles[tile].last_part
    positions, n_narrow, n_wide = storage.positions, storage.narrow.shape[1], storage.wide.shape[1]
    if kind == NARROW:
        if by_parts:
            last = storage.tiles[tile].first_joint
        add_narrow_words(storage, rows, start, stop, every_row, words, histogram, first, last)
        if by_parts:
            add_parts(storage, tile, rows, start, stop, every_row, words, histogram)
        else:
            spread_sums(storage.parts[first_part:last_part], histogram)
    elif kind == WIDE:
        wide, wide_positions = storage.wide, positions[n_narrow:]
        for i in range(np.uint64(start), np.uint64(stop)):
            row = i if every_row else np.uint64(rows[i])
            word = words[row]
            for column in range(np.uint64(first), np.uint64(last)):
                histogram[np.uint64(wide_positions[column]) + np.uint64(wide[row, column])] += word
    else:
        starts = storage.sparse_starts[first]
        base = np.uint64(positions[n_narrow + n_wide + first])
        end = np.uint64(stop)
        for i in range(np.uint64(start), end):
            if not every_row and i + _STARTS_AHEAD < end:
                prefetch(starts, np.uint64(rows[i + _STARTS_AHEAD]))
                prefetch(storage.sparse_entries, np.uint64(starts[np.uint64(rows[i + _ENTRIES_AHEAD])]))
            row = i if every_row else np.uint64(rows[i])
            word = words[row]
            for entry in range(np.uint64(starts[row]), np.uint64(starts[row + np.uint64(1)])):
                histogram[base + np.uint64(storage.sparse_entries[entry])] += word


@inlined
def clear(histogram: npt.NDArray[np.int64]) -> None:
    """Set a part of one plane to zero."""
    for i in range(histogram.size):
        histogram[i] = 0


@kernel
def build_tile(
    storage: BinStorage,
    gradients: PackedGradients,
    tile: int,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    block: npt.NDArray[np.int64],
    packed: bool,
    planes: npt.NDArray[np.int64],
) -> None:
    """Fill a tile's part of a node's planes: plane 0 with packed words, or all three with wide sums."""
    storage, gradients, rows, block, planes = borrowed((storage, gradients, rows, block, planes))
    packing, words = gradients.packing, gradients.words
    first, last = storage.tiles[tile].first_position, storage.tiles[tile].last_position
    gradient_sums, hessian_sums, counts = planes[0, first:last], planes[1, first:last], planes[2, first:last]
    n_parts = storage.tiles[tile].last_part - storage.tiles[tile].first_part
    n_joints = storage.tiles[tile].last_column - storage.tiles[tile].first_joint
    # (No rows at all are added by parts: nothing.)
    by_parts = packed and (stop - start) * n_parts < _VALUES_WORTH_JOINT_SUMS * n_joints
    # Sums of joint bytes lie behind the block's positions: one loop over all columns knows one array.
    in_block = not packed or (n_joints > 0 and not by_parts)
    sums, own_sums = planes[0], gradient_sums
    if not packed or not in_block:
        clear(gradient_sums)
    if not packed:
        clear(hessian_sums)
        clear(counts)
    if in_block:
        sums, own_sums = block, block[first:last]
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    hessian_mask, count_mask = packing[0].hessian_mask, packing[0].count_mask
    two_words = packing[0].two_words == 1
    # A packed node is one block and stays as it is.
    block_rows = stop - start if packed else packing[0].block_rows
    for block_start in range(start, stop, max(block_rows, 1)):
        block_stop = min(block_start + block_rows, stop)
        for word in range(2 if two_words and not packed else 1):
            if in_block:
                clear(own_sums)
                clear(block[storage.tiles[tile].first_sum : storage.tiles[tile].last_sum])
            add_words(storage, tile, rows, block_start, block_stop, every_row, words[word], sums, by_parts)
            if packed and in_block:
                for i in range(own_sums.size):
                    gradient_sums[i] = own_sums[i]
            if not packed and word == 0:
                for i in range(own_sums.size):
                    gradient_sums[i] += own_sums[i] >> gradient_shift
            if not packed and (word == 1 or not two_words):
                for i in range(own_sums.size):
                    hessian_sums[i] += (own_sums[i] >> hessian_shift) & hessian_mask
                    counts[i] += own_sums[i] & count_mask


@inlined
def build_histogram(
    storage: BinStorage,
    gradients: PackedGradients,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    block: npt.NDArray[np.int64],
    packed: bool,
    planes: npt.NDArray[np.int64],
) -> None:
    """Fill all tiles of a node's planes."""
    for tile in range(storage.tiles.size):
        build_tile(storage, gradients, tile, rows, start, stop, every_row, block, packed, planes)


@inlined
def add_to(total: npt.NDArray[np.int64], part: npt.NDArray[np.int64]) -> None:
    """Merge the packed histogram that another thread made of its share of the rows."""
    for i in range(total.size):
        total[i] += part[i]


@kernel
def add_planes(total: npt.NDArray[np.int64], part: npt.NDArray[np.int64]) -> None:
    """Merge the wide histogram that another thread made of its share of the rows."""
    for plane in range(3):
        for i in range(total.shape[1]):
            total[plane, i] += part[plane, i]


@kernel
def subtract_tile(
    packing: RecordArray,
    parent: npt.NDArray[np.int64],
    parent_packed: bool,
    child: npt.NDArray[np.int64],
    child_packed: bool,
    sibling_packed: bool,
    first: int,
    last: int,
) -> None:
    """Turn a part of the parent's planes into that of the other child. Packing is linear, so forms may be mixed."""
    packing, parent, child = borrowed((packing, parent, child))
    gradients, hessians, counts = parent[0, first:last], parent[1, first:last], parent[2, first:last]
    child_words = child[0, first:last]
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    hessian_mask, count_mask = packing[0].hessian_mask, packing[0].count_mask
    hessian_factor = packing[0].hessian_factor
    if parent_packed:
        for i in range(gradients.size):
            gradients[i] -= child_words[i]
        return
    if child_packed:
        for i in range(gradients.size):
            gradients[i] -= child_words[i] >> gradient_shift
            hessians[i] -= (child_words[i] >> hessian_shift) & hessian_mask
            counts[i] -= child_words[i] & count_mask
    else:
        for plane in range(3):
            larger, smaller = parent[plane, first:last], child[plane, first:last]
            for i in range(larger.size):
                larger[i] -= smaller[i]
    if sibling_packed:
        for i in range(gradients.size):
            gradients[i] = (gradients[i] << gradient_shift) + hessians[i] * hessian_factor + counts[i]
