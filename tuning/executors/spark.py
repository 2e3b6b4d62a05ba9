"""Units as jobs of a Spark application, one task each.

Shared arguments, row numbers of folds and, for estimators that share work, the folds as bins are broadcast: Spark
brings them to each executor once, and a Python worker there keeps what it unpacked for the search. Every unit is a job
in a thread of the driver: results come as they are ready, and one call cancels all jobs of a search. Spark itself runs
a task again that loses its executor, up to its own limit; beyond it the driver of the search decides. Other jobs may
hold every slot for hours: nothing but the results of units is waited for without a deadline.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import uuid
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import Any

from pyspark import SparkContext, inheritable_thread_target
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from dmlgbm.tuning.calls import SearchData, SharedArguments, Split
from dmlgbm.tuning.executors import wire
from dmlgbm.tuning.executors.base import Done, Event, ExecutorError, Lost
from dmlgbm.tuning.executors.worker_threads import fit_environment
from dmlgbm.tuning.plan import UnitResult, WorkUnit, run_unit

_POLL_SECONDS = 0.5
_SECONDS_TO_CANCEL = 5.0
_SECONDS_TO_FORGET = 2.0
# Of a long message, how much to show of its beginning and of its end, where the cause is.
_FIRST_CHARACTERS, _LAST_CHARACTERS = 200, 600


def open_spark(session: Any, n_jobs: int | None) -> SparkExecutor:
    """An executor on the given session, on that of the given context, or on the active one."""
    if isinstance(session, SparkContext):
        _require_running(session)
        session = SparkSession(session)
    if session is None:
        session = SparkSession.getActiveSession()
        if session is None:
            raise ExecutorError(
                'backend="spark" found no session: make one with SparkSession.builder.getOrCreate() first, or pass it '
                f"as backend=session.{_about_java()}"
            )
    if type(session).__module__.startswith("pyspark.sql.connect."):
        raise TypeError(
            "The session is one of Spark Connect, whose clients have no broadcasts: use a classic session "
            '(SparkSession.builder.master(...)), or backend="local".'
        )
    if not isinstance(session, SparkSession):
        raise TypeError(
            "backend must be a SparkSession or a SparkContext, got a "
            f"{type(session).__module__}.{type(session).__qualname__}."
        )
    _require_running(session.sparkContext)
    return SparkExecutor(session, n_jobs)


def _require_running(context: SparkContext) -> None:
    if context._jsc is None or context._jsc.sc().isStopped():
        raise ExecutorError("The SparkSession is stopped: make a new one with SparkSession.builder.getOrCreate().")


class SparkExecutor:
    """Runs units on the executors of an application, as many at once as it has slots for tasks."""

    name = "spark"

    def __init__(self, session: SparkSession, n_jobs: int | None) -> None:
        self._session = session
        self._context = session.sparkContext
        self._limit = n_jobs if n_jobs is not None and n_jobs > 0 else None
        self._search = uuid.uuid4().hex
        self._round = 0  # jobs of an earlier one were cancelled
        self._broadcasts: dict[Hashable, Any] = {}
        self._waiting: dict[int, tuple[WorkUnit, int]] = {}
        self._running: set[int] = set()
        self._jobs: set[Future[None]] = set()
        self._finished: queue.SimpleQueue[tuple[int, int, Event]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(2 * self.n_slots, thread_name_prefix="dmlgbm-spark")
        self._n_bytes_placed = 0
        self._n_bytes_of_units = 0

    @property
    def n_slots(self) -> int:
        scala = self._context._jsc.sc()
        n_tasks = max(1, int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())))
        return n_tasks if self._limit is None else min(self._limit, n_tasks)

    @property
    def n_cores(self) -> int:
        return self.n_slots * int(self._context.getConf().get("spark.task.cpus", "1"))

    def place_shared(self, shared: SharedArguments) -> None:
        self._place("shared", shared)

    def place_split(self, name: str, split: Split) -> None:
        self._place(name, split)

    def place_prepared(self, name: tuple[str, str], prepared: Any) -> None:
        self._place(name, prepared)

    def submit(self, number: int, unit: WorkUnit, n_threads: int) -> None:
        self._waiting[number] = (unit, n_threads)

    def wait(self, timeout: float | None) -> Sequence[Event]:
        deadline = None if timeout is None else monotonic() + timeout
        while self._waiting or self._running:
            self._start_units()
            left = _POLL_SECONDS if deadline is None else max(0.0, min(_POLL_SECONDS, deadline - monotonic()))
            try:
                of_round, number, event = self._finished.get(timeout=left)
            except queue.Empty:
                if deadline is not None and monotonic() >= deadline:
                    return ()
                self._require_application()
                continue
            if of_round == self._round:
                self._running.discard(number)
                return [event]
        return ()

    def cancel(self) -> None:
        self._waiting.clear()
        self._running.clear()
        self._round += 1
        deadline = monotonic() + _SECONDS_TO_CANCEL
        # A job that was just about to start is not there to be cancelled until a moment later.
        while self._jobs and monotonic() < deadline:
            self._cancel_jobs(self._group)
            self._jobs = wait(self._jobs, timeout=_POLL_SECONDS).not_done

    def close(self) -> None:
        self.cancel()
        forgetting = inheritable_thread_target(self._session)(self._forget)
        if wait([self._threads.submit(forgetting)], timeout=_SECONDS_TO_FORGET).not_done:
            self._cancel_jobs(f"{self._group}-end")
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Exception):  # an application that is gone keeps nothing
            for broadcast in self._broadcasts.values():
                broadcast.destroy()
        self._broadcasts.clear()

    def traffic(self) -> dict[str, int]:
        return {"bytes_placed": self._n_bytes_placed, "bytes_of_units": self._n_bytes_of_units}

    @property
    def _group(self) -> str:
        return f"dmlgbm-search-{self._search}"

    def _cancel_jobs(self, group: str) -> None:
        with contextlib.suppress(Exception):  # an application that is gone runs nothing
            self._context.cancelJobGroup(group)

    def _forget(self) -> None:
        """In a thread: a task for each slot that is free soon."""
        with contextlib.suppress(Exception):  # cancelled, or the application is gone
            self._context.setJobGroup(f"{self._group}-end", "DMLGBM: end of a search", interruptOnCancel=True)
            n_slots = self.n_slots
            self._context.parallelize(range(n_slots), n_slots).foreach(_Forgetting(self._search))

    def _place(self, name: Hashable, value: Any) -> None:
        # Pickled here: Spark's own way would not take functions of the user's script along.
        data = wire.dumps(value)
        self._n_bytes_placed += len(data)
        self._broadcasts[name] = self._context.broadcast(data)

    def _start_units(self) -> None:
        # One unit more than can run, so that no executor waits for the next.
        n_most = self.n_slots if self._limit is not None else 1 + self.n_slots
        while self._waiting and len(self._running) < n_most:
            number = next(iter(self._waiting))
            unit, n_threads = self._waiting.pop(number)
            data = wire.dumps(unit)
            self._n_bytes_of_units += len(data)
            splits = {name: self._broadcasts[name] for name in sorted({call.split for call in unit.calls})}
            prepared = {unit.prepared: self._broadcasts[unit.prepared]} if unit.prepared in self._broadcasts else {}
            task = _UnitTask(self._search, data, n_threads, self._broadcasts["shared"], splits, prepared)
            self._running.add(number)
            run = inheritable_thread_target(self._session)(self._run)
            self._jobs.add(self._threads.submit(run, self._round, number, task))
        self._jobs = {job for job in self._jobs if not job.done()}

    def _run(self, of_round: int, number: int, task: _UnitTask) -> None:
        """In a thread: one job from start to end."""
        if of_round != self._round:
            return
        event: Event
        try:
            self._context.setJobGroup(self._group, f"DMLGBM: unit {number} of a search", interruptOnCancel=True)
            (answer,) = self._context.parallelize([task.unit], 1).mapPartitions(task).collect()
            worker, data = answer
            event = Done(number, wire.loads(data), f"a Spark executor ({worker})")
        except PythonException as error:
            reason = ExecutorError(f"A Spark executor could not run a unit: {_shortened(error)}")
            reason.__cause__ = error
            event = Done(number, UnitResult([], error=reason), "a Spark executor")
        except Exception as error:  # noqa: BLE001 - whatever way Spark has to say that a job failed
            event = Lost(number, "a Spark executor", f"was lost ({_shortened(error)})", _n_attempts(error))
        self._finished.put((of_round, number, event))

    def _require_application(self) -> None:
        if self._context._jsc is None or self._context._jsc.sc().isStopped():
            raise ExecutorError(
                "The Spark application was stopped in the middle of a search: make a new session and run the search "
                "again, with journal= to keep what is finished."
            )


def _about_java() -> str:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return " Spark needs Java, and none was found here: install Java 17, or set JAVA_HOME."
    return ""


def _n_attempts(error: Exception) -> int:
    """How often Spark has run the task: in local mode once, elsewhere up to `spark.task.maxFailures` times."""
    told = re.search(r"failed (\d+) times", str(error))
    return 1 if told is None else int(told[1])


def _shortened(error: Exception) -> str:
    """What Spark says, without the frames of its own threads."""
    told, _, _ = str(error).partition("Driver stacktrace:")
    lines = (line.strip() for line in told.splitlines())
    text = " ".join(line for line in lines if line and not line.startswith(("at ", "...")))
    if len(text) <= _FIRST_CHARACTERS + _LAST_CHARACTERS:
        return text
    return f"{text[:_FIRST_CHARACTERS]} ... {text[-_LAST_CHARACTERS:]}"


# On the executors.

_kept: dict[str, SearchData] = {}
"""What this Python worker has of the search that it ran a unit of last."""


@dataclass(frozen=True)
class _UnitTask:
    """Runs a unit in a Python worker; the values are broadcasts of pickles."""

    search: str
    unit: bytes
    n_threads: int
    shared: Any
    splits: dict[str, Any]
    prepared: dict[Any, Any]

    def __call__(self, units: Iterable[bytes]) -> list[tuple[str, bytes]]:
        data = self._data()
        place = f"{os.uname().nodename}, process {os.getpid()}"
        with fit_environment(self.n_threads):
            return [(place, wire.dumps(wire.portable(run_unit(wire.loads(unit), data)))) for unit in units]

    def _data(self) -> SearchData:
        if self.search not in _kept:
            _kept.clear()
            _kept[self.search] = SearchData(wire.loads(self.shared.value), {})
        data = _kept[self.search]
        new = {name: wire.loads(each.value) for name, each in self.splits.items() if name not in data.splits}
        data.splits = {**data.splits, **new}
        data.prepared = {name: _Unpacking(each) for name, each in self.prepared.items()}
        data.n_threads = self.n_threads
        return data


@dataclass(frozen=True)
class _Unpacking:
    """Makes a value of a broadcast when it is wanted."""

    broadcast: Any

    def __call__(self) -> Any:
        return wire.loads(self.broadcast.value)


@dataclass(frozen=True)
class _Forgetting:
    """Lets a Python worker forget a search; workers that this does not reach end when they have been idle."""

    search: str

    def __call__(self, number: int) -> None:
        _kept.pop(self.search, None)
