"""Writes the bins of a table's rows into the storage that a plan lays out.

The table is read block by block of rows, straight into the row-major storage that histograms read (and, where it is
wanted, a column-major copy of its one-byte columns, which makes partition twice as fast); values are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.feature_bins import CategoricalBins, FeatureBins, NumericBins
from dmlgbm.gbdt.data.storage_plan import StoragePlan
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, SparseColumn, Table
from dmlgbm.gbdt.kernels.binning import fill_sparse_entries, list_rows_by_value
from dmlgbm.gbdt.kernels.layout import BinStorage
from dmlgbm.gbdt.threads import Workers

_BLOCK_ROWS = 16_384
# With more columns, histograms take so long that partition does not matter, and the copy is most of the memory.
_MOST_COLUMNS_COPIED = 128
_GROUP_COLUMNS = 64
# With more sparse entries a row, too, histograms take most of the time, and a list of four bytes an entry most memory.
_MOST_ENTRIES_LISTED = 32


class BinnedRows(NamedTuple):
    """The arrays of `BinStorage` that hold rows."""

    narrow: npt.NDArray[np.uint8]  # [row, column]
    wide: npt.NDArray[np.uint16]  # [row, column]
    sparse_starts: npt.NDArray[np.int64]  # [tile, row + 1]
    sparse_entries: npt.NDArray[np.uint16]


def bin_rows(
    table: Table,
    bins: Sequence[FeatureBins],
    plan: StoragePlan,
    workers: Workers,
    by_column: npt.NDArray[np.uint8] | None = None,
) -> tuple[BinnedRows | None, frozenset[int]]:
    """Bin every row; also into `by_column` [column, row] if it is given.

    Nothing but the features that are not alone in their shared column after all, where there are such.
    """
    narrow = np.empty((table.n_rows, len(plan.narrow_columns)), np.uint8)
    wide = np.empty((table.n_rows, len(plan.wide_columns)), np.uint16)
    blocks = [(start, min(start + _BLOCK_ROWS, table.n_rows)) for start in range(0, table.n_rows, _BLOCK_ROWS)]
    clashing: set[int] = set()

    def write_narrow(column: int, start: int, stop: int, out: npt.NDArray[np.uint8]) -> None:
        parts = plan.parts_of(column)
        if len(parts) == 1:
            write_members(parts[0], start, stop, out)
            return
        own = np.empty(stop - start, np.uint8)
        out[:] = 0
        for members in parts:
            write_members(members, start, stop, own)
            if own.max(initial=0) >= plan.layout["values"][members[0]]:
                # A value is missing after all.
                clashing.add(int(plan.features[members[0]]))
            own *= plan.layout["stride"][members[0]].astype(np.uint8)
            out += own

    def write_members(members: Sequence[int], start: int, stop: int, out: npt.NDArray[np.uint8]) -> None:
        if len(members) == 1:
            feature = plan.features[members[0]]
            bins_of_rows(table.columns[feature], bins[feature], start, stop, out)
        else:
            _write_shared(table, bins, plan, members, start, stop, out, clashing)

    def write_wide(column: int, start: int, stop: int, out: npt.NDArray[np.uint16]) -> None:
        feature = plan.features[plan.wide_columns[column]]
        bins_of_rows(table.columns[feature], bins[feature], start, stop, out)

    workers.run_each(lambda block: _write_block(narrow, write_narrow, *block, by_column), blocks)
    if clashing:
        return None, frozenset(clashing)
    workers.run_each(lambda block: _write_block(wide, write_wide, *block), blocks)
    tiles = workers.run_each(lambda tile: _sparse_tile(table, bins, plan, tile), plan.sparse_tiles)
    starts = np.empty((len(tiles), table.n_rows + 1), np.int64)
    before = 0
    for tile, (tile_starts, entries) in enumerate(tiles):
        starts[tile] = tile_starts + before
        before += len(entries)
    entries = np.concatenate([entries for _, entries in tiles]) if tiles else np.zeros(0, np.uint16)
    return BinnedRows(narrow, wide, starts, entries), frozenset()


def empty_copy_by_column(n_rows: int, n_columns: int) -> npt.NDArray[np.uint8]:
    """Room for one-byte columns, column by column, or for none where a copy is not worth its memory."""
    return np.empty((n_columns if n_columns <= _MOST_COLUMNS_COPIED else 0, n_rows), np.uint8)


def stored(rows: BinnedRows, by_column: npt.NDArray[np.uint8], plan: StoragePlan) -> BinStorage:
    """Rows as kernels take them, with the lists that make partition faster where entries are few."""
    return BinStorage(
        rows.narrow,
        by_column,
        rows.wide,
        rows.sparse_starts,
        rows.sparse_entries,
        *_rows_by_value(rows, plan),
        plan.positions,
        plan.tiles,
        plan.tile_features,
        plan.joints.sum_positions,
        plan.joints.parts,
        plan.joints.digits,
    )


def _rows_by_value(rows: BinnedRows, plan: StoragePlan) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The rows of all sparse entries by stored value, and where each list starts; nothing if it is not worth it."""
    n_rows = len(rows.narrow)
    if not 0 < len(rows.sparse_entries) <= _MOST_ENTRIES_LISTED * n_rows:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    first_position = int(plan.positions[len(plan.narrow_columns) + len(plan.wide_columns)])
    bases = plan.positions[len(plan.narrow_columns) + len(plan.wide_columns) :].astype(np.int64) - first_position
    starts = np.zeros(plan.n_positions - first_position + 1, np.int64)
    listed = np.empty(len(rows.sparse_entries), np.uint32)
    list_rows_by_value(rows.sparse_starts, rows.sparse_entries, bases, starts, listed)
    return listed, starts


