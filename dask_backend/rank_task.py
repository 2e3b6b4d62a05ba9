"""A rank on a worker: a task that leaves the queue of its worker, meets the other ranks and trains.

Three parties touch a running rank: the thread that trains, the worker's event loop (which answers the client) and a
watcher that ends the rank when its task is cancelled, its client goes away or its worker closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dmlgbm.collectives import (
    AbortedError,
    Communicator,
    JoinOptions,
    Listener,
    Rendezvous,
    TlsContexts,
    join,
    this_host,
)
from dmlgbm.dask_backend.alignment import aligned
from dmlgbm.dask_backend.worker_holdings import Holdings, drop_holdings, holdings_of
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.callbacks import TrainingState
from dmlgbm.gbdt.ranks.rank import Checkpoint, RankResult, RankTask, refit_rank, train_rank
from dmlgbm.gbdt.ranks.rank_threads import threads_of_rank

_WATCH_SECONDS = 0.25
# Reports are collected for this long: fetching each one as it comes would take processor time from training.
_COLLECT_SECONDS = 0.5
_SOON = 0.02
_ALIVE = ("executing", "long-running")
_UNWANTED = "its task was cancelled, or its client went away"

Result = TypeVar("Result")


class RankStopped(RuntimeError):  # noqa: N818 - not an error of the rank
    """The rank was told to stop."""


@dataclass(frozen=True)
class RankPlace:
    """Where a rank runs and what it works on: shares of training rows, shares of each evaluation set."""

    worker: str
    shares: frozenset[int]
    evaluation: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class RankAssignment:
    """What all ranks of one generation are told."""

    fit_id: str
    generation: int
    task: RankTask
    set_names: tuple[str, ...] = ()
    n_jobs: int | None = None
    resume: Checkpoint | None = None


@dataclass(frozen=True)
class RankOutcome:
    """The result of a rank, and its reports from number `first_report` on, which the client may not have fetched."""

    result: Any
    first_report: int = 0
    reports: list[Any] = field(default_factory=list)


class RunningRank:
    """The state of a rank that other threads see."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.place: tuple[str, str] | None = None  # where it listens, and its host
        self.reports: list[Any] = []
        self.n_fetched = 0
        self.over = threading.Event()
        self._on_end: list[Callable[[], None]] = []
        self.is_unwanted = False  # nobody is left who would ask for its result or its rows
        self._changed = threading.Condition()
        self._record: dict[str, Any] | None = None
        self._communicator: Communicator | None = None
        self._reason: str | None = None
        self._last_iteration: str | None = None

    def introduce(self, record: dict[str, Any]) -> None:
        """Hand over the record that brings the ranks together."""
        with self._changed:
            self._record = record
            self._changed.notify_all()

    def wait_for_record(self) -> Rendezvous:
        with self._changed:
            # No deadline: other ranks may wait for their worker; the watcher ends this when nobody needs it any more.
            while self._record is None and self._reason is None:
                self._changed.wait(1.0)
            if self._reason is not None:
                raise RankStopped(self._reason)
            assert self._record is not None
            return Rendezvous.from_dict(self._record)

    def joined(self, communicator: Communicator) -> None:
        """From now on `stop` reaches the other ranks too."""
        with self._changed:
            self._communicator = communicator
            reason = self._reason
        if reason is not None:
            communicator.abort(reason)

    def end(self) -> None:
        """The rank has let go of everything."""
        with self._changed:
            self.over.set()
            for tell in self._on_end:
                tell()

    async def wait_until_over(self, seconds: float) -> bool:
        """Whether the rank has ended within this time; for the worker's event loop, which sleeps meanwhile."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop of a worker that is closing
                loop.call_soon_threadsafe(ended.set)

        with self._changed:
            if self.over.is_set():
                return True
            self._on_end.append(tell)
        try:
            await asyncio.wait_for(ended.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            with self._changed:
                self._on_end.remove(tell)
        return self.over.is_set()

    def finish(self, reason: str) -> None:
        """Let all ranks end in order after the iteration that they are at."""
        self._last_iteration = reason

    def end_if_asked(self, state: TrainingState) -> None:
        """A callback of the engine: what `finish` asked for."""
        if self._last_iteration is not None:
            state.stop(self._last_iteration)

    def stop(self, reason: str) -> None:
        """End the rank, from any thread."""
        with self._changed:
            self._reason = self._reason or reason
            communicator = self._communicator
            self._changed.notify_all()
        if communicator is not None and not self.over.is_set():
            communicator.abort(reason)


def run_rank(assignment: RankAssignment, rank: int, place: RankPlace) -> RankOutcome:
    """Train as one rank of a fit on the worker that this task runs on."""
    return host_rank(
        assignment.fit_id, assignment.generation, rank, lambda *here: _train(aligned(assignment), rank, place, *here)
    )


def host_rank(fit_id: str, generation: int, rank: int, train: Callable[[Holdings, RunningRank, Any], Result]) -> Result:
    """train(held, running, worker) inside a task, seen by the client and watched; for learners of any kind."""
    from distributed import get_worker, secede

    worker = get_worker()
    key = worker.get_current_task()
    held = holdings_of(fit_id, str(worker.address))
    running = RunningRank(generation)
    held.rank = running
    # Ranks wait for each other, so none may keep another one (or another fit's) from starting.
    secede()
    watcher = threading.Thread(target=_watch, args=(worker, key, running), name=f"dmlgbm-watch-{rank}", daemon=True)
    watcher.start()
    try:
        return train(held, running, worker)
    except AbortedError as aborted:
        # Another rank may notice first that nobody is left who would ask for results.
        running.is_unwanted = running.is_unwanted or _UNWANTED in str(aborted)
        raise
    finally:
        running.end()
        watcher.join()
        if held.rank is running:
            held.rank = None
        if running.is_unwanted:
            drop_holdings(fit_id, worker)


def _train(
    assignment: RankAssignment, rank: int, place: RankPlace, held: Holdings, running: RunningRank, worker: Any
) -> RankOutcome:
    n_threads = threads_of_rank(int(worker.state.nthreads), assignment.n_jobs)
    task = replace(assignment.task, parameters=replace(assignment.task.parameters, n_threads=n_threads))
    data = held.rank_data(task.plan, place.shares)
    watched = rank_evaluation_sets(assignment.set_names, place.evaluation, held)
    with join_ranks(running, rank, worker) as communicator:
        if task.to_refit is not None:
            booster = refit_rank(communicator, data, task, watched)
            return RankOutcome(booster if rank == 0 else None)
        result: RankResult = train_rank(
            communicator,
            data,
            task,
            evaluation_sets=watched,
            callbacks=[running.end_if_asked] if rank == 0 else (),
            on_iteration=running.reports.append if rank == 0 else None,
            resume=assignment.resume,
        )
    # The client has the trees from the reports: the model of every rank would only be copied and thrown away.
    return RankOutcome(result.report, running.n_fetched, running.reports[running.n_fetched :])


@contextlib.contextmanager
def join_ranks(running: RunningRank, rank: int, worker: Any) -> Iterator[Communicator]:
    """Listen, wait until the client has brought the ranks together, and join them with the cluster's own security."""
    tls = tls_contexts(worker)
    with Listener.tcp(worker.ip) as listener:
        running.place = (str(listener.address), this_host())
        record = running.wait_for_record()
        one_host = len(set(record.hosts)) == 1
        options = JoinOptions(shared_memory=one_host and tls is None, tls=tls)
        with join(record, rank, listener, options) as communicator:
            running.joined(communicator)
            yield communicator


