"""Binning a table that lies in parts, on whatever machines: pure steps from samples to the rows of one data set.

    every part     sample_rows             the rows that the sample of the whole table contains
    in one place   summarise_columns       bins and usual bins (block by block of columns, if need be)
                   plan_bins               where each feature is stored
    every part     bin_partition           its rows as bins, or the features whose shared column does not hold
    each process   assembled               the data set of the parts it holds

If a part names clashing features, the plan is made again without sharing them, and every part is binned again. The
outcome is that of `bin_table` on the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmlgbm.gbdt.data.bin_sample import (
    ColumnSummary,
    SampledRows,
    candidate_rows,
    sample_candidates,
    sample_rows,
    summarise_columns,
)
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.feature_bins import FeatureBins
from dmlgbm.gbdt.data.row_binning import BinnedRows, bin_rows, empty_copy_by_column, stored
from dmlgbm.gbdt.data.row_numbers import placed_in_turn
from dmlgbm.gbdt.data.storage_plan import StoragePlan, plan_storage
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.threads import Workers

__all__ = [
    "BinnedPartition",
    "BinningPlan",
    "ColumnSummary",
    "SampledRows",
    "assembled",
    "bin_partition",
    "candidate_rows",
    "plan_bins",
    "sample_candidates",
    "sample_rows",
    "summarise_columns",
]


@dataclass(frozen=True)
class BinningPlan:
    """How every part of a table is binned."""

    bins: tuple[FeatureBins, ...]
    storage: StoragePlan

    @property
    def n_features(self) -> int:
        return len(self.bins)


@dataclass(frozen=True)
class BinnedPartition:
    """The rows of one part as bins; without rows where features clash."""

    n_rows: int
    first_row_number: int
    rows: BinnedRows
    clashing: frozenset[int] = frozenset()

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.rows)


def plan_bins(summaries: Sequence[ColumnSummary], never_shared: frozenset[int] = frozenset()) -> BinningPlan:
    """Decide the storage of all columns; features in `never_shared` get columns of their own."""
    bins = tuple(summary.bins for summary in summaries)
    sampled = [summary.sampled for summary in summaries]
    features = [feature for feature, summary in enumerate(summaries) if summary.may_split]
    return BinningPlan(bins, plan_storage(bins, sampled, features, never_shared))


def bin_partition(
    table: Table, plan: BinningPlan, *, first_row_number: int, workers: Workers | None = None
) -> BinnedPartition:
    """Bin one part of a table, whose first row has this number in the whole."""
    rows, clashing = bin_rows(table, plan.bins, plan.storage, workers or Workers(1))
    if rows is None:
        return BinnedPartition(0, first_row_number, _no_rows(plan.storage), clashing)
    return BinnedPartition(table.n_rows, first_row_number, rows)


def assembled(plan: BinningPlan, partitions: list[BinnedPartition]) -> Dataset:
    """The data set of some parts, stored in the order of their rows.

    Takes the parts out of the list as they are copied, so that there is never a second copy of everything.
    """
    partitions.sort(key=lambda partition: partition.first_row_number, reverse=True)
    stretches = [(partition.first_row_number, partition.n_rows) for partition in reversed(partitions)]
    n_rows, n_tiles = sum(n for _, n in stretches), len(plan.storage.sparse_tiles)
    lengths = [partition.rows.sparse_starts[:, -1:] - partition.rows.sparse_starts[:, :1] for partition in partitions]
    n_entries = np.concatenate([np.zeros((n_tiles, 1), np.int64), *lengths], axis=1).sum(axis=1)
    tile_ends = np.cumsum(n_entries)
    cursor = tile_ends - n_entries
    narrow = np.empty((n_rows, len(plan.storage.narrow_columns)), np.uint8)
    by_column = empty_copy_by_column(*narrow.shape)
    wide = np.empty((n_rows, len(plan.storage.wide_columns)), np.uint16)
    starts = np.zeros((n_tiles, n_rows + 1), np.int64)
    starts[:, -1] = tile_ends
    entries = np.empty(int(n_entries.sum()), np.uint16)
    end = 0
    while partitions:
        partition = partitions.pop()
        start, end = end, end + partition.n_rows
        narrow[start:end], wide[start:end] = partition.rows.narrow, partition.rows.wide
        if len(by_column):
            by_column[:, start:end] = partition.rows.narrow.T
        for tile, own_starts in enumerate(partition.rows.sparse_starts):
            own = partition.rows.sparse_entries[own_starts[0] : own_starts[-1]]
            starts[tile, start:end] = own_starts[:-1] + (cursor[tile] - own_starts[0])
            entries[cursor[tile] : cursor[tile] + len(own)] = own
            cursor[tile] += len(own)
    storage = stored(BinnedRows(narrow, wide, starts, entries), by_column, plan.storage)
    return Dataset(storage, plan.storage, plan.bins, n_rows, placed_in_turn(stretches))


def _no_rows(plan: StoragePlan) -> BinnedRows:
    return BinnedRows(
        np.empty((0, len(plan.narrow_columns)), np.uint8),
        np.empty((0, len(plan.wide_columns)), np.uint16),
        np.zeros((len(plan.sparse_tiles), 1), np.int64),
        np.empty(0, np.uint16),
    )
