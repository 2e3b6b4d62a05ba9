"""A fit over ranks from one table: cut into parts anywhere, dealt to ranks in any way, trained by threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.gbdt.boosting.evaluation import EvaluationPart, EvaluationSet
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.partition_binning import (
    BinnedPartition,
    BinningPlan,
    bin_partition,
    plan_bins,
    sample_rows,
    summarise_columns,
)
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, SparseColumn, Table
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.ranks.rank import (
    RankData,
    RankPartition,
    RankResult,
    RankTask,
    train_rank,
)
from dmlgbm.gbdt.training import TrainingResult, train

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Everything that a fit is given, local or over ranks."""

    rows: Rows
    objective: ObjectiveSettings
    parameters: TrainParameters
    binning: BinningParameters = field(default_factory=BinningParameters)
    evaluation_sets: tuple[EvaluationSet, ...] = ()
    metrics: tuple[Metric, ...] = ()

    def locally(self) -> TrainingResult:
        """The fit in one process."""
        return train(
            self.parameters,
            self.binning,
            self.rows,
            self.objective,
            evaluation_sets=self.evaluation_sets,
            metrics=self.metrics,
        )

    def in_parts(self, bounds: Sequence[int]) -> tuple[BinningPlan, list[RankPartition]]:
        """The table cut at `bounds`, binned part by part as on a cluster."""
        plan, binned = binned_parts(self.rows.table, bounds, self.binning, self.rows.weight)
        rows = [self.rows.slice(start, stop).without_columns() for start, stop in pairwise(bounds)]
        return plan, [RankPartition(*pair) for pair in zip(binned, rows, strict=True)]

    def task(self, plan: BinningPlan, **options: Any) -> RankTask:
        """What every rank is told."""
        described = (self.parameters, self.objective, plan, Columns.of(self.rows.table), self.rows.n_rows)
        return RankTask(*described, metrics=self.metrics, **options)

    def evaluation_of(self, rank: int, n_ranks: int) -> list[EvaluationSet]:
        """A rank's parts of the evaluation sets, cut at queries where there are any."""
        return [
            EvaluationSet(one.name, _parts_of_rank(whole.rows, rank, n_ranks))
            for one in self.evaluation_sets
            for whole in one.parts
        ]


@dataclass(frozen=True)
class Deal:
    """Where a table is cut, and which rank gets which part."""

    n_ranks: int
    bounds: Sequence[int]
    owners: Sequence[int]

    def data(self, fit: Fit) -> tuple[BinningPlan, list[RankData]]:
        """The rows of every rank."""
        plan, partitions = fit.in_parts(self.bounds)
        dealt: list[list[RankPartition]] = [[] for _ in range(self.n_ranks)]
        for partition, owner in zip(partitions, self.owners, strict=True):
            dealt[owner].append(partition)
        return plan, [RankData.assembled(plan, own) for own in dealt]


