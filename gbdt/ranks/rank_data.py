"""The rows that one rank trains on: binned parts put together once, used again after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.partition_binning import BinnedPartition, BinningPlan, assembled
from dmlgbm.gbdt.data.row_binning import BinnedRows
from dmlgbm.gbdt.data.row_numbers import Segment

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartitionRows:
    """What is known of each row of a part besides its features."""

    target: FloatArray
    weight: FloatArray | None = None
    init_score: FloatArray | None = None  # [output, row]
    group_starts: IntArray | None = None  # first row of each query within the part, then the number of rows
    start_score: FloatArray | None = None  # [output, row]: of the model that training goes on from


@dataclass(frozen=True)
class RankPartition:
    """One binned part of the table with what belongs to its rows."""

    binned: BinnedPartition
    rows: PartitionRows


@dataclass(frozen=True)
class RankData:
    """All rows of a rank, in the order of their global numbers."""

    dataset: Dataset
    rows: PartitionRows

    @property
    def n_rows(self) -> int:
        return self.dataset.n_rows

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.dataset.segments

    @classmethod
    def assembled(cls, plan: BinningPlan, partitions: list[RankPartition]) -> RankData:
        """Put parts together; takes them out of the list as they are copied."""
        partitions.sort(key=lambda partition: partition.binned.first_row_number)
        rows = _joined_rows([partition.rows for partition in partitions if partition.binned.n_rows])
        binned = [partition.binned for partition in partitions]
        partitions.clear()
        return cls(assembled(plan, binned), rows)

    @classmethod
    def joined(cls, plan: BinningPlan, parts: list[RankData]) -> RankData:
        """The rows of several ranks in one; takes the parts out of the list."""
        partitions = [partition for part in parts for partition in part.partitions()]
        parts.clear()
        return cls.assembled(plan, partitions)

    def partitions(self) -> list[RankPartition]:
        """The stretches of consecutive rows, as views."""
        return [RankPartition(*self._stretch(segment)) for segment in self.segments]

    def _stretch(self, segment: Segment) -> tuple[BinnedPartition, PartitionRows]:
        start, stop = segment.start, segment.start + segment.n_rows
        storage, rows = self.dataset.storage, self.rows
        binned = BinnedRows(
            storage.narrow[start:stop],
            storage.wide[start:stop],
            storage.sparse_starts[:, start : stop + 1],
            storage.sparse_entries,
        )
        groups = rows.group_starts
        if groups is not None:
            first, last = np.searchsorted(groups, (start, stop))
            groups = groups[first : last + 1] - start
        own = PartitionRows(
            rows.target[start:stop],
            None if rows.weight is None else rows.weight[start:stop],
            None if rows.init_score is None else rows.init_score[:, start:stop],
            groups,
            None if rows.start_score is None else rows.start_score[:, start:stop],
        )
        return BinnedPartition(segment.n_rows, segment.first_row_number, binned), own


def _joined_rows(parts: Sequence[PartitionRows]) -> PartitionRows:
    if not parts:
        return PartitionRows(np.zeros(0))
    lengths = [len(part.target) for part in parts]
    group_starts = None
    if parts[0].group_starts is not None:
        before = np.cumsum([0, *lengths])
        starts = [part.group_starts[:-1] + start for part, start in zip(parts, before, strict=False)]  # type: ignore[index]
        group_starts = np.concatenate([*starts, before[-1:]]).astype(np.int64)
    return PartitionRows(
        np.concatenate([part.target for part in parts]),
        _joined_or_none([part.weight for part in parts], "weight"),
        _joined_or_none([part.init_score for part in parts], "init_score"),
        group_starts,
        _joined_or_none([part.start_score for part in parts], "start_score"),
    )


def _joined_or_none(arrays: Sequence[npt.NDArray[Any] | None], name: str) -> npt.NDArray[Any] | None:
    given = [array for array in arrays if array is not None]
    if not given:
        return None
    if len(given) < len(arrays):
        raise ValueError(f"{name} is given for some partitions only: give it for all or for none.")
    return np.concatenate(given, axis=-1)
