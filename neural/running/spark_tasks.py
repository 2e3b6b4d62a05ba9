"""Ranks in a barrier stage of Spark, one a task: seen from the driver and from the task.

The parts of a fit are an RDD that Spark keeps, and computes again where an executor was lost. Rank 0 tells the driver
of every commit, so the next generation starts there. The stage and the line to the driver are those of the tree learner
(`dmlgbm.spark_backend.generation`).
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dmlgbm.gbdt.ranks.losses import RanksLostError
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.running.generations import CommitKeeper, Survivor
from dmlgbm.neural.running.parted_run import PartedRun
from dmlgbm.neural.running.row_parts import PartTable, RowPart
from dmlgbm.neural.training import Job, Trained, train
from dmlgbm.spark_backend.cluster import SparkCluster
from dmlgbm.spark_backend.generation import run_ranks
from dmlgbm.spark_backend.rank_task import join_ranks
from dmlgbm.spark_backend.reports import DriverAddress, DriverLine, Kind, RankLine

# An executor that was killed is usually started again within this time; later ones are not waited for.
_SECONDS_FOR_RETURN = 10.0
_SECONDS_WITHOUT_EXECUTORS = 60.0
_POLL_SECONDS = 0.1
_SECRET_BYTES = 32


@dataclass(frozen=True)
class SparkAssignment:
    """What all ranks of one generation are told."""

    driver: DriverAddress
    job: Job
    table: PartTable
    start: Commit | None


def train_on_spark(
    cluster: SparkCluster, job: Job, parts: Any, table: PartTable, survivor: Survivor, max_ranks: int | None = None
) -> Trained:
    """Train on as many ranks as tasks can run at once, at most `max_ranks`; `parts` is an RDD of (number, RowPart)."""
    run = _SparkRun(cluster, job, parts, table, survivor, max_ranks)
    return survivor.run(run.n_ranks(), run.generation)


@dataclass
class _SparkRun(PartedRun[SparkCluster, Any]):
    """One fit in one application."""

    def n_ranks(self) -> int:
        """A rank for each task that can run at once, as far as there are parts with rows."""
        return max(1, min(self.most_ranks(), self.cluster.slots()))

    def generation(self, n_ranks: int, start: Commit | None) -> Trained:
        """Train with the executors that are there now."""
        cluster, number = self.cluster, self.n_generations
        self.n_generations += 1
        ranks = ranks_of_parts(self.table.lengths, n_ranks)
        n_ranks = max(ranks) + 1
        rows = self.parts.map(_WorkedOnBy(ranks)).partitionBy(n_ranks, int)
        host = cluster.setting("spark.driver.host", "localhost")
        bind = cluster.setting("spark.driver.bindAddress", host)
        secret = secrets.token_bytes(_SECRET_BYTES)
        try:
            with DriverLine(bind, host, cluster.fit_id, secret, number, n_ranks) as line:
                assignment = SparkAssignment(line.address, self.job, self.table, start)
                keeper = CommitKeeper(self.survivor)
                results = run_ranks(cluster, line, assignment, rows, keeper, train_as_rank, Commit.from_bytes)
        except RanksLostError as error:
            raise RanksLostError(str(error), self._n_ranks_after_loss(n_ranks)) from error
        return results[0]

    def _n_ranks_after_loss(self, n_before: int) -> int:
        """How many ranks can go on, as soon as that is known; 0 where all executors are gone."""
        until_returned = time.monotonic() + _SECONDS_FOR_RETURN
        until_any = time.monotonic() + _SECONDS_WITHOUT_EXECUTORS
        while (n_slots := self.cluster.slots()) < n_before and time.monotonic() < until_any:
            if n_slots and time.monotonic() > until_returned:
                break
            time.sleep(_POLL_SECONDS)
        return self.n_ranks() if n_slots else 0


def train_as_rank(
    context: Any, rank: int, assignment: SparkAssignment, items: Iterable[tuple[int, RowPart]]
) -> Trained | None:
    """The work of a task; the result travels back from rank 0 alone."""
    shards = assignment.table.shards([part for _, part in items])
    with contextlib.ExitStack() as stack:
        communicator = stack.enter_context(join_ranks(context, rank, assignment.driver))
        stack.enter_context(threadpool_limits(max(1, int(context.cpus()))))
        line = stack.enter_context(RankLine(assignment.driver, rank)) if rank == 0 else None

        def report(commit: Commit) -> None:
            assert line is not None
            line.tell(Kind.ITERATION, commit.to_bytes())

        trained = train(communicator, assignment.job, *shards, start=assignment.start, on_commit=report)
    return trained if rank == 0 else None


def ranks_of_parts(lengths: tuple[int, ...], n_ranks: int) -> list[int]:
    """The rank of each part: neighbours together, about as many rows for every rank, and no rank without any."""
    ends = np.cumsum(lengths)
    middles = ends - np.array(lengths) / 2
    wanted = np.minimum(middles * n_ranks // max(int(ends[-1]), 1), n_ranks - 1).astype(int)
    used = np.unique(wanted[np.array(lengths) > 0])
    # Parts without rows go where they cause no rank of their own.
    return np.minimum(np.searchsorted(used, wanted), len(used) - 1).tolist()


@dataclass(frozen=True)
class _WorkedOnBy:
    ranks: list[int]

    def __call__(self, numbered: tuple[int, RowPart]) -> tuple[int, RowPart]:
        number, part = numbered
        return self.ranks[number], part
