"""The binned training table: made once, read by every tree.

Bins are cut from a sample of rows that depends on nothing but the seed and the row numbers. Then the table is
binned block by block of rows, straight into the row-major storage that histograms read (and a column-major
copy of its one-byte columns, which makes partition twice as fast); the values themselves are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gbdt.feature_bins import CategoricalBins, FeatureBins, NumericBins, cut_numeric
from gbdt.kernels.binning import chosen_rows, fill_sparse_entries
from gbdt.kernels.layout import BinStorage
from gbdt.parameters import BinningParameters
from gbdt.random_keys import Purpose, random_key
from gbdt.storage_plan import SampledFeature, StoragePlan, plan_storage
from gbdt.table import CategoricalColumn, Column, NumericColumn, SparseColumn, Table
from gbdt.threads import Workers

_BLOCK_ROWS = 16_384
# Rows from which the storage plan guesses each feature's usual bin; every row is checked against it later.
_ROWS_FOR_PLAN = 50_000
_GROUP_COLUMNS = 64


@dataclass(frozen=True)
class Dataset:
    """Rows as bins, with the bins of every feature of the original table."""

    storage: BinStorage
    plan: StoragePlan
    bins: tuple[FeatureBins, ...]
    n_rows: int
    first_row_number: int = 0
    # Upper bounds of the value bins of all used features, one after the other; the last of each is infinite.
    bounds: npt.NDArray[np.float64] = field(init=False, repr=False)
    first_bounds: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        used = [self.bins[feature] for feature in self.plan.features]
        bounds = [np.append(b.cuts, np.inf) if isinstance(b, NumericBins) else np.zeros(1) for b in used]
        object.__setattr__(self, "bounds", np.concatenate([np.zeros(0), *bounds]))
        object.__setattr__(self, "first_bounds", np.cumsum([0, *map(len, bounds)])[:-1])


def bin_table(table: Table, parameters: BinningParameters, workers: Workers) -> Dataset:
    """Cut the bins of every feature and bin all rows."""
    sample = _sampled_rows(table.n_rows, parameters)
    bins = tuple(workers.run_each(lambda column: _cut(column, sample, parameters.max_bin), table.columns))
    few = _sampled_rows(table.n_rows, replace(parameters, sample_rows=_ROWS_FOR_PLAN))
    sampled = workers.run_each(
        lambda feature: _sampled_feature(table.columns[feature], bins[feature], few), range(table.n_features)
    )
    # One value bin and the missing bin, and never a missing value: nothing to split.
    features = [f for f in range(table.n_features) if bins[f].n_bins > 2 or sampled[f].share_away > 0.0]
    never_shared: frozenset[int] = frozenset()
    while True:
        plan = plan_storage(bins, sampled, features, never_shared)
        clashing: set[int] = set()
        storage = _bin_rows(table, bins, plan, clashing, workers)
        if storage is not None:
            return Dataset(storage, plan, bins, table.n_rows)
        never_shared |= clashing


def _sampled_rows(n_rows: int, parameters: BinningParameters) -> npt.NDArray[np.uint32] | slice:
    if n_rows <= parameters.sample_rows:
        return slice(None)
    key = random_key(parameters.seed, Purpose.BIN_SAMPLE)
    return chosen_rows(0, n_rows, key, parameters.sample_rows / n_rows)


def _cut(column: Column, sample: npt.NDArray[np.uint32] | slice, max_bin: int) -> FeatureBins:
    if isinstance(column, CategoricalColumn):
        return CategoricalBins(column.categories)
    return cut_numeric(column, sample, max_bin)


def _sampled_feature(column: Column, bins: FeatureBins, sample: npt.NDArray[np.uint32] | slice) -> SampledFeature:
    n_sampled = len(column) if isinstance(sample, slice) else len(sample)
    values = np.empty(n_sampled, np.uint8 if bins.n_bins <= 256 else np.uint16)
    _bins_of_rows(_taken(column, sample), bins, 0, len(values), values)
    counts = np.bincount(values, minlength=bins.n_bins)
    usual = int(counts.argmax())
    return SampledFeature(usual, np.packbits(values != usual), 1.0 - counts[usual] / len(values))


def _taken(column: Column, sample: npt.NDArray[np.uint32] | slice) -> Column:
    """The sampled rows of a column."""
    if isinstance(sample, slice):
        return column
    if isinstance(column, CategoricalColumn):
        return CategoricalColumn(column.codes[sample], column.categories)
    if isinstance(column, NumericColumn):
        return NumericColumn(column.values[sample], None if column.missing is None else column.missing[sample])
    _, places, stored = np.intersect1d(sample, column.rows, assume_unique=True, return_indices=True)
    return SparseColumn(places, column.values[stored], len(sample))


def _bins_of_rows(column: Column, bins: FeatureBins, start: int, stop: int, out: npt.NDArray[np.generic]) -> None:
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


def _bin_rows(
    table: Table, bins: Sequence[FeatureBins], plan: StoragePlan, clashing: set[int], workers: Workers
) -> BinStorage | None:
    """Bin every row. None if features are not alone in their shared column after all: they are in `clashing`."""
    narrow = np.empty((table.n_rows, len(plan.narrow_columns)), np.uint8)
    by_column = np.empty((len(plan.narrow_columns), table.n_rows), np.uint8)
    wide = np.empty((table.n_rows, len(plan.wide_columns)), np.uint16)
    blocks = [(start, min(start + _BLOCK_ROWS, table.n_rows)) for start in range(0, table.n_rows, _BLOCK_ROWS)]

    def write_narrow(column: int, start: int, stop: int, out: npt.NDArray[np.uint8]) -> None:
        members = plan.narrow_columns[column]
        if len(members) == 1:
            feature = plan.features[members[0]]
            _bins_of_rows(table.columns[feature], bins[feature], start, stop, out)
        else:
            _write_shared(table, bins, plan, members, start, stop, out, clashing)

    def write_wide(column: int, start: int, stop: int, out: npt.NDArray[np.uint16]) -> None:
        feature = plan.features[plan.wide_columns[column]]
        _bins_of_rows(table.columns[feature], bins[feature], start, stop, out)

    workers.run_each(lambda block: _write_block(narrow, write_narrow, *block, by_column), blocks)
    if clashing:
        return None
    workers.run_each(lambda block: _write_block(wide, write_wide, *block), blocks)
    tiles = workers.run_each(lambda tile: _sparse_tile(table, bins, plan, tile), plan.sparse_tiles)
    starts = np.empty((len(tiles), table.n_rows + 1), np.int64)
    before = 0
    for tile, (tile_starts, entries) in enumerate(tiles):
        starts[tile] = tile_starts + before
        before += len(entries)
    entries = np.concatenate([entries for _, entries in tiles]) if tiles else np.zeros(0, np.uint16)
    return BinStorage(narrow, by_column, wide, starts, entries, plan.positions, plan.tiles, plan.tile_features)


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
        if by_column is not None:
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
        _bins_of_rows(table.columns[feature], bins[feature], start, stop, own)
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
        _bins_of_rows(column, own_bins, 0, table.n_rows, own)
    away = own != usual
    away_bins = own[away].astype(np.int32)
    values = plan.layout[member]["first_value"] + away_bins - (away_bins > usual)
    return rows[away], values.astype(np.uint16)
