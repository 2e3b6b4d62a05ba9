"""From shares of rows to bins, by Spark's tasks: a sample of all rows, one set of bins, every share binned in place.

Only small things reach the driver: column summaries and receipts. Binned shares stay with Spark, in memory or on disk,
and are computed again from the frame when an executor is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import EvaluationPart
from dmlgbm.gbdt.data.partition_binning import (
    BinningPlan,
    ColumnSummary,
    SampledRows,
    plan_bins,
    sample_rows,
    summarise_columns,
)
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.ranks.checkpoints import rows_digest
from dmlgbm.gbdt.ranks.rank import RankPartition
from dmlgbm.gbdt.threads import Workers
from dmlgbm.spark_backend.cluster import SparkCluster
from dmlgbm.spark_backend.row_sets import FrameRowSet

# A sample of more bytes than this is cut into blocks of columns, one for each slot.
_BYTES_IN_ONE_PLACE = 16 << 20


@dataclass(frozen=True)
class BinnedShare:
    """One share: its binned rows, a digest of its targets, and the features that did not share a column well."""

    number: int
    partition: RankPartition
    digest: int

    def receipt(self) -> tuple[int, frozenset[int]]:
        return self.digest, self.partition.binned.clashing


def cut_bins(rows: FrameRowSet, n_features: int, parameters: BinningParameters) -> list[ColumnSummary]:
    """What the sample of all rows says about every column."""
    n_bytes = 8 * n_features * min(rows.n_rows, parameters.sample_rows)
    n_blocks = 1 if n_bytes <= _BYTES_IN_ONE_PLACE else min(n_features, rows.cluster.slots())
    bounds = [n_features * block // n_blocks for block in range(n_blocks + 1)]
    sampling = _Sampling(rows.first_rows, rows.n_rows, parameters, bounds)
    blocks = rows.shares().flatMap(sampling).groupByKey(n_blocks).map(_Summarising(parameters)).collect()
    return [summary for _, block in sorted(blocks, key=_number) for summary in block]


@dataclass(frozen=True)
class BinnedRows:
    """The binned shares of a fit, kept by Spark, and the plan that they were binned by."""

    rdd: Any
    plan: BinningPlan
    digest: int


def bin_shares(
    cluster: SparkCluster, rows: FrameRowSet, summaries: Sequence[ColumnSummary], initial_model: Booster | None
) -> BinnedRows:
    """Bin all shares; features that clash anywhere get columns of their own everywhere."""
    never_shared: frozenset[int] = frozenset()
    while True:
        plan = plan_bins(summaries, never_shared)
        binning = cluster.share(_BinningAssignment(plan, initial_model, rows.first_rows))
        rdd = cluster.keep(rows.shares().map(_Binning(binning)))
        receipts = rdd.map(BinnedShare.receipt).collect()
        clashing = frozenset().union(*(found for _, found in receipts))
        if not clashing:
            return BinnedRows(rdd, plan, sum(digest for digest, _ in receipts))
        never_shared |= clashing
        cluster.drop(rdd)


def watched_shares(rows: FrameRowSet) -> Any:
    """An RDD of (share, rows to watch)."""
    return rows.shares().map(_Watching(rows.first_rows))


def _number(numbered: tuple[int, Any]) -> int:
    return numbered[0]


@dataclass(frozen=True)
class _Sampling:
    first_rows: list[int]
    n_total: int
    parameters: BinningParameters
    bounds: list[int]

    def __call__(self, share: tuple[int, Rows]) -> Iterator[tuple[int, tuple[int, SampledRows]]]:
        number, rows = share
        sample = sample_rows(
            rows.table,
            first_row_number=self.first_rows[number],
            n_total_rows=self.n_total,
            parameters=self.parameters,
            weight=rows.weight,
        )
        for block, (first, last) in enumerate(pairwise(self.bounds)):
            yield block, (number, sample.of_columns(first, last))


@dataclass(frozen=True)
class _Summarising:
    parameters: BinningParameters

    def __call__(self, block: tuple[int, Iterable[tuple[int, SampledRows]]]) -> tuple[int, list[ColumnSummary]]:
        number, samples = block
        in_order = [sample for _, sample in sorted(samples, key=_number)]
        with Workers(1) as workers:
            return number, summarise_columns(in_order, self.parameters, workers)


@dataclass(frozen=True)
class _BinningAssignment:
    plan: BinningPlan
    initial_model: Booster | None
    first_rows: list[int]


@dataclass(frozen=True)
class _Binning:
    assignment: Any  # broadcast

    def __call__(self, share: tuple[int, Rows]) -> BinnedShare:
        number, rows = share
        assignment: _BinningAssignment = self.assignment.value
        first_row = assignment.first_rows[number]
        with Workers(1) as workers:
            partition = RankPartition.of(rows, assignment.plan, first_row, assignment.initial_model, workers)
        digest = rows_digest(first_row, (rows.target, rows.weight, rows.init_score, rows.position))
        return BinnedShare(number, partition, digest)


@dataclass(frozen=True)
class _Watching:
    first_rows: list[int]

    def __call__(self, share: tuple[int, Rows]) -> tuple[int, EvaluationPart]:
        number, rows = share
        return number, EvaluationPart(rows, self.first_rows[number])
