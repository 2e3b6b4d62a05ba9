"""Units as tasks of a Dask cluster.

Shared arguments and folds are scattered: Dask copies them to a worker when the first unit there needs them, and the
worker keeps them for the search. The scheduler itself runs a task again that loses its worker, up to its own limit;
beyond it the driver decides. Data whose last holder died is scattered anew from the client, which still has it. Dask
does not end a task that runs: units that are not wanted any more are stopped on their workers (`stoppable.py`).
A task costs the scheduler, the client and the worker several milliseconds, so one task runs several short units.
Workers that fall silent are watched for as in a fit: they are given up and started anew, and nothing waits for them.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, get_client, get_worker

from dmlgbm.dask_backend.heartbeats import SECONDS_WITHOUT_WORKERS, WORKER_TIMEOUT, WorkerWatch
from dmlgbm.dask_backend.heartbeats import known_workers as known_workers  # for `tuning.collections` too
from dmlgbm.dask_backend.task_seat import outside_of_a_task
from dmlgbm.tuning.calls import SearchData, SharedArguments, Split
from dmlgbm.tuning.executors import wire
from dmlgbm.tuning.executors.base import Done, Event, ExecutorError, Lost
from dmlgbm.tuning.executors.dask_seat import Seat
from dmlgbm.tuning.executors.stoppable import StoppableUnits
from dmlgbm.tuning.executors.worker_threads import fit_environment
from dmlgbm.tuning.plan import UnitResult, WorkUnit, run_unit

_POLL_SECONDS = 0.5
_SECONDS_KNOWN = 1.0
# For workers to hear that units are not wanted any more; one that does not answer is not waited for.
_SECONDS_TO_TELL = 5.0
# A value is sent again when the worker that it was sent to is given up meanwhile.
_TIMES_TO_SCATTER = 4
# Of work in one task. (Measured with two workers on one host: 1,500 units of some 4 ms took 11.6 s, a task for each.)
_SECONDS_OF_A_TASK = 0.1
_UNITS_LOOKED_AT = 256


def open_dask(client: Any, n_jobs: int | None) -> DaskExecutor:
    """An executor on the given client, or on the current one."""
    if client is None:
        try:
            client = get_client()
        except ValueError as error:
            raise ExecutorError(
                'backend="dask" found no client: connect one with distributed.Client(address) first, or pass it as '
                "backend=client."
            ) from error
    if not isinstance(client, Client):
        raise TypeError(f"backend must be a distributed.Client, got {type(client).__name__}.")
    if client.status != "running":
        raise ExecutorError(f"The Dask client {client.id} is {client.status}: connect a new one.")
    executor = DaskExecutor(client, n_jobs)
    if not executor.threads_of_workers():
        raise ExecutorError(
            f"The Dask cluster at {client.scheduler_info()['address']} has no workers: start some, with "
            'cluster.scale(n) for example, and wait for them with client.wait_for_workers(1), or use backend="local".'
        )
    executor.begin()
    return executor


def watch_of_search(client: Any) -> WorkerWatch:
    """Gives up workers that are silent, while it runs."""
    return WorkerWatch(client, WORKER_TIMEOUT, "the most that a search waits")


@dataclass(frozen=True)
class _Batch:
    """Units of one affinity that one task runs, one after the other."""

    numbers: list[int]
    affinity: Hashable
    future: Future[Any]


class DaskExecutor:
    """Runs units on the workers of a client, as many at once as they have threads."""

    name = "dask"

    def __init__(self, client: Client, n_jobs: int | None) -> None:
        self._client = client
        self._limit = n_jobs if n_jobs is not None and n_jobs > 0 else None
        self._search = uuid.uuid4().hex
        self._round = 0  # units of an earlier one were cancelled
        self._values: dict[str, Any] = {}
        self._futures: dict[str, Future[Any]] = {}
        self._waiting: dict[int, tuple[WorkUnit, int]] = {}
        self._running: dict[int, _Batch] = {}  # by the first of its units
        self._unit_seconds = math.inf  # the longest of the units that came back last
        self._singly = False  # whether each unit has a task of its own
        self._home: dict[Hashable, str] = {}
        self._finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._known_workers: dict[str, int] = {}
        self._known_since = -math.inf
        self._n_bytes_of_units = self._n_bytes_placed = 0
        self._watch = watch_of_search(client)
        self._on_close = contextlib.ExitStack()

    def begin(self) -> None:
        """Until `close`, watch the workers; and where the search itself is a task, its units may need its seat."""
        self._on_close.enter_context(outside_of_a_task())
        self._on_close.enter_context(self._watch.running())

    def threads_of_workers(self) -> dict[str, int]:
        """The workers that are there, with their numbers of threads; asked for at most once a second."""
        if monotonic() - self._known_since > _SECONDS_KNOWN:
            known = self._client.sync(known_workers, self._client)
            self._known_workers = {address: each["nthreads"] for address, each in known.items()}
            self._known_since = monotonic()
        return self._known_workers

    @property
    def n_slots(self) -> int:
        n_threads = max(1, sum(self.threads_of_workers().values()))
        return n_threads if self._limit is None else min(self._limit, n_threads)

    @property
    def n_cores(self) -> int:
        return max(1, sum(self.threads_of_workers().values()))

    def place_shared(self, shared: SharedArguments) -> None:
        self._values["shared"] = shared

    def place_split(self, name: str, split: Split) -> None:
        self._values[name] = split

    def submit(self, number: int, unit: WorkUnit, n_threads: int) -> None:
        self._waiting[number] = (unit, n_threads)

    def wait(self, timeout: float | None) -> Sequence[Event]:
        deadline = None if timeout is None else monotonic() + timeout
        while self._waiting or self._running:
            self._start_units()
            left = _POLL_SECONDS if deadline is None else max(0.0, min(_POLL_SECONDS, deadline - monotonic()))
            try:
                number = self._finished.get(timeout=left)
            except queue.Empty:
                if deadline is not None and monotonic() >= deadline:
                    return ()
                self._require_cluster()
                continue
            batch = self._running.pop(number, None)
            if batch is not None:
                return self._events(batch)
        return ()

    def cancel(self) -> None:
        self._waiting.clear()
        running, self._running = list(self._running.values()), {}
        if running:
            self._client.cancel([batch.future for batch in running], force=True)
            self._tell_workers(_stop, self._search, self._round)
            self._round += 1

    def close(self) -> None:
        self.cancel()
        self._futures.clear()
        self._values.clear()
        if self._client.status == "running":
            self._tell_workers(_forget, self._search)
        self._on_close.close()

    def left_out(self) -> list[str]:
        return [
            f"The Dask worker {worker} was left out: it {reason}." for worker, reason in self._watch.reasons.items()
        ]

    def _tell_workers(self, function: Callable[..., None], *given: Any) -> None:
        """Run a function on all workers that answer in time."""

        def tell() -> None:
            with contextlib.suppress(Exception):  # a cluster that is gone runs nothing
                self._client.run(function, *given, on_error="ignore")

        telling = threading.Thread(target=tell, name="dmlgbm-dask", daemon=True)
        telling.start()
        telling.join(_SECONDS_TO_TELL)

    def traffic(self) -> dict[str, int]:
        return {"bytes_placed": self._n_bytes_placed, "bytes_of_units": self._n_bytes_of_units}

    def _start_units(self) -> None:
        # One unit more than can run, so that no worker waits for the next.
        n_most = self.n_slots if self._limit is not None else 2 * self.n_slots
        while self._waiting and len(self._running) < n_most:
            self._start(self._next_numbers())

    def _next_numbers(self) -> list[int]:
        """The unit that is next, and so many like it as make up a task and leave enough for other workers."""
        number = next(iter(self._waiting))
        first, n_threads = self._waiting[number]
        if self._singly:
            return [number]
        n_fair = len(self._waiting) // (2 * self.n_slots)
        n_most = max(1, int(min(n_fair, _SECONDS_OF_A_TASK / max(self._unit_seconds, 1e-6))))
        alike = (
            each
            for each, (unit, n_threads_of_unit) in islice(self._waiting.items(), _UNITS_LOOKED_AT)
            if (unit.affinity, n_threads_of_unit) == (first.affinity, n_threads)
        )
        return list(islice(alike, n_most))

    def _start(self, numbers: list[int]) -> None:
        units, threads = zip(*(self._waiting.pop(number) for number in numbers), strict=True)
        data = [wire.dumps(unit) for unit in units]
        self._n_bytes_of_units += sum(map(len, data))
        names = sorted({call.split for unit in units for call in unit.calls})
        affinity = units[0].affinity
        home = self._home.get(affinity) if affinity is not None else None
        preference = {"workers": [home], "allow_other_workers": True} if home in self.threads_of_workers() else {}
        future = self._client.submit(
            _run,
            self._search,
            self._round,
            data,
            threads[0],
            os.getpid(),
            self._placed("shared"),
            {name: self._placed(name) for name in names},
            key=f"dmlgbm-search-{self._search}-{numbers[0]}",
            pure=False,
            **preference,
        )
        self._running[numbers[0]] = _Batch(numbers, affinity, future)
        future.add_done_callback(lambda _, number=numbers[0]: self._finished.put(number))

    def _placed(self, name: str) -> Future[Any]:
        """The future of a value; scattered when it is first needed, and again if all its holders are gone."""
        future = self._futures.get(name)
        if future is None or future.status in ("cancelled", "lost", "error"):
            future = self._futures[name] = self._scattered(self._values[name])
            self._n_bytes_placed += _size(self._values[name])
        return future

    def _scattered(self, value: Any) -> Future[Any]:
        for _ in range(_TIMES_TO_SCATTER - 1):
            with contextlib.suppress(OSError):  # of a worker that is gone or was given up
                return self._client.scatter([value], hash=False)[0]
            self._require_cluster()
        return self._client.scatter([value], hash=False)[0]

    def _events(self, batch: _Batch) -> list[Event]:
        future = batch.future
        if future.status == "finished":
            try:
                worker, data = future.result()
            except Exception as error:  # noqa: BLE001 - the holder of the result is gone: the units run again
                return self._lost(batch, f"was lost with its result ({error})")
            if batch.affinity is not None:
                self._home[batch.affinity] = worker
            results = [wire.loads(each) for each in data]
            self._unit_seconds = max(result.seconds for result in results)
            pairs = zip(batch.numbers, results, strict=True)
            return [Done(number, result, f"Dask worker {worker}") for number, result in pairs]
        if future.status == "error":
            failure = future.exception()
            if isinstance(failure, KilledWorker):
                # The scheduler has run the task again by itself, as often as it is configured to.
                attempts = 1 + int(dask.config.get("distributed.scheduler.allowed-failures"))
                reason = f"was lost, {attempts} times in a row; the nannies' logs say why, often because memory ran out"
                return self._lost(batch, reason, attempts)
            unreadable = UnitResult([], error=_unreadable(failure))
            return [Done(number, unreadable, "a Dask worker") for number in batch.numbers]
        return self._lost(batch, f"was lost with data of the search (task {future.status})")

    def _lost(self, batch: _Batch, reason: str, attempts: int = 1) -> list[Event]:
        """Of several units nobody knows which one it was: none is blamed, and from now on each has a task."""
        if len(batch.numbers) > 1:
            self._singly, attempts = True, 0
        return [Lost(number, "a Dask worker", reason, attempts) for number in batch.numbers]

    def _require_cluster(self) -> None:
        if self._client.status != "running":
            raise ExecutorError(
                f"The Dask client {self._client.id} is {self._client.status} in the middle of a search: connect a new "
                "one and run the search again, with journal= to keep what is finished."
            )
        if self._watch.found_no_workers:
            raise ExecutorError(
                f"The Dask cluster of the client {self._client.id} has had no workers that take tasks for "
                f"{SECONDS_WITHOUT_WORKERS:g} s: start workers and run the search again, with journal= to keep what "
                "is finished."
            )


def _unreadable(error: BaseException | None) -> ExecutorError:
    return ExecutorError(f"A Dask worker could not run a unit: {type(error).__name__}: {error}")


def _size(value: Any) -> int:
    from dask.sizeof import sizeof

    if isinstance(value, SharedArguments):
        return int(sizeof(value.X)) + int(sizeof(value.y))
    return sum(int(sizeof(rows)) for rows in value)


# On the workers.

_searches: dict[tuple[str, str], SearchData] = {}
_lock = threading.Lock()
_units = StoppableUnits()


def _run(
    search: str,
    round_number: int,
    units: list[bytes],
    n_threads: int,
    client_process: int,
    shared: SharedArguments,
    splits: dict[str, Split],
) -> tuple[str, list[bytes]]:
    worker = get_worker()
    address = str(worker.address)
    # Catching warnings changes the whole process: only where no other unit runs in it, nor the client.
    alone = worker.state.nthreads == 1 and os.getpid() != client_process

    def run() -> list[bytes]:
        with _lock:
            kept = _searches.setdefault((search, address), SearchData(shared, {}))
            kept.splits = {**kept.splits, **splits}
            # Units in other threads have their own number of threads and share the memory.
            data = SearchData(shared, kept.splits, kept.memory, n_threads)
        with fit_environment(n_threads):
            results = (run_unit(wire.loads(unit), data, keep_warnings=alone) for unit in units)
            return [wire.dumps(wire.portable(result)) for result in results]

    seat = Seat()

    def run_seated() -> list[bytes]:
        with seat.taken():
            return run()

    try:
        return address, _units.run(search, round_number, run_seated) or []
    finally:
        seat.give_back()


def _stop(search: str, round_number: int) -> None:
    _units.stop(search, round_number)


def _forget(search: str, dask_worker: Any = None) -> None:
    _units.stop(search, math.inf)
    with _lock:
        _searches.pop((search, str(dask_worker.address)), None)
