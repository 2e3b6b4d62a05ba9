"""From rows of all columns to all rows of some columns: who owns which column, and the exchange that makes it so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.joint_columns import describe_joints
from dmlgbm.gbdt.data.partition_binning import BinnedPartition, BinningPlan, assembled
from dmlgbm.gbdt.data.row_binning import BinnedRows
from dmlgbm.gbdt.data.row_numbers import Segment
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.storage_plan import StoragePlan, cut_tiles
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.kernels.layout import NARROW, SPARSE, WIDE
from dmlgbm.gbdt.ranks.exchange import RankExchange

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
StoredColumns = tuple[list[int], list[int], list[int]]
"""Narrow columns, wide columns and sparse tiles."""


def column_shares(plan: StoragePlan, n_ranks: int) -> list[StoredColumns]:
    """The columns of each rank: neighbours, so that every rank has about as many bins to search."""
    sizes = np.diff([*plan.positions.tolist(), plan.n_positions])
    middles = np.cumsum(sizes) - sizes / 2
    owners = np.minimum(middles * n_ranks // max(plan.n_positions, 1), n_ranks - 1).astype(np.int64)
    ends = np.cumsum([0, len(plan.narrow_columns), len(plan.wide_columns), len(plan.sparse_tiles)])
    shares: list[StoredColumns] = []
    for rank in range(n_ranks):
        own = [np.flatnonzero(owners[start:stop] == rank).tolist() for start, stop in pairwise(ends)]
        shares.append((own[0], own[1], own[2]))
    return shares


def most_columns(plan: StoragePlan, n_ranks: int) -> int:
    """The columns of the rank that has most."""
    return max(sum(len(own) for own in columns) for columns in column_shares(plan, n_ranks))


def plan_of_columns(plan: StoragePlan, columns: StoredColumns) -> StoragePlan:
    """The plan for some columns only; features of others stay listed, stored nowhere."""
    layout = plan.layout.copy()
    layout["storage"] = -1
    positions: list[int] = []
    position = before = 0
    all_positions = [*plan.positions.tolist(), plan.n_positions]
    for storage, n_columns, own in zip(
        (NARROW, WIDE, SPARSE),
        (len(plan.narrow_columns), len(plan.wide_columns), len(plan.sparse_tiles)),
        columns,
        strict=True,
    ):
        for index, column in enumerate(own):
            members = np.flatnonzero((plan.layout["storage"] == storage) & (plan.layout["column"] == column))
            first, last = all_positions[before + column], all_positions[before + column + 1]
            layout["storage"][members] = storage
            layout["column"][members] = index
            layout["position"][members] += position - first
            positions.append(position)
            position += last - first
        before += n_columns
    narrow, wide, sparse = columns
    joints = describe_joints(layout, len(narrow), positions, position)
    tiles, tile_features = cut_tiles(layout, positions, position, joints.parts)
    return replace(
        plan,
        layout=layout,
        narrow_columns=tuple(plan.narrow_columns[column] for column in narrow),
        wide_columns=tuple(plan.wide_columns[column] for column in wide),
        sparse_tiles=tuple(plan.sparse_tiles[tile] for tile in sparse),
        positions=np.array(positions, np.uint32),
        n_positions=position,
        tiles=tiles,
        tile_features=tile_features,
        joints=joints,
    )


def exchange_columns(dataset: Dataset, exchange: RankExchange) -> Dataset:
    """All rows of this rank's columns, in the order of their global numbers."""
    shares = column_shares(dataset.plan, exchange.n_ranks)
    received = exchange.all_to_all_unequal([_as_bytes(dataset, columns) for columns in shares])
    own_plan = plan_of_columns(dataset.plan, shares[exchange.rank])
    partitions: list[BinnedPartition] = []
    for data, segments in zip(received, gathered_segments(dataset.segments, exchange), strict=True):
        rows = _from_bytes(data, sum(segment.n_rows for segment in segments), shares[exchange.rank])
        partitions += [_partition(rows, segment) for segment in segments]
    return assembled(BinningPlan(dataset.bins, own_plan), partitions)


