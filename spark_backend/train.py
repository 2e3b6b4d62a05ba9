"""Training on Spark from start to end: bin by Spark's tasks, run ranks in barrier stages, and go on after losses.

A finished iteration is a commit: the driver has it. When an executor is lost Spark ends the stage; it computes the
binned shares that are missing once more, and a new generation of ranks goes on from the last iteration, to the same
model.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.callbacks import Callback
from dmlgbm.gbdt.ranks.checkpoints import CheckpointFile
from dmlgbm.gbdt.ranks.cost_model import link_between
from dmlgbm.gbdt.ranks.fit_report import RankReport, fit_report
from dmlgbm.gbdt.ranks.job import ClusterJob, ClusterResult
from dmlgbm.gbdt.ranks.losses import Losses, RanksLostError, TrainingLostError
from dmlgbm.gbdt.ranks.rank import Checkpoint, RankTask
from dmlgbm.gbdt.ranks.row_set import RowSet
from dmlgbm.gbdt.ranks.run_so_far import NoReports, RunSoFar
from dmlgbm.spark_backend.cluster import SparkCluster
from dmlgbm.spark_backend.generation import Follower, run_ranks
from dmlgbm.spark_backend.ingestion import BinnedRows, BinnedShare, bin_shares, cut_bins, watched_shares
from dmlgbm.spark_backend.rank_task import RankAssignment, Watched, grow_trees, iteration_of
from dmlgbm.spark_backend.reports import DriverLine
from dmlgbm.spark_backend.row_sets import FrameRowSet

logger = logging.getLogger("dmlgbm")

# An executor that was killed is usually started again within this time; later ones are not waited for.
_SECONDS_FOR_RETURN = 10.0
_SECONDS_WITHOUT_EXECUTORS = 60.0
_SECRET_BYTES = 32


def train_on_spark(
    cluster: SparkCluster, job: ClusterJob[FrameRowSet], callbacks: Sequence[Callback] = ()
) -> ClusterResult:
    """Train on the executors."""
    summaries = cut_bins(job.training, job.columns.n_features, job.binning)
    binned = bin_shares(cluster, job.training, summaries, job.initial_model)
    if not any(rows.source is job.training.source for _, rows in job.evaluation):
        job.training.source.release()
    return _Run(cluster, job, binned, callbacks).to_the_end()


class _Run:
    """One fit whose rows are binned."""

    def __init__(
        self,
        cluster: SparkCluster,
        job: ClusterJob[FrameRowSet],
        binned: BinnedRows,
        callbacks: Sequence[Callback],
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._binned = binned
        self._file: CheckpointFile | None = job.checkpoint_file(binned.plan, binned.digest)
        self._so_far = RunSoFar(job.parameters, job.initial_model, callbacks, self._commit)
        self._losses = Losses(job.max_restarts)

    def to_the_end(self) -> ClusterResult:
        """Run generation after generation until the model is complete."""
        self._restore()
        n_ranks = self._n_ranks()
        mode = self._job.mode(self._binned.plan, n_ranks, link_between(self._cluster.hosts()))
        ranks: list[RankReport] = []
        began = time.monotonic()
        rows = self._by_rank(n_ranks)
        while not self._so_far.finished:
            try:
                ranks = self._generation(n_ranks, rows, mode.tree_learner)
                break
            except RanksLostError as error:
                # A loss after the last iteration is none.
                if not self._so_far.finished:
                    self._losses.note(self._so_far.n_iterations, error)
                    n_before, n_ranks = n_ranks, self._n_ranks_after_loss(n_ranks)
                    rows = rows if n_ranks == n_before else self._by_rank(n_ranks)
        result = self._so_far.result()
        if self._job.refit_after_stopping:
            result = self._refitted(result, n_ranks, rows, mode.tree_learner)
        if self._file is not None:
            self._file.remove()
        seconds, so_far = time.monotonic() - began, self._so_far
        report = fit_report(
            mode.tree_learner, seconds, so_far.tree_counts, ranks, so_far.history(), self._losses.told, n_ranks
        )
        return ClusterResult(result, mode, report)

    def _generation(self, n_ranks: int, rows: Any, tree_learner: str) -> list[RankReport]:
        so_far = self._so_far
        task = self._job.rank_task(self._binned.plan, tree_learner)
        resume = so_far.checkpoint.to_bytes() if so_far.n_iterations else None
        return self._run(len(self._losses), n_ranks, rows, task, so_far, resume)

    def _refitted(self, result: TrainingResult, n_ranks: int, rows: Any, tree_learner: str) -> TrainingResult:
        """The chosen trees with leaf values of all rows; ranks that are lost start again."""
        task = self._job.refit_task(self._binned.plan, tree_learner, result)
        while True:
            try:
                # A loss ends a generation, and training was one more.
                model, *_ = self._run(len(self._losses) + 1, n_ranks, rows, task, NoReports())
            except RanksLostError as error:
                self._losses.note(self._so_far.n_iterations, error)
                n_before, n_ranks = n_ranks, self._n_ranks_after_loss(n_ranks)
                rows = rows if n_ranks == n_before else self._by_rank(n_ranks)
            else:
                return replace(result, booster=Booster.from_bytes(model))

    def _run(
        self, generation: int, n_ranks: int, rows: Any, task: RankTask, follower: Follower, resume: bytes | None = None
    ) -> list[Any]:
        cluster, job = self._cluster, self._job
        host = cluster.setting("spark.driver.host", "localhost")
        bind = cluster.setting("spark.driver.bindAddress", host)
        secret = secrets.token_bytes(_SECRET_BYTES)
        with DriverLine(bind, host, cluster.fit_id, secret, generation, n_ranks) as line:
            names = tuple(name for name, _ in job.evaluation)
            assignment = RankAssignment(line.address, task, names, job.n_jobs, resume)
            return run_ranks(cluster, line, assignment, rows, follower, grow_trees, iteration_of)

    # Where rows are.

    def _n_ranks(self) -> int:
        """A rank for each task that can run at once, as far as there are shares."""
        return max(1, min(self._cluster.slots(), len(self._job.training.cuts)))

    def _by_rank(self, n_ranks: int) -> Any:
        """An RDD of (rank, binned share or share to watch), in a partition for each rank."""
        ranks = _ranks_of(self._job.training, n_ranks)
        rows = self._binned.rdd.map(_TrainedBy(ranks))
        for number, (_, watched) in enumerate(self._job.evaluation):
            rows = rows.union(watched_shares(watched).map(_WatchedBy(_ranks_of(watched, n_ranks), number)))
        return rows.partitionBy(n_ranks, int)

    def _n_ranks_after_loss(self, n_before: int) -> int:
        until_returned = time.monotonic() + _SECONDS_FOR_RETURN
        until_any = time.monotonic() + _SECONDS_WITHOUT_EXECUTORS
        while (n_slots := self._cluster.slots()) < n_before:
            if n_slots and time.monotonic() > until_returned:
                break
            if time.monotonic() > until_any:
                raise TrainingLostError(f"All executors are gone: {self._losses.told[-1]}")
            time.sleep(0.1)
        return self._n_ranks()

    # Checkpoints.

    def _commit(self, checkpoint: Checkpoint) -> None:
        if self._file is not None:
            self._file.write(checkpoint)

    def _restore(self) -> None:
        found = None if self._file is None else self._file.read()
        if self._file is not None and found is not None:
            self._so_far.restore(found)
            logger.info("going on from iteration %d in %s", self._so_far.n_iterations, self._file.path)


def _ranks_of(rows: RowSet, n_ranks: int) -> list[int]:
    """The rank of each share: neighbours together, about as many rows for every rank."""
    middles = np.array(rows.first_rows[:-1]) + np.array([cut.n_rows for cut in rows.cuts]) / 2
    return np.minimum(middles * n_ranks // max(rows.n_rows, 1), n_ranks - 1).astype(int).tolist()


@dataclass(frozen=True)
class _TrainedBy:
    ranks: list[int]

    def __call__(self, share: BinnedShare) -> tuple[int, BinnedShare]:
        return self.ranks[share.number], share


@dataclass(frozen=True)
class _WatchedBy:
    ranks: list[int]
    set_number: int

    def __call__(self, numbered: tuple[int, Any]) -> tuple[int, Watched]:
        share, part = numbered
        return self.ranks[share], Watched(self.set_number, share, part)
