"""Ranks on the workers of a Dask cluster, one on each: seen from the client and from the task.

The rows of a rank are the inputs of its task, so Dask brings them to the worker and computes them again when the
worker that had them is lost. Rank 0 reports a commit after every epoch; what the client has of them is where the next
generation starts. Generations, TLS and the end of ranks are those of the tree learner
(`dmlgbm.dask_backend.generation`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from dmlgbm.dask_backend.cluster import Cluster, DaskCluster, Handle
from dmlgbm.dask_backend.generation import run_ranks
from dmlgbm.dask_backend.placement import place_shares
from dmlgbm.dask_backend.rank_task import RankOutcome, RunningRank, host_rank, join_ranks
from dmlgbm.dask_backend.worker_holdings import Holdings, drop_holdings
from dmlgbm.gbdt.ranks.losses import RanksLostError
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.lone_communicator import LoneCommunicator
from dmlgbm.neural.running.generations import CommitKeeper, Survivor
from dmlgbm.neural.running.parted_run import PartedRun
from dmlgbm.neural.running.row_parts import PartTable, RowPart
from dmlgbm.neural.training import Job, Trained, train

# A worker that was killed is usually started again within this time; later ones are not waited for.
_SECONDS_FOR_RETURN = 3.0
_SECONDS_WITHOUT_WORKERS = 60.0


@dataclass(frozen=True)
class NeuralAssignment:
    """What all ranks of one generation are told."""

    fit_id: str
    generation: int
    job: Job
    table: PartTable
    start: Commit | None


@dataclass(frozen=True)
class WorkerPlace:
    """Where a rank runs."""

    worker: str


def train_on_cluster(
    cluster: Cluster,
    fit_id: str,
    job: Job,
    parts: Sequence[Handle],
    table: PartTable,
    survivor: Survivor,
    max_ranks: int | None = None,
) -> Trained:
    """Train on every worker, or on at most `max_ranks`; in this process where there is no cluster."""
    if not isinstance(cluster, DaskCluster):
        communicator: Any = LoneCommunicator()
        return train(communicator, job, *table.shards(list(parts)))
    run = _ClusterRun(cluster, job, parts, table, survivor, max_ranks, fit_id)
    return survivor.run(len(run.workers()), run.generation)


@dataclass
class _ClusterRun(PartedRun[DaskCluster, Sequence[Handle]]):
    """One fit on one cluster, with ranks on its workers."""

    fit_id: str

    def workers(self) -> list[str]:
        """The workers that take part: not more than there are parts with rows."""
        return sorted(self.cluster.workers())[: self.most_ranks()]

    def generation(self, n_ranks: int, start: Commit | None) -> Trained:
        """Train with the workers that are there now."""
        self._wait_for_workers(n_ranks)
        workers = self.workers()
        owners = place_shares(self.table.lengths, self.cluster.holders(self.parts), dict.fromkeys(workers, 1))
        workers = [worker for worker in workers if worker in owners]
        inputs = [
            [part for part, owner in zip(self.parts, owners, strict=True) if owner == worker] for worker in workers
        ]
        assignment = NeuralAssignment(self.fit_id, self.n_generations, self.job, self.table, start)
        self.n_generations += 1
        places = [WorkerPlace(worker) for worker in workers]
        try:
            keeper = CommitKeeper(self.survivor)
            outcomes = run_ranks(self.cluster, assignment, places, keeper, run_neural_rank, inputs)
        except RanksLostError as error:
            raise RanksLostError(str(error), max(1, n_ranks - 1)) from error
        finally:
            with contextlib.suppress(Exception):
                self.cluster.run(drop_holdings, self.fit_id)
        return outcomes[0].result

    def _wait_for_workers(self, n_wanted: int) -> None:
        until_returned = time.monotonic() + (_SECONDS_FOR_RETURN if self.n_generations else 0.0)
        until_any = time.monotonic() + _SECONDS_WITHOUT_WORKERS
        while (n_workers := len(self.cluster.workers())) <= n_wanted and time.monotonic() < until_any:
            if n_workers and time.monotonic() >= until_returned:
                return
            time.sleep(0.1)
        if not n_workers:
            raise RanksLostError("all workers are gone", 0)


def run_neural_rank(
    assignment: NeuralAssignment, rank: int, place: WorkerPlace, parts: Sequence[RowPart]
) -> RankOutcome:
    """The task: train as one rank on the worker that it runs on."""

    def work(held: Holdings, running: RunningRank, worker: Any) -> RankOutcome:
        shards = assignment.table.shards(parts)

        def report(commit: Commit) -> None:
            # What the client has fetched is of no use here any more.
            running.reports[: running.n_fetched] = [None] * running.n_fetched
            running.reports.append(commit)

        with join_ranks(running, rank, worker) as communicator, threadpool_limits(int(worker.state.nthreads)):
            trained = train(communicator, assignment.job, *shards, start=assignment.start, on_commit=report)
        return RankOutcome(trained if rank == 0 else None, running.n_fetched, running.reports[running.n_fetched :])

    return host_rank(assignment.fit_id, assignment.generation, rank, work)
