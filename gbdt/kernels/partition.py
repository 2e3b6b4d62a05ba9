"""Partition: a node's row numbers rearranged into those that go left and those that go right.

    rows     a b c d e f         the node, in row order
    left?    1 0 1 1 0 0
    rows     a c d | b e f       left rows first, both sides still in row order

Both sides are written for every row and only the counters differ, so there is no branch to mispredict. The
question "left?" is a look-up in a table by stored value, whatever kind of split made the table.

What a sparse tile stores of a feature has to be searched for among the entries of a row. In a node of many rows it is
faster to mark the rows that have entries of this feature, which are listed by stored value, and to look at the marks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel
from dmlgbm.gbdt.kernels.layout import (
    NARROW,
    WIDE,
    BinnedTable,
    BinStorage,
    Directions,
    NodeRows,
    RecordArray,
    TreeNodes,
)

# To search the entries of a row takes as long as to set and clear so many marks.
_MARKS_PER_SEARCH = 8


@inlined
def tell_joint_bytes(n_values: int, stride: int, goes_left: npt.NDArray[np.uint8]) -> None:
    """Turn what a column's own values do into what joint bytes do, from the last down: none is overwritten early."""
    byte = 256 // (n_values * stride) * (n_values * stride)
    while byte > 0:
        for value in range(n_values - 1, -1, -1):
            left = goes_left[value]
            for _ in range(stride):
                byte -= 1
                goes_left[byte] = left


@kernel
def fill_goes_left(
    layout: RecordArray,
    tree: TreeNodes,
    node: int,
    goes_left: npt.NDArray[np.uint8],
) -> int:
    """Write which stored values go left; return the answer for rows without an entry (sparse storage)."""
    nodes, categories = tree.nodes, tree.categories
    feature, last_left = nodes[node].feature, nodes[node].bin
    n_bins, implicit = layout[feature].bins, layout[feature].implicit_bin
    if implicit >= 0 and layout[feature].storage == NARROW:
        for value in range(256):
            goes_left[value] = 0
    first_value = layout[feature].first_value
    missing_bin = layout[feature].missing_bin if last_left >= 0 else -1
    implicit_goes_left = 0
    for b in range(n_bins):
        left = 1 if b <= last_left else 0
        if b == missing_bin:
            left = nodes[node].missing_left
        if b == implicit:
            implicit_goes_left = left
        else:
            goes_left[first_value + b - (1 if 0 <= implicit < b else 0)] = left
    if last_left < 0:
        for k in range(nodes[node].n_categories):
            b = categories[node, k]
            if b == implicit:
                implicit_goes_left = 1
            else:
                goes_left[first_value + b - (1 if 0 <= implicit < b else 0)] = 1
    if implicit_goes_left == 1 and layout[feature].storage == NARROW:
        # Rows in which another feature of the column is away from its usual bin have this one's usual bin.
        last_value = first_value + n_bins - 1
        for value in range(256):
            if value < first_value or value >= last_value:
                goes_left[value] = 1
    if layout[feature].values > 0:
        tell_joint_bytes(layout[feature].values, layout[feature].stride, goes_left)
    return implicit_goes_left


@inlined
def cells_of_column(storage: BinStorage, column: int) -> tuple[npt.NDArray[np.uint8], np.uint64, np.uint64]:
    """Where a one-byte column lies: an array, the position of the first row in it, and how far apart rows are."""
    n_rows, n_columns = storage.narrow.shape
    cells, first, step = storage.narrow.reshape(-1), np.uint64(column), np.uint64(n_columns)
    if storage.narrow_by_column.size > 0:
        cells, first, step = storage.narrow_by_column.reshape(-1), np.uint64(column * n_rows), np.uint64(1)
    return cells, first, step


@inlined
def sparse_goes_left(
    entries: npt.NDArray[np.uint16],
    low: int,
    end: int,
    lowest: int,
    beyond: int,
    goes_left: npt.NDArray[np.uint8],
    implicit_goes_left: int,
) -> int:
    """Whether a row goes left whose entries are entries[low:end]; the feature's own is from `lowest` to `beyond`."""
    high = end
    while low < high:
        middle = (low + high) >> 1
        if entries[middle] < lowest:
            low = middle + 1
        else:
            high = middle
    if low < end and entries[low] < beyond:
        return np.int64(goes_left[entries[low]])
    return np.int64(implicit_goes_left)


@inlined
def listed_values(storage: BinStorage, layout: RecordArray, feature: int) -> npt.NDArray[np.int64]:
    """Where the rows of each stored value of a sparse feature start among all rows of entries; one more is the end."""
    n_dense = storage.narrow.shape[1] + storage.wide.shape[1]
    first = layout[feature].position - np.int64(storage.positions[n_dense])
    return storage.entry_row_starts[first : first + layout[feature].bins]


@inlined
def count_marks(starts: npt.NDArray[np.int64], own_directions: npt.NDArray[np.uint8], by_default: int) -> int:
    """The rows of the whole table that a split sends another way than rows without an entry."""
    n_marks = np.int64(0)
    for value in range(starts.size - 1):
        if own_directions[value] != by_default:
            n_marks += starts[value + 1] - starts[value]
    return n_marks


@inlined
def mark_rows(
    entry_rows: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.int64],
    own_directions: npt.NDArray[np.uint8],
    by_default: int,
    marks: npt.NDArray[np.uint8],
    marked: bool,
) -> None:
    """Set the marks of these rows, or clear those of their neighbours too."""
    for value in range(starts.size - 1):
        if own_directions[value] == by_default:
            continue
        own_rows = entry_rows[starts[value] : starts[value + 1]]
        if marked:
            for i in range(own_rows.size):
                row = np.uint64(own_rows[i])
                marks[row >> np.uint64(3)] |= np.uint8(1) << np.uint8(row & np.uint64(7))
        else:
            for i in range(own_rows.size):
                marks[np.uint64(own_rows[i]) >> np.uint64(3)] = 0


