"""Training on a cluster from start to end: bin in place, run ranks, and go on after losses.

A finished iteration is a commit: the client has it. When ranks are lost, what they held is read and binned again
on the workers there are, and a new generation of ranks goes on from the last iteration, to the same model.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dmlgbm.collectives import Hub
from dmlgbm.dask_backend.cluster import HERE, Cluster, DaskCluster
from dmlgbm.dask_backend.generation import run_ranks
from dmlgbm.dask_backend.ingestion import PartitionRowSet, RowsToBin, cut_bins, place_evaluation
from dmlgbm.dask_backend.rank_task import RankAssignment, RankPlace, rank_evaluation_sets
from dmlgbm.dask_backend.worker_holdings import drop_holdings, held_shares, holdings_of
from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.callbacks import Callback, TrainingState
from dmlgbm.gbdt.data.partition_binning import BinningPlan
from dmlgbm.gbdt.ranks.checkpoints import CheckpointFile
from dmlgbm.gbdt.ranks.cost_model import link_between
from dmlgbm.gbdt.ranks.fit_report import RankReport, fit_report
from dmlgbm.gbdt.ranks.job import ClusterJob, ClusterResult
from dmlgbm.gbdt.ranks.losses import Losses, RanksLostError
from dmlgbm.gbdt.ranks.rank import refit_rank, train_rank
from dmlgbm.gbdt.ranks.run_so_far import NoReports, RunSoFar

logger = logging.getLogger("dmlgbm")

# A worker that was killed is usually started again within this time; later ones are not waited for.
_SECONDS_FOR_RETURN = 3.0


def train_on_cluster(
    cluster: Cluster, fit_id: str, job: ClusterJob[PartitionRowSet], callbacks: Sequence[Callback] = ()
) -> ClusterResult:
    """Train; whatever happens, the workers keep nothing of it."""
    try:
        summaries = cut_bins(cluster, job.training, job.columns.n_features, job.binning)
        rows = RowsToBin(job.training, summaries, job.initial_model)
        plan, receipts = rows.bin_everywhere(cluster, fit_id)
        run = _Run(cluster, fit_id, job, rows, plan, callbacks)
        digest = sum(receipt.digest for receipt in receipts)
        return run.to_the_end(digest)
    finally:
        with contextlib.suppress(Exception):
            cluster.run(drop_holdings, fit_id)


class _Run:
    """One fit whose rows are binned."""

    def __init__(
        self,
        cluster: Cluster,
        fit_id: str,
        job: ClusterJob[PartitionRowSet],
        rows: RowsToBin,
        plan: BinningPlan,
        callbacks: Sequence[Callback],
    ) -> None:
        self._cluster = cluster
        self._fit_id = fit_id
        self._job = job
        self._rows = rows
        self._plan = plan
        self._file: CheckpointFile | None = None
        self._so_far = RunSoFar(job.parameters, job.initial_model, callbacks, self._commit)
        self._losses = Losses(job.max_restarts)

    def to_the_end(self, digest: int) -> ClusterResult:
        """Run generation after generation until the model is complete."""
        self._restore(digest)
        places = self._placed()
        mode = self._job.mode(self._plan, len(places), link_between([place.worker for place in places]))
        ranks: list[RankReport] = []
        began = time.monotonic()
        while not self._so_far.finished:
            try:
                ranks = self._generation(len(self._losses), places, mode.tree_learner)
                break
            except RanksLostError as error:
                # A loss after the last iteration is none.
                if not self._so_far.finished:
                    self._losses.note(self._so_far.n_iterations, error)
                    self._wait_for_return(len(places))
                    places = self._placed()
        result = self._so_far.result()
        if self._job.refit_after_stopping:
            result = self._refitted(result, places, mode.tree_learner)
        if self._file is not None:
            self._file.remove()
        seconds, so_far = time.monotonic() - began, self._so_far
        report = fit_report(
            mode.tree_learner, seconds, so_far.tree_counts, ranks, so_far.history(), self._losses.told, len(places)
        )
        source = self._job.training.source
        report = replace(report, n_partitions=len(source), partitions_computed=source.n_computed)
        return ClusterResult(result, mode, report)

    def _generation(self, generation: int, places: Sequence[RankPlace], tree_learner: str) -> list[RankReport]:
        job, so_far = self._job, self._so_far
        task = job.rank_task(self._plan, tree_learner)
        resume = so_far.checkpoint if so_far.n_iterations else None
        names = tuple(name for name, _ in job.evaluation)
        assignment = RankAssignment(self._fit_id, generation, task, names, job.n_jobs, resume)
        if isinstance(self._cluster, DaskCluster):
            return [outcome.result for outcome in run_ranks(self._cluster, assignment, places, so_far)]
        return [_run_here(assignment, places[0], so_far)]

    def _refitted(self, result: TrainingResult, places: Sequence[RankPlace], tree_learner: str) -> TrainingResult:
        """The chosen trees with leaf values of all rows; ranks that are lost start again."""
        job = self._job
        task = job.refit_task(self._plan, tree_learner, result)
        names = tuple(name for name, _ in job.evaluation)
        while True:
            # A loss ends a generation, and training was one more.
            assignment = RankAssignment(self._fit_id, len(self._losses) + 1, task, names, job.n_jobs)
            try:
                if isinstance(self._cluster, DaskCluster):
                    booster = run_ranks(self._cluster, assignment, places, NoReports())[0].result
                else:
                    booster = _refit_here(assignment, places[0])
            except RanksLostError as error:
                self._losses.note(self._so_far.n_iterations, error)
                self._wait_for_return(len(places))
                places = self._placed()
            else:
                return replace(result, booster=booster)

    # Where rows are.

    def _placed(self) -> list[RankPlace]:
        """Every share on a worker. Workers may be lost meanwhile, too."""
        while True:
            try:
                places = self._places(len(self._losses))
            except RanksLostError as error:
                self._losses.note(self._so_far.n_iterations, error)
            else:
                self._release()
                return places

    def _places(self, attempt: int) -> list[RankPlace]:
        """Every share on exactly one worker, evaluation rows too; what is missing is read and binned again."""
        cluster, job = self._cluster, self._job
        owners = self._owners()
        missing = [share for share in range(len(job.training.cuts)) if share not in owners]
        if missing:
            already: dict[str, int] = {}
            for share, worker in owners.items():
                already[worker] = already.get(worker, 0) + job.training.cuts[share].n_rows
            name = f"bin-again-{attempt}"
            receipts = self._rows.bin_shares(cluster, self._fit_id, self._plan, missing, name, already)
            owners.update({receipt.number: receipt.worker for receipt in receipts})
        workers = list(dict.fromkeys(owners[share] for share in sorted(owners)))
        watched = self._watched(workers, attempt)
        strays = sorted(set(watched.values()) - set(workers))
        if strays:  # Dask chose another worker, because the one that was meant is gone or takes no tasks
            raise RanksLostError(f"evaluation rows came to workers without training rows: {', '.join(strays)}")
        return [
            RankPlace(
                worker,
                frozenset(share for share, owner in owners.items() if owner == worker),
                tuple(sorted(each for each, owner in watched.items() if owner == worker)),
            )
            for worker in workers
        ]

    def _owners(self) -> dict[int, str]:
        """The worker of each share that is held. A worker that came back with what others have by now starts anew."""
        owners: dict[int, str] = {}
        alive = self._cluster.alive()
        held = self._cluster.run(held_shares, self._fit_id, workers=list(alive))
        for worker in sorted(held, key=lambda each: -len(held[each][0])):
            shares = held[worker][0]
            if any(share in owners for share in shares):
                self._cluster.run(drop_holdings, self._fit_id, workers=[worker])
            else:
                owners.update(dict.fromkeys(shares, worker))
        return owners

    def _watched(self, workers: Sequence[str], attempt: int) -> dict[tuple[int, int], str]:
        if not self._job.evaluation:
            return {}
        cluster = self._cluster
        held = cluster.run(held_shares, self._fit_id, workers=workers)
        owners = {each: worker for worker in held for each in held[worker][1]}
        for number, (_, rows) in enumerate(self._job.evaluation):
            missing = [share for share in range(len(rows.cuts)) if (number, share) not in owners]
            if missing:
                name = f"watch-{number}-{attempt}"
                receipts = place_evaluation(cluster, self._fit_id, number, rows, missing, workers, name)
                owners.update({(number, receipt.number): receipt.worker for receipt in receipts})
        return owners

    def _release(self) -> None:
        """From here on the workers need no partition as it was read."""
        self._job.training.source.release()
        for _, rows in self._job.evaluation:
            rows.source.release()

    # Losses.

    def _wait_for_return(self, n_before: int) -> None:
        until = time.monotonic() + _SECONDS_FOR_RETURN
        while len(self._cluster.workers()) < n_before and time.monotonic() < until:
            time.sleep(0.1)

    # Checkpoints.

    def _commit(self, checkpoint: Any) -> None:
        if self._file is not None:
            self._file.write(checkpoint)

    def _restore(self, digest: int) -> None:
        self._file = self._job.checkpoint_file(self._plan, digest)
        found = None if self._file is None else self._file.read()
        if self._file is not None and found is not None:
            self._so_far.restore(found)
            logger.info("going on from iteration %d in %s", self._so_far.n_iterations, self._file.path)


def _run_here(assignment: RankAssignment, place: RankPlace, so_far: RunSoFar) -> RankReport:
    """The one rank of this process."""

    def end_if_asked(state: TrainingState) -> None:
        if so_far.stop_reason is not None:
            state.stop(so_far.stop_reason)

    held = holdings_of(assignment.fit_id, HERE)
    with Hub(1).join(0) as communicator:
        result = train_rank(
            communicator,
            held.rank_data(assignment.task.plan, place.shares),
            assignment.task,
            evaluation_sets=rank_evaluation_sets(assignment.set_names, place.evaluation, held),
            callbacks=[end_if_asked],
            on_iteration=so_far.add,
            resume=assignment.resume,
        )
    return result.report


def _refit_here(assignment: RankAssignment, place: RankPlace) -> Booster:
    held = holdings_of(assignment.fit_id, HERE)
    data = held.rank_data(assignment.task.plan, place.shares)
    watched = rank_evaluation_sets(assignment.set_names, place.evaluation, held)
    with Hub(1).join(0) as communicator:
        return refit_rank(communicator, data, assignment.task, watched)
