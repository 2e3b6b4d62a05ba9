"""Ranks on this machine: the calling thread alone, threads that share all rows, or processes that map the rows.

Processes get the rows through files of a private folder that exists as long as the fit, so that nothing is copied to
each of them, and leave their commits there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from threadpoolctl import threadpool_limits

from dmlgbm.gbdt.ranks.losses import RanksLostError
from dmlgbm.gbdt.system.cores import usable_cores
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.lone_communicator import LoneCommunicator
from dmlgbm.neural.model import FloatArray, Inputs, IntArray
from dmlgbm.neural.running.generations import Survivor
from dmlgbm.neural.running.mapped_rows import MappedRows
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.training import Job, Trained, train

if TYPE_CHECKING:
    from dmlgbm.collectives import Communicator

PLACES = ("threads", "processes")

# How long a process waits for another one that is alive and still computes; those that are not are found by silence.
_SECONDS_OF_A_STEP = 600.0


@dataclass(frozen=True)
class LocalRows:
    """Rows to learn from and, unless None, rows to watch; all in this process. Weights are those of `RowShard`."""

    inputs: Inputs
    targets: FloatArray | IntArray
    weights: FloatArray | None = None
    validation: LocalRows | None = None

    def shards(self, rank: int, world_size: int) -> tuple[RowShard, RowShard | None]:
        """One rank's view of them."""
        watched = None if self.validation is None else self.validation.shards(rank, world_size)[0]
        return RowShard.of_all(self.inputs, self.targets, rank, world_size, self.weights), watched


def train_here(
    job: Job,
    rows: LocalRows,
    n_ranks: int,
    place: str,
    survivor: Survivor,
    on_commit: Callable[[Commit], None] | None = None,
    rank_timeout: float = 60.0,
) -> Trained:
    """Train on this machine; `survivor` keeps the commits of processes, `on_commit` sees those of threads.

    A process that gives no sign of life for `rank_timeout` seconds is lost, however long it may compute.
    """
    if n_ranks == 1:
        communicator = cast("Communicator", LoneCommunicator())
        return train(communicator, job, *rows.shards(0, 1), start=survivor.commit, on_commit=on_commit)
    if place != "processes":
        return _train_threads(job, rows, n_ranks, survivor.commit, on_commit)
    with tempfile.TemporaryDirectory(prefix="dmlgbm-neural-") as folder:
        mapped = MappedRows.write(Path(folder), rows)

        def generation(n_left: int, start: Commit | None) -> Trained:
            try:
                return _train_processes(job, mapped, n_left, rank_timeout)
            except RanksLostError:
                commit = mapped.read_commit()
                if commit is not None:
                    survivor.keep(commit)
                raise

        if survivor.commit is not None:
            mapped.write_commit(survivor.commit)
        return survivor.run(n_ranks, generation)


def _train_threads(
    job: Job, rows: LocalRows, n_ranks: int, start: Commit | None, on_commit: Callable[[Commit], None] | None
) -> Trained:
    from dmlgbm.collectives.joining.launch import run_threads

    def work(communicator: Communicator) -> Trained:
        shards = rows.shards(communicator.rank, communicator.world_size)
        return train(communicator, job, *shards, start=start, on_commit=on_commit)

    with threadpool_limits(threads_of_a_rank(n_ranks)):
        results: list[Trained] = run_threads(work, n_ranks)
    return results[0]


def _train_processes(job: Job, mapped: MappedRows, n_ranks: int, rank_timeout: float) -> Trained:
    import cloudpickle

    from dmlgbm.collectives import CollectiveError, JoinOptions, RankFailedError
    from dmlgbm.collectives.joining.launch import launch_processes

    outcomes = launch_processes(
        rank_work,
        n_ranks,
        (job, mapped),
        options=JoinOptions(shared_memory=True, timeout=_SECONDS_OF_A_STEP, join_timeout=max(60.0, rank_timeout)),
        timeout=None,
        silence_timeout=rank_timeout,
        # Modules of the user may be defined in a notebook.
        dumps=cloudpickle.dumps,
    )
    failed = [outcome for outcome in outcomes if outcome.failed]
    if not failed:
        return cast(Trained, outcomes[0].result)
    for outcome in failed:
        if outcome.error is not None and not isinstance(outcome.error, CollectiveError):
            raise outcome.error
    lost = [outcome for outcome in failed if isinstance(outcome.error, RankFailedError)]
    told = "; ".join(f"{each.error} (exit code {each.exit_code})" for each in lost or failed)
    raise RanksLostError(told, n_ranks - max(1, len(lost)))


def work_in_process(communicator: Communicator, job: Job, mapped: MappedRows) -> Trained | None:
    """What one process does; the result travels back from rank 0 alone."""
    rows = mapped.read()
    with threadpool_limits(threads_of_a_rank(communicator.world_size)):
        trained = train(
            communicator,
            job,
            *rows.shards(communicator.rank, communicator.world_size),
            start=mapped.read_commit(),
            on_commit=mapped.write_commit,
        )
    return trained if communicator.rank == 0 else None


def threads_of_a_rank(n_ranks_of_host: int) -> int:
    """Threads of the linear algebra (and of torch) of one rank: its share of the cores."""
    return max(1, usable_cores() // n_ranks_of_host)


# What a new process runs: a name of its own, so that tests can put a process into trouble.
rank_work: Callable[..., Trained | None] = work_in_process