def bins_of_rows(column: Column, bins: FeatureBins, start: int, stop: int, out: npt.NDArray[np.generic]) -> None:
    """Write the bins of rows start..stop of a column of any kind."""
    if isinstance(bins, CategoricalBins):
        assert isinstance(column, CategoricalColumn)
        bins.bins_of(column, start, stop, out)
    elif isinstance(column, SparseColumn):
        out[:] = _bin_of_zero(bins)
        first, last = np.searchsorted(column.rows, (start, stop))
        stored = np.empty(last - first, out.dtype)
        bins.bins_of(NumericColumn(column.values[first:last]), 0, last - first, stored)
        out[column.rows[first:last] - start] = stored
    else:
        assert isinstance(column, NumericColumn)
        bins.bins_of(column, start, stop, out)


def _bin_of_zero(bins: NumericBins) -> int:
    return int(np.searchsorted(bins.cuts, 0.0))


def _write_block(
    storage: npt.NDArray[np.generic],
    write_column: Callable[[int, int, int, npt.NDArray[Any]], None],
    start: int,
    stop: int,
    by_column: npt.NDArray[np.generic] | None = None,
) -> None:
    """Bin a block of rows: some columns at a time, each contiguous, then turned into rows while in cache."""
    n_columns = storage.shape[1]
    columns = np.empty((min(_GROUP_COLUMNS, n_columns), stop - start), storage.dtype)
    for first in range(0, n_columns, _GROUP_COLUMNS):
        last = min(first + _GROUP_COLUMNS, n_columns)
        for column in range(first, last):
            write_column(column, start, stop, columns[column - first])
        storage[start:stop, first:last] = columns[: last - first].T
        if by_column is not None and len(by_column):
            by_column[first:last, start:stop] = columns[: last - first]


def _write_shared(
    table: Table,
    bins: Sequence[FeatureBins],
    plan: StoragePlan,
    members: Sequence[int],
    start: int,
    stop: int,
    out: npt.NDArray[np.uint8],
    clashing: set[int],
) -> None:
    out[:] = 0
    own = np.empty(stop - start, np.uint8)
    for member in members:
        feature = int(plan.features[member])
        usual = int(plan.layout[member]["implicit_bin"])
        bins_of_rows(table.columns[feature], bins[feature], start, stop, own)
        away = np.flatnonzero(own != usual)
        if np.any(out[away]):
            clashing.add(feature)
            continue
        away_bins = own[away]
        out[away] = plan.layout[member]["first_value"] + away_bins - (away_bins > usual)


def _sparse_tile(
    table: Table, bins: Sequence[FeatureBins], plan: StoragePlan, members: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """Row starts and entries of one tile: the stored values of each row, ascending."""
    stored = [_stored_values(table, bins, plan, member) for member in members]
    lengths = np.zeros(table.n_rows + 1, np.int64)
    for rows, _ in stored:
        lengths[rows + np.uint32(1)] += 1
    starts = np.cumsum(lengths)
    entries = np.empty(starts[-1], np.uint16)
    cursor = starts[:-1].copy()
    for rows, values in stored:
        fill_sparse_entries(rows, values, cursor, entries)
    return starts, entries


def _stored_values(
    table: Table, bins: Sequence[FeatureBins], plan: StoragePlan, member: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """The rows in which a feature is away from its usual bin, and what the tile stores for them."""
    feature = int(plan.features[member])
    column, usual = table.columns[feature], int(plan.layout[member]["implicit_bin"])
    own_bins = bins[feature]
    if isinstance(column, SparseColumn) and isinstance(own_bins, NumericBins) and usual == _bin_of_zero(own_bins):
        rows = column.rows.astype(np.uint32)
        own = np.empty(len(rows), np.uint8)
        own_bins.bins_of(NumericColumn(column.values), 0, len(rows), own)
    else:
        rows = np.arange(table.n_rows, dtype=np.uint32)
        own = np.empty(table.n_rows, np.uint8)
        bins_of_rows(column, own_bins, 0, table.n_rows, own)
    away = own != usual
    away_bins = own[away].astype(np.int32)
    values = plan.layout[member]["first_value"] + away_bins - (away_bins > usual)
    return rows[away], values.astype(np.uint16)
