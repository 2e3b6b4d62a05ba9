"""Ranks as processes of which one kills itself in mid-training: what a lost worker costs in accuracy."""

from __future__ import annotations

import os
import signal

from dmlgbm.collectives import Communicator
from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.running import local
from dmlgbm.neural.running.generations import Survivor
from dmlgbm.neural.running.local import LocalRows, train_here
from dmlgbm.neural.running.mapped_rows import MappedRows
from dmlgbm.neural.strategies.allreduce import AllReduce
from dmlgbm.neural.training import Job, Trained


def train_processes(job: Job, rows: LocalRows, n_ranks: int, *, kill: bool) -> tuple[Trained, list[str]]:
    """Train with all-reduce; if asked, rank 1 is killed halfway. Also the losses of ranks that were noticed."""
    survivor = Survivor(job, max_restarts=1)
    quiet = local.rank_work
    local.rank_work = work_until_killed if kill else quiet
    try:
        return train_here(job, rows, n_ranks, "processes", survivor), survivor.losses
    finally:
        local.rank_work = quiet


def work_until_killed(communicator: Communicator, job: Job, mapped: MappedRows) -> Trained | None:
    """The work of a process. Rank 1 sends itself SIGKILL in the middle of the middle epoch, in its first life only."""
    step, mark = AllReduce.step, mapped.folder / "killed"

    def step_or_die(self: AllReduce, context: RankContext, batch: Batch) -> float:
        n_steps = context.batches.steps_per_epoch
        if context.step >= job.settings.max_epochs * n_steps // 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, context, batch)

    if communicator.rank == 1:
        AllReduce.step = step_or_die  # type: ignore[method-assign]
    return local.work_in_process(communicator, job, mapped)