def even_deal(n_rows: int, n_ranks: int) -> Deal:
    """As many parts as ranks, of about equal size."""
    return Deal(n_ranks, [n_rows * k // n_ranks for k in range(n_ranks + 1)], range(n_ranks))


def random_deal(random: np.random.Generator, n_rows: int, n_ranks: int, n_parts: int) -> Deal:
    """Any parts, some of them empty perhaps, to any ranks, some of which may get nothing."""
    inner = np.sort(random.integers(0, n_rows + 1, n_parts - 1)).tolist()
    return Deal(n_ranks, [0, *inner, n_rows], random.integers(0, n_ranks, n_parts).tolist())


def over_ranks(fit: Fit, deal: Deal, *, transport: str = "memory", **options: Any) -> list[RankResult]:
    """The fit over ranks; every rank's result. Options are those of `RankTask`, and those of `train_rank` by rank."""
    by_rank = {name: options.pop(name) for name in ("callbacks", "on_iteration", "resume") if name in options}
    plan, data = deal.data(fit)
    task = fit.task(plan, **options)

    def train_one(communicator: Communicator) -> RankResult:
        own = by_rank if communicator.rank == 0 or "resume" in by_rank else {}
        evaluation = fit.evaluation_of(communicator.rank, deal.n_ranks)
        return train_rank(communicator, data[communicator.rank], task, evaluation_sets=evaluation, **own)

    return run_threads(train_one, deal.n_ranks, transport=transport)


def binned_parts(
    table: Table, bounds: Sequence[int], binning: BinningParameters, weight: FloatArray | None = None
) -> tuple[BinningPlan, list[BinnedPartition]]:
    """Every part of a table binned by itself, by the plan that all of them agree on."""
    parts = [table.slice(start, stop) for start, stop in pairwise(bounds)]
    samples = [
        sample_rows(
            part,
            first_row_number=start,
            n_total_rows=table.n_rows,
            parameters=binning,
            weight=None if weight is None else weight[start : start + part.n_rows],
        )
        for part, start in zip(parts, bounds, strict=False)
    ]
    summaries = summarise_columns(samples, binning)
    never_shared: frozenset[int] = frozenset()
    while True:
        plan = plan_bins(summaries, never_shared)
        binned = [bin_partition(part, plan, first_row_number=start) for part, start in zip(parts, bounds, strict=False)]
        clashing = frozenset().union(*(part.clashing for part in binned))
        if not clashing:
            return plan, binned
        never_shared |= clashing


def _parts_of_rank(whole: Rows, rank: int, n_ranks: int) -> list[EvaluationPart]:
    bounds = [whole.n_rows * k // (2 * n_ranks) for k in range(2 * n_ranks + 1)]
    if whole.group_starts is not None:
        positions = [len(whole.group_starts[:-1]) * k // (2 * n_ranks) for k in range(2 * n_ranks + 1)]
        bounds = [int(whole.group_starts[position]) for position in positions]
    # Neighbouring parts lie on different ranks, so that the order of rows is not that of ranks.
    return [
        EvaluationPart(whole.slice(bounds[part], bounds[part + 1]), bounds[part])
        for part in range(rank, 2 * n_ranks, n_ranks)
    ]


def every_kind_of_column(random: np.random.Generator, n_rows: int) -> tuple[Table, FloatArray]:
    """Numbers, missing values, exclusive and sparse columns, few and many categories; and a signal in all of them."""
    numbers = random.normal(size=(n_rows, 2))
    gaps = np.where(random.random(n_rows) < 0.2, np.nan, random.normal(size=n_rows))
    exclusive = np.eye(4)[random.integers(0, 4, n_rows)]
    codes = random.integers(-1, 8, n_rows).astype(np.int8)
    many = random.integers(0, 400, n_rows).astype(np.int16)
    # Away from zero in a tenth of the rows and often together: too many to share columns, so stored as entries.
    sparse = [np.flatnonzero(random.random(n_rows) < 0.1) for _ in range(20)]
    sparse_values = [random.normal(size=len(rows)) for rows in sparse]
    columns = (
        *(NumericColumn(numbers[:, k]) for k in range(2)),
        NumericColumn(gaps),
        *(NumericColumn(exclusive[:, k]) for k in range(4)),
        NumericColumn(random.integers(-100, 100, n_rows).astype(np.int8), random.random(n_rows) < 0.1),
        CategoricalColumn(codes, tuple("abcdefgh")),
        CategoricalColumn(many, tuple(f"c{k}" for k in range(400))),
        *(SparseColumn(rows, values, n_rows) for rows, values in zip(sparse, sparse_values, strict=True)),
    )
    signal = numbers[:, 0] + np.nan_to_num(gaps, nan=1.5) + exclusive @ [0.0, 1.0, 2.0, 0.5] + (codes % 3 == 1)
    signal += np.sin(many)
    for rows, values in zip(sparse[:4], sparse_values[:4], strict=True):
        signal[rows] += 2.0 * (values > 0)
    return Table(columns, n_rows), signal - signal.mean()