def rank_evaluation_sets(
    names: Sequence[str], shares: Sequence[tuple[int, int]], held: Holdings
) -> list[EvaluationSet]:
    """All evaluation sets, with the parts that this worker holds."""
    return [
        EvaluationSet(name, held.evaluation_parts([each for each in shares if each[0] == number]))
        for number, name in enumerate(names)
    ]


def tls_contexts(worker: Any) -> TlsContexts | None:
    """The cluster's own certificates, where it uses them."""
    if not str(worker.address).startswith("tls://"):
        return None
    server = worker.security.get_listen_args("worker")["ssl_context"]
    client = worker.security.get_connection_args("worker")["ssl_context"]
    return TlsContexts(server, client)


def _watch(worker: Any, key: str, running: RunningRank) -> None:
    """End the rank when Dask no longer wants its result."""
    while not running.over.wait(_WATCH_SECONDS):
        task = worker.state.tasks.get(key)
        if task is None or task.state not in _ALIVE:
            # A client that goes on has stopped the rank before it cancels the task.
            running.is_unwanted = True
            running.stop(_UNWANTED)
        elif worker.status.name not in ("running", "paused"):
            running.stop(f"its worker {worker.address} is {worker.status.name}")


# What the client calls on a worker, beside its tasks.


async def rank_place(fit_id: str, generation: int, dask_worker: Any = None) -> tuple[str, str] | None:
    """Where the rank of this worker listens, once it does."""
    until = time.monotonic() + _COLLECT_SECONDS
    while True:
        running = holdings_of(fit_id, str(dask_worker.address)).rank
        if running is not None and running.generation == generation and running.place is not None:
            place: tuple[str, str] = running.place
            return place
        if time.monotonic() > until:
            return None
        await asyncio.sleep(0.005)


def introduce_rank(fit_id: str, generation: int, record: dict[str, Any], dask_worker: Any = None) -> None:
    """Give the record to the rank of this worker."""
    running = holdings_of(fit_id, str(dask_worker.address)).rank
    if running is not None and running.generation == generation:
        running.introduce(record)


async def next_reports(
    fit_id: str, generation: int, n_seen: int, patience: float, dask_worker: Any = None
) -> list[Any]:
    """The reports of rank 0 after the first `n_seen`, a few at a time."""
    running = holdings_of(fit_id, str(dask_worker.address)).rank
    if running is None or running.generation != generation:
        await asyncio.sleep(_SOON)  # its result is on the way to the client
        return []
    until = time.monotonic() + patience
    while not await running.wait_until_over(_COLLECT_SECONDS):
        if len(running.reports) > n_seen or time.monotonic() > until:
            break
    running.n_fetched = max(running.n_fetched, n_seen)
    return list(running.reports[n_seen:])


def finish_rank(fit_id: str, generation: int, reason: str, dask_worker: Any = None) -> None:
    """Let training end after the iteration that it is at."""
    running = holdings_of(fit_id, str(dask_worker.address)).rank
    if running is not None and running.generation == generation:
        running.finish(reason)


async def stop_rank(fit_id: str, reason: str, seconds: float, dask_worker: Any = None) -> bool:
    """Stop the rank of this worker; whether its thread has let go of the rows within this time."""
    running = holdings_of(fit_id, str(dask_worker.address)).rank
    if running is None:
        return True
    running.stop(reason)
    return await running.wait_until_over(seconds)
