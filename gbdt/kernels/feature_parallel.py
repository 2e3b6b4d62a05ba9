"""A round of feature-parallel growth: every rank has all rows and some columns.

    mark_rows             for leaves split at a column that is here: one bit a row, 1 for left
    (bits of all ranks)
    split_by_bits         rows of every picked leaf rearranged
    build_own_columns     histogram of its smaller child, subtraction for the larger one, search in both

Rows come in the same order everywhere, so that a bit's position says which row it is about.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch_and_add, kernel
from dmlgbm.gbdt.kernels.histogram import build_histogram, subtract_tile
from dmlgbm.gbdt.kernels.layout import NARROW, WIDE, BinnedTable, Buffers, NodeRows, RoundSpace, TreeNodes
from dmlgbm.gbdt.kernels.partition import cells_of_column, enter_rows, fill_goes_left, sparse_goes_left
from dmlgbm.gbdt.kernels.round_growth import (
    LEAVES_PICKED,
    enter_children,
    enter_root,
    search_children,
    smaller_and_larger,
)

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class RowBits(NamedTuple):
    """Which rows of some nodes go left: one bit a row, those of the k-th node from byte first_bytes[k] on."""

    bits: Bytes
    first_bytes: IntArray


@kernel
def mark_rows(
    table: BinnedTable,
    tree: TreeNodes,
    goes_left: Bytes,
    rows: NodeRows,
    every_row: bool,
    picked: IntArray,
    marks: RowBits,
    taken: IntArray,
) -> None:
    """Write which rows of picked nodes go left, where the column of the split is here."""
    table, tree, goes_left, rows, marks = borrowed((table, tree, goes_left, rows, marks))
    storage, layout, nodes, bits = table.storage, table.layout, tree.nodes, marks.bits
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= picked.size:
            return
        node = picked[k]
        feature = nodes[node].feature
        kind = layout[feature].storage
        if kind < 0:
            continue
        by_default = fill_goes_left(layout, tree, node, goes_left)
        column = np.uint64(layout[feature].column)
        lowest = layout[feature].first_value
        beyond = lowest + layout[feature].bins - 1
        cells, first_cell, step = cells_of_column(storage, layout[feature].column if kind == NARROW else 0)
        start, byte, position = rows.starts[node], np.uint8(0), marks.first_bytes[k]
        for i in range(rows.counts[node]):
            row = np.uint64(i) if every_row and node == 0 else np.uint64(rows.numbers[start + i])
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
                bits[position] = byte
                byte, position = np.uint8(0), position + 1
        if rows.counts[node] & 7:
            bits[position] = byte


@kernel
def split_by_bits(
    marks: RowBits, rows: NodeRows, every_row: bool, picked: IntArray, lefts: IntArray, taken: IntArray
) -> None:
    """Rearrange the rows of picked nodes: left rows first, both sides still in row order."""
    marks, rows = borrowed((marks, rows))
    bits, numbers, scratch = marks.bits, rows.numbers, rows.scratch
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= picked.size:
            return
        node = picked[k]
        first, count = np.uint64(rows.starts[node]), np.uint64(rows.counts[node])
        first_byte = np.uint64(marks.first_bytes[k])
        left_end, right_end = first, first
        for i in range(count):
            row = np.uint32(i) if every_row and node == 0 else numbers[first + i]
            goes_left = np.uint64((bits[first_byte + (i >> np.uint64(3))] >> np.uint8(i & np.uint64(7))) & np.uint8(1))
            numbers[left_end] = row
            scratch[right_end] = row
            left_end += goes_left
            right_end += np.uint64(1) - goes_left
        for i in range(right_end - first):
            numbers[left_end + i] = scratch[first + i]
        enter_rows(rows, node, lefts[k], np.int64(left_end - first))


@kernel
def build_own_columns(
    table: BinnedTable,
    space: RoundSpace,
    own_features: IntArray,
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    candidates: IntArray,
    taken: IntArray,
) -> None:
    """Build, subtract and search the columns that are here for both children of each picked leaf.

    The root's histogram is in its slot already.
    """
    table, space, own_features = borrowed((table, space, own_features))
    pool, buffers, candidates = borrowed((pool, buffers, candidates))
    nodes, rows, leaves, packing = space.tree.nodes, space.rows, space.leaves, space.gradients.packing
    packed_rows = packing[0].packed_rows
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= leaves.counters[LEAVES_PICKED]:
            return
        node = leaves.picked[k]
        candidates[2 * k, 1], candidates[2 * k + 1, 1] = -1, -1
        if node < 0:
            enter_root(space)
        elif enter_children(space, k):
            smaller, larger = smaller_and_larger(nodes, node, leaves.lefts[k])
            first, last = rows.starts[smaller], rows.starts[smaller] + rows.counts[smaller]
            smaller_packed, planes = nodes[smaller].count <= packed_rows, pool[leaves.slots[k]]
            build_histogram(
                table.storage, space.gradients, rows.numbers, first, last, np.bool_(0),
                buffers.block, smaller_packed, planes,
            )  # fmt: skip
            subtract_tile(
                packing, pool[nodes[node].slot], nodes[node].count <= packed_rows, planes, smaller_packed,
                nodes[larger].count <= packed_rows, 0, pool.shape[2],
            )  # fmt: skip
        search_children(space, table.layout, own_features, pool, buffers, k, candidates)
