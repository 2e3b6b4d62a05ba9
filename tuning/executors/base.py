"""The contract of executors: where the units of a search run.

An executor belongs to one search: `place` hands it the shared arguments and, as they come up, the folds, each of
which it brings to each worker at most once; `submit` queues units; `wait` gives what has happened since. It does not
retry, keep order, count or journal: `tuning/driver.py` does that for all executors alike. All calls come from one
thread.

A new executor is one file with a class that follows `Executor`, and a line in `tuning/executors/registry.py`. On a
worker it builds a `SearchData` (one a search, so that `memory` lasts from unit to unit) and calls
`dmlgbm.tuning.plan.run_unit` inside `dmlgbm.tuning.executors.worker_threads.fit_environment(n_threads)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from dmlgbm.tuning.calls import SharedArguments, Split
from dmlgbm.tuning.plan import UnitResult, WorkUnit


@dataclass(frozen=True)
class Done:
    """A unit has run; its result may hold the error of a model."""

    unit: int
    result: UnitResult
    worker: str


@dataclass(frozen=True)
class Lost:
    """A unit has no result because its worker is gone (or could not read it): it may be submitted again."""

    unit: int
    worker: str
    reason: str
    """What is known, for people: "ended by signal 9 (SIGKILL); the kernel does this when memory runs out"."""
    attempts: int = 1
    """How many workers this cost, where the backend has run the unit again by itself."""


Event: TypeAlias = Done | Lost


class Executor(Protocol):
    """Runs the units of one search."""

    name: str
    """What users call it: "local", "dask", "spark"."""

    @property
    def n_slots(self) -> int:
        """How many units can run at once now; at least 1."""

    @property
    def n_cores(self) -> int:
        """The cores of all workers together; the driver shares them out among the fits that run at once."""

    def place_shared(self, shared: SharedArguments) -> None:
        """Called once, before any unit: what all units need."""

    def place_split(self, name: str, split: Split) -> None:
        """Called once a name, before the units that need it."""

    def submit(self, number: int, unit: WorkUnit, n_threads: int) -> None:
        """Queue a unit under a number that was not used before; it may use so many kernel threads. Does not block."""

    def wait(self, timeout: float | None) -> Sequence[Event]:
        """What has happened since the last call, at least one event unless `timeout` seconds went by. Raises
        KeyboardInterrupt at once, and `ExecutorError` when no unit can ever run again."""

    def cancel(self) -> None:
        """Forget all units that have no result yet; those that run are stopped as far as the backend can. No event
        of theirs comes later. The executor stays usable."""

    def close(self) -> None:
        """End the search: free what it placed and kept on the workers. Called exactly once, also after errors."""

    def traffic(self) -> dict[str, int]:
        """Bytes sent so far: {"bytes_placed": shared arguments and folds, "bytes_of_units": units}."""


@runtime_checkable
class BringsPreparedRows(Protocol):
    """An executor that takes prepared rows to each machine once: the client prepares folds for all workers."""

    def place_prepared(self, name: tuple[str, str], prepared: Any) -> None:
        """Called once a name, before the units that name it; `SearchData.prepared` leads to the value on a worker."""


@runtime_checkable
class LeavesWorkersOut(Protocol):
    """An executor that goes on without workers which do not answer."""

    def left_out(self) -> Sequence[str]:
        """A sentence for each of them, for people."""


class ExecutorError(RuntimeError):
    """The place where units run cannot be used (any more); the message says what to do."""
