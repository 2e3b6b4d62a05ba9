"""The rows that one rank trains on: binned parts put together once, used again after a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import start_scores
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.partition_binning import BinnedPartition, BinningPlan, assembled, bin_partition
from dmlgbm.gbdt.data.row_binning import BinnedRows
from dmlgbm.gbdt.data.row_numbers import Segment
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.threads import Workers


@dataclass(frozen=True)
class RankPartition:
    """One binned part of the table with what else is known of its rows.

    Their `init_score` are the scores that this fit starts from: those of the model that it goes on from, if there is
    one.
    """

    binned: BinnedPartition
    rows: Rows  # without columns

    @classmethod
    def of(
        cls,
        rows: Rows,
        plan: BinningPlan,
        first_row_number: int,
        initial_model: Booster | None = None,
        workers: Workers | None = None,
    ) -> RankPartition:
        """Bin a part, whose first row has this number in the whole."""
        binned = bin_partition(rows.table, plan, first_row_number=first_row_number, workers=workers)
        if initial_model is not None:
            rows = replace(rows, init_score=start_scores(initial_model, rows, workers or Workers(1)))
        return cls(binned, rows.without_columns())


@dataclass(frozen=True)
class RankData:
    """All rows of a rank, in the order of their global numbers."""

    dataset: Dataset
    rows: Rows  # without columns

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
        rows = Rows.join([partition.rows for partition in partitions])
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
        return [self._stretch(segment) for segment in self.segments]

    def _stretch(self, segment: Segment) -> RankPartition:
        start, stop = segment.start, segment.start + segment.n_rows
        storage = self.dataset.storage
        binned = BinnedRows(
            storage.narrow[start:stop],
            storage.wide[start:stop],
            storage.sparse_starts[:, start : stop + 1],
            storage.sparse_entries,
        )
        partition = BinnedPartition(segment.n_rows, segment.first_row_number, binned)
        return RankPartition(partition, self.rows.slice(start, stop))
