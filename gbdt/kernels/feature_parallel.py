"""A round of feature-parallel growth: every rank has all rows and some columns.

    mark_rows             for leaves split at a column that is here: one bit a row, 1 for left
    (bits of all ranks)
    split_by_bits         rows of every picked leaf rearranged
    build_own_columns     histogram of its smaller child, subtraction for the larger one, search in both

Rows come in the same order everywhere, so that a bit's place says which row it is about.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch_and_add, kernel
from dmlgbm.gbdt.kernels.histogram import build_histogram, subtract_tile
from dmlgbm.gbdt.kernels.layout import NARROW, WIDE, BinStorage, Buffers, RecordArray
from dmlgbm.gbdt.kernels.leaf_expansion import may_split
from dmlgbm.gbdt.kernels.partition import cells_of_column, fill_goes_left, sparse_goes_left
from dmlgbm.gbdt.kernels.round_growth import enter_children, search_children, smaller_and_larger

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@kernel
def mark_rows(
    storage: BinStorage,
    layout: RecordArray,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    goes_left: Bytes,
    rows: npt.NDArray[np.uint32],
    every_row: bool,
    starts: IntArray,
    counts: IntArray,
    picked: IntArray,
    first_bytes: IntArray,
    bits: Bytes,
    taken: IntArray,
) -> None:
    """Write which rows of picked nodes go left, from byte first_bytes[k] on, where the column of the split is here."""
    storage, layout, nodes, categories = borrowed((storage, layout, nodes, categories))
    goes_left, rows, starts, counts, bits = borrowed((goes_left, rows, starts, counts, bits))
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= picked.size:
            return
        node = picked[k]
        feature = nodes[node].feature
        kind = layout[feature].storage
        if kind < 0:
            continue
        by_default = fill_goes_left(layout, nodes, categories, node, goes_left)
        column = np.uint64(layout[feature].column)
        lowest = layout[feature].first_value
        beyond = lowest + layout[feature].bins - 1
        cells, first_cell, step = cells_of_column(storage, layout[feature].column if kind == NARROW else 0)
        start, byte, place = starts[node], np.uint8(0), first_bytes[k]
        for i in range(counts[node]):
            row = np.uint64(i) if every_row and node == 0 else np.uint64(rows[start + i])
            left = np.uint8(by_default)
            if kind == NARROW:
                left = goes_left[cells[first_cell + step * row]]
            elif kind == WIDE:
                left = goes_left[storage.wide[row, column]]
            else:
                low, end = storage.sparse_starts[column, row], storage.sparse_starts[column, row + np.uint64(1)]
                left = np.uint8(
                    sparse_goes_left(storage.sparse_entries, low, end, lowest, beyond, goes_left, by_default)
                )
            byte |= left << np.uint8(i & 7)
            if i & 7 == 7:
                bits[place] = byte
                byte, place = np.uint8(0), place + 1
        if counts[node] & 7:
            bits[place] = byte


@kernel
def split_by_bits(
    bits: Bytes,
    first_bytes: IntArray,
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    every_row: bool,
    starts: IntArray,
    counts: IntArray,
    picked: IntArray,
    lefts: IntArray,
    taken: IntArray,
) -> None:
    """Rearrange the rows of picked nodes: left rows first, both sides still in row order."""
    rows, scratch, bits, starts, counts = borrowed((rows, scratch, bits, starts, counts))
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= picked.size:
            return
        node, left = picked[k], lefts[k]
        first, count = np.uint64(starts[node]), np.uint64(counts[node])
        first_byte = np.uint64(first_bytes[k])
        left_end, right_end = first, first
        for i in range(count):
            row = np.uint32(i) if every_row and node == 0 else rows[first + i]
            goes_left = np.uint64((bits[first_byte + (i >> np.uint64(3))] >> np.uint8(i & np.uint64(7))) & np.uint8(1))
            rows[left_end] = row
            scratch[right_end] = row
            left_end += goes_left
            right_end += np.uint64(1) - goes_left
        for i in range(right_end - first):
            rows[left_end + i] = scratch[first + i]
        n_left = np.int64(left_end - first)
        starts[left], counts[left] = starts[node], n_left
        starts[left + 1], counts[left + 1] = starts[node] + n_left, counts[node] - n_left


@kernel
def build_own_columns(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    tree_features: IntArray,
    own_features: IntArray,
    rows: npt.NDArray[np.uint32],
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    starts: IntArray,
    counts: IntArray,
    picked: IntArray,
    lefts: IntArray,
    slots: IntArray,
    n_picked: int,
    is_last: bool,
    candidates: IntArray,
    taken: IntArray,
) -> None:
    """Build, subtract and search the columns that are here for both children of each picked leaf.

    The root's histogram is in its slot already.
    """
    storage, layout, packing, rules, words = borrowed((storage, layout, packing, rules, words))
    tree_features, own_features, rows, pool = borrowed((tree_features, own_features, rows, pool))
    buffers, nodes, categories, candidates = borrowed((buffers, nodes, categories, candidates))
    packed_rows = packing[0].packed_rows
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= n_picked:
            return
        node, left = picked[k], lefts[k]
        candidates[2 * k, 1], candidates[2 * k + 1, 1] = -1, -1
        if node < 0:
            nodes[0].slot = slots[k] if may_split(rules, nodes, 0) else -1
        elif enter_children(nodes, rules, node, left, slots[k], is_last):
            smaller, larger = smaller_and_larger(nodes, node, left)
            smaller_packed = nodes[smaller].count <= packed_rows
            build_histogram(
                storage, packing, rows, starts[smaller], starts[smaller] + counts[smaller], np.bool_(0), words,
                buffers.block, smaller_packed, pool[slots[k]],
            )  # fmt: skip
            subtract_tile(
                packing, pool[nodes[node].slot], nodes[node].count <= packed_rows, pool[slots[k]], smaller_packed,
                nodes[larger].count <= packed_rows, 0, pool.shape[2],
            )  # fmt: skip
        search_children(
            layout, packing, rules, tree_features, own_features, pool, buffers,
            nodes, categories, node, left, candidates[2 * k :],
        )  # fmt: skip
