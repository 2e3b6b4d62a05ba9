"""Units in worker processes of this machine.

Shared arguments and folds are written once to unnamed files that all workers map; a unit is a message of a few hundred
bytes. Each worker gets the next unit when it answers, preferably one whose affinity it has seen. While many wait, it
has that one before it answers: a unit of a few small trees takes not much longer than a message there and back.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from multiprocessing.connection import wait
from time import monotonic

from dmlgbm.gbdt.system.cores import available_threads
from dmlgbm.tuning.calls import SharedArguments, Split
from dmlgbm.tuning.executors import wire
from dmlgbm.tuning.executors.base import Done, Event, Lost
from dmlgbm.tuning.executors.worker_pool import SHARED, Worker, give_back, packed, take_pool
from dmlgbm.tuning.plan import WorkUnit

# How far ahead a free worker looks for a unit that suits it.
_UNITS_LOOKED_AT = 256
# Units that must wait for each worker, so that none of them lacks what another has been given ahead of time.
_WAITING_WORTH_AHEAD = 8
# A worker that does not run because it was stopped is given up after so long: somebody may let it go on.
_SECONDS_STOPPED = 30.0
_SECONDS_BETWEEN_LOOKS = 2.0


class LocalExecutor:
    """Runs units in processes that map the data."""

    name = "local"

    def __init__(self, n_workers: int, n_threads: int) -> None:
        self._pool = take_pool(n_workers, n_threads)
        self._placed: dict[str, wire.Blob | bytes] = {}
        self._waiting: dict[int, tuple[WorkUnit, int]] = {}
        self._given: dict[int, tuple[WorkUnit, int]] = {}
        self._home: dict[Hashable, Worker] = {}
        self._lost: list[Event] = []
        self._left_out: list[str] = []
        self._n_bytes_placed = self._n_bytes_of_units = 0

    @property
    def n_slots(self) -> int:
        return len(self._pool.workers)

    @property
    def n_cores(self) -> int:
        return available_threads()

    @property
    def process_ids(self) -> list[int]:
        """The worker processes of this search."""
        return [worker.process_id for worker in self._pool.workers]

    def place_shared(self, shared: SharedArguments) -> None:
        self._placed[SHARED] = packed(shared)

    def place_split(self, name: str, split: Split) -> None:
        self._placed[name] = packed(split)

    def submit(self, number: int, unit: WorkUnit, n_threads: int) -> None:
        self._waiting[number] = (unit, n_threads)

    def wait(self, timeout: float | None) -> Sequence[Event]:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            self._start_units()
            events, self._lost = self._lost, []
            busy = {worker.connection: worker for worker in self._pool.workers if worker.units}
            if events or not busy:
                return events
            left = math.inf if deadline is None else max(0.0, deadline - monotonic())
            ready = wait(list(busy), min(left, _SECONDS_BETWEEN_LOOKS))
            if ready or left <= _SECONDS_BETWEEN_LOOKS:
                return [self._event(busy[connection]) for connection in ready]  # type: ignore[index]
            self._leave_out(worker for worker in busy.values() if worker.seconds_stopped() >= _SECONDS_STOPPED)

    def cancel(self) -> None:
        self._waiting.clear()
        self._given.clear()
        self._lost.clear()
        for worker in list(self._pool.workers):
            if worker.units:
                worker.kill()
                self._replace(worker)

    def close(self) -> None:
        self.cancel()
        for worker in self._pool.workers:
            worker.end_search()
        for blob in self._placed.values():
            if isinstance(blob, wire.Blob):
                blob.close()
        self._placed.clear()
        self._home.clear()
        give_back(self._pool)

    def left_out(self) -> list[str]:
        return list(self._left_out)

    def traffic(self) -> dict[str, int]:
        return {"bytes_placed": self._n_bytes_placed, "bytes_of_units": self._n_bytes_of_units}

    def _start_units(self) -> None:
        for worker in list(self._pool.workers):
            if not worker.units and (number := self._unit_for(worker)) is not None:
                self._start(worker, number)
        for worker in list(self._pool.workers):
            if len(self._waiting) < _WAITING_WORTH_AHEAD * self.n_slots:
                return
            if len(worker.units) == 1 and (number := self._unit_at_home(worker)) is not None:
                self._start(worker, number)

    def _unit_at_home(self, worker: Worker) -> int | None:
        """The next unit that this worker would take if it were free, unless another one might come to want it."""
        first = islice(self._waiting.items(), _UNITS_LOOKED_AT)
        return next((number for number, (unit, _) in first if self._home.get(unit.affinity, worker) is worker), None)

    def _unit_for(self, worker: Worker) -> int | None:
        """The next unit for a free worker: one that belongs here, else one that belongs nowhere, else any.

        None if all that is left goes on from work done elsewhere, and is next there.
        """
        homeless: list[int] = []
        elsewhere: list[int] = []
        bound: dict[Worker, list[int]] = {}
        for number, (unit, _) in islice(self._waiting.items(), _UNITS_LOOKED_AT):
            home = self._home.get(unit.affinity) if unit.affinity is not None else None
            if home is worker:
                return number
            if home is None:
                homeless.append(number)
            elif unit.goes_on:
                bound.setdefault(home, []).append(number)
            else:
                elsewhere.append(number)
        # To do again what was done elsewhere takes about as long as to wait for one other unit.
        elsewhere += [units[-1] for units in bound.values() if len(units) > 1]
        return next(iter([*homeless, *elsewhere]), None)

    def _start(self, worker: Worker, number: int) -> None:
        self._given[number] = unit, n_threads = self._waiting.pop(number)
        worker.units.append(number)
        if unit.affinity is not None:
            # A unit that runs elsewhere for once does not take the others along: what they need is at home.
            self._home.setdefault(unit.affinity, worker)
        data = wire.dumps(unit)
        try:
            names = {SHARED, *(call.split for call in unit.calls)}
            self._n_bytes_placed += sum(worker.place(name, self._placed[name]) for name in sorted(names))
            worker.start(number, data, n_threads)
        except OSError:
            worker.require_start()
            self._lost.append(self._lost_unit(worker))
            return
        self._n_bytes_of_units += len(data)

    def _event(self, worker: Worker) -> Event:
        try:
            number, result = worker.answer()
        except (EOFError, OSError):
            return self._lost_unit(worker)
        worker.units.remove(number)
        del self._given[number]
        return Done(number, result, worker.name)

    def _lost_unit(self, worker: Worker) -> Lost:
        """The unit that a worker was lost with; what it had been given ahead of time is next again."""
        number, *ahead = worker.units
        del self._given[number]
        self._waiting = {each: self._given.pop(each) for each in ahead} | self._waiting
        lost = Lost(number, worker.name, worker.stop())
        self._replace(worker)
        return lost

    def _leave_out(self, stopped: Iterable[Worker]) -> None:
        """Workers that are stopped still have their connections: nothing else tells that they will not answer."""
        for worker in stopped:
            reason = f"was stopped by a signal for {_SECONDS_STOPPED:g} s"
            self._left_out.append(f"The {worker.name} was left out: it {reason}.")
            self._lost.append(replace(self._lost_unit(worker), reason=reason))

    def _replace(self, worker: Worker) -> None:
        self._pool.replace(worker)
        self._home = {affinity: home for affinity, home in self._home.items() if home is not worker}