def gathered_segments(segments: Sequence[Segment], exchange: RankExchange) -> list[list[Segment]]:
    """The segments of every rank."""
    own = np.array(segments, np.int64).reshape(-1, 3)
    return [[Segment(*row) for row in rows.tolist()] for rows in exchange.all_gather_unequal(own)]


def gatherer(segments: Sequence[Segment], exchange: RankExchange) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    """What makes values for the rows here, their last axis, those for all rows in the order of their global numbers."""
    of_ranks = gathered_segments(segments, exchange)
    starts = np.cumsum([0, *(sum(segment.n_rows for segment in own) for own in of_ranks)])
    stretches = sorted(
        (segment.first_row_number, int(start) + segment.start, segment.n_rows)
        for own, start in zip(of_ranks, starts, strict=False)
        for segment in own
    )
    order = np.concatenate([np.zeros(0, np.int64), *(np.arange(first, first + n) for _, first, n in stretches)])

    def in_order(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        everybody = np.concatenate(exchange.all_gather_unequal(np.ascontiguousarray(values.T)))
        return np.ascontiguousarray(everybody[order].T)

    return in_order


def gathered_rows(rows: Rows, segments: Sequence[Segment], exchange: RankExchange) -> Rows:
    """What is known of the rows of all ranks, in the order of their global numbers."""
    in_order = gatherer(segments, exchange)
    target = in_order(rows.target)
    group_starts = None
    if rows.group_starts is not None:
        marks = np.zeros(rows.n_rows)
        marks[rows.group_starts[:-1]] = 1.0
        group_starts = np.append(np.flatnonzero(in_order(marks)), len(target)).astype(np.int64)
    return Rows(
        Table((), len(target)),
        target,
        None if rows.weight is None else in_order(rows.weight),
        None if rows.init_score is None else in_order(rows.init_score),
        group_starts,
        position=None if rows.position is None else in_order(rows.position),
    )


def _as_bytes(dataset: Dataset, columns: StoredColumns) -> Bytes:
    """The rows here of some columns: narrow, wide, then lengths and entries of each sparse tile."""
    storage, (narrow, wide, sparse) = dataset.storage, columns
    parts: list[npt.NDArray[Any]] = [storage.narrow[:, narrow], storage.wide[:, wide]]
    for tile in sparse:
        starts = storage.sparse_starts[tile]
        parts += [np.diff(starts).astype(np.int32), storage.sparse_entries[starts[0] : starts[-1]]]
    return np.concatenate(
        [np.zeros(0, np.uint8), *(np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts)]
    )


def _from_bytes(data: Bytes, n_rows: int, columns: StoredColumns) -> BinnedRows:
    """What `_as_bytes` wrote for `n_rows` rows."""
    narrow, wide, sparse = (len(own) for own in columns)
    cursor = n_rows * narrow
    narrow_rows = data[:cursor].reshape(n_rows, narrow)
    wide_rows = data[cursor : cursor + 2 * n_rows * wide].copy().view(np.uint16).reshape(n_rows, wide)
    cursor += 2 * n_rows * wide
    starts, entries = np.zeros((sparse, n_rows + 1), np.int64), [np.zeros(0, np.uint16)]
    before = 0
    for tile in range(sparse):
        lengths = data[cursor : cursor + 4 * n_rows].copy().view(np.int32)
        cursor += 4 * n_rows
        starts[tile] = before + np.cumsum([0, *lengths])
        n_entries = int(starts[tile, -1]) - before
        entries.append(data[cursor : cursor + 2 * n_entries].copy().view(np.uint16))
        cursor += 2 * n_entries
        before += n_entries
    return BinnedRows(narrow_rows, wide_rows, starts, np.concatenate(entries))


def _partition(rows: BinnedRows, segment: Segment) -> BinnedPartition:
    start, stop = segment.start, segment.start + segment.n_rows
    own = BinnedRows(
        rows.narrow[start:stop], rows.wide[start:stop], rows.sparse_starts[:, start : stop + 1], rows.sparse_entries
    )
    return BinnedPartition(segment.n_rows, segment.first_row_number, own)