@kernel
def separate_by_marks(
    table: BinnedTable,
    feature: int,
    directions: Directions,
    by_default: int,
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
) -> int:
    """As `separate_rows`, for a feature in sparse storage; -1, and nothing done, if a search for each row is faster."""
    storage, marks = table.storage, directions.marks
    if marks.size == 0 or storage.entry_rows.size == 0:
        return -1
    starts = listed_values(storage, table.layout, feature)
    own_directions = directions.goes_left[table.layout[feature].first_value :]
    if count_marks(starts, own_directions, by_default) > _MARKS_PER_SEARCH * (stop - start):
        return -1
    mark_rows(storage.entry_rows, starts, own_directions, by_default, marks, True)
    first, last, one = np.uint64(start), np.uint64(stop), np.uint64(1)
    left_end, right_end, unmarked = first, first, np.uint64(by_default)
    for i in range(first, last):
        row = np.uint32(i) if every_row else rows[i]
        mark = np.uint64(marks[np.uint64(row) >> np.uint64(3)] >> np.uint8(row & np.uint32(7))) & one
        left = unmarked ^ mark
        rows[left_end] = row
        scratch[right_end] = row
        left_end += left
        right_end += one - left
    mark_rows(storage.entry_rows, starts, own_directions, by_default, marks, False)
    return np.int64(left_end - first)


@kernel
def separate_rows(
    table: BinnedTable,
    feature: int,
    directions: Directions,
    implicit_goes_left: int,
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
) -> int:
    """Move the rows of rows[start:stop] that go left to its front, the others to scratch[start:]; return how many."""
    storage, layout, goes_left = table.storage, table.layout, directions.goes_left
    first, last = np.uint64(start), np.uint64(stop)
    column = np.uint64(layout[feature].column)
    left_end, right_end = first, first
    if layout[feature].storage == NARROW:
        cells, first_cell, step = cells_of_column(storage, layout[feature].column)
        for i in range(first, last):
            row = np.uint32(i) if every_row else rows[i]
            left = np.uint64(goes_left[cells[first_cell + step * np.uint64(row)]])
            rows[left_end] = row
            scratch[right_end] = row
            left_end += left
            right_end += np.uint64(1) - left
    elif layout[feature].storage == WIDE:
        wide = storage.wide
        for i in range(first, last):
            row = np.uint32(i) if every_row else rows[i]
            left = np.uint64(goes_left[wide[np.uint64(row), column]])
            rows[left_end] = row
            scratch[right_end] = row
            left_end += left
            right_end += np.uint64(1) - left
    else:
        n_left = separate_by_marks(
            table, feature, directions, implicit_goes_left, rows, scratch, start, stop, every_row
        )
        if n_left >= 0:
            return n_left
        starts = storage.sparse_starts[layout[feature].column]
        lowest = layout[feature].first_value
        beyond = lowest + layout[feature].bins - 1
        for i in range(first, last):
            row = np.uint32(i) if every_row else rows[i]
            low, end = starts[np.uint64(row)], starts[np.uint64(row) + np.uint64(1)]
            left = np.uint64(
                sparse_goes_left(storage.sparse_entries, low, end, lowest, beyond, goes_left, implicit_goes_left)
            )
            rows[left_end] = row
            scratch[right_end] = row
            left_end += left
            right_end += np.uint64(1) - left
    return np.int64(left_end - first)


@kernel
def partition_rows(
    table: BinnedTable,
    feature: int,
    directions: Directions,
    implicit_goes_left: int,
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
) -> int:
    """Rearrange rows[start:stop] in place; return how many go left. Right rows pass through `scratch`."""
    n_left = separate_rows(table, feature, directions, implicit_goes_left, rows, scratch, start, stop, every_row)
    first_right, n_right = np.uint64(start + n_left), np.uint64(stop - start - n_left)
    for i in range(n_right):
        rows[first_right + i] = scratch[np.uint64(start) + i]
    return n_left


@inlined
def enter_rows(rows: NodeRows, node: int, left: int, n_left: int) -> None:
    """Note where the rows of a node's children are, once its own are rearranged."""
    rows.starts[left], rows.counts[left] = rows.starts[node], n_left
    rows.starts[left + 1], rows.counts[left + 1] = rows.starts[node] + n_left, rows.counts[node] - n_left


@inlined
def split_node_rows(
    table: BinnedTable,
    tree: TreeNodes,
    directions: Directions,
    rows: NodeRows,
    every_row: bool,
    node: int,
    left: int,
) -> None:
    """Rearrange the rows that are here of a node, and enter where those of its children are."""
    start, stop = rows.starts[node], rows.starts[node] + rows.counts[node]
    by_default = fill_goes_left(table.layout, tree, node, directions.goes_left)
    n_left = partition_rows(
        table, tree.nodes[node].feature, directions, by_default, rows.numbers, rows.scratch, start, stop, every_row
    )
    enter_rows(rows, node, left, n_left)


@kernel
def route_rows(
    table: BinnedTable,
    tree: TreeNodes,
    splits: npt.NDArray[np.int64],
    directions: Directions,
    rows: NodeRows,
) -> None:
    """Send rows that the tree was not grown on down its splits; all of them are the root's at first."""
    rows.starts[0], rows.counts[0] = 0, rows.numbers.size
    for k in range(splits.size):
        node = splits[k]
        split_node_rows(table, tree, directions, rows, np.bool_(0), node, tree.nodes[node].left)
