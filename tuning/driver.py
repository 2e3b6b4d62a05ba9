"""Runs the calls of a search on an executor: plans, retries, stops in time, and remembers every result.

The driver is the one place that knows which calls are finished. scikit-learn asks for results in its order
(`result_of`); in between the driver takes whatever arrives. Calls may be added while others run, which is how
searches that decide as they go (Hyperband, Optuna) work.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dmlgbm.tuning.calls import FitCall, FitResult, SearchData, SharedArguments, Split
from dmlgbm.tuning.executors.base import BringsPreparedRows, Done, Event, Executor, LeavesWorkersOut, Lost
from dmlgbm.tuning.journal import call_key
from dmlgbm.tuning.outcomes import lost_result, not_run_result
from dmlgbm.tuning.plan import WorkUnit, planner_for
from dmlgbm.tuning.report import SearchReport
from dmlgbm.tuning.sharing.notes import notes_on_sharing
from dmlgbm.tuning.sharing.preparation import prepared_for

FollowUp = Callable[[FitCall, FitResult], None]


class Journal(Protocol):
    """Results that outlive this process."""

    def open(self, shared: SharedArguments) -> None: ...
    def recall(self, call: FitCall) -> FitResult | None: ...
    def record(self, call: FitCall, result: FitResult) -> None: ...


class Watcher(Protocol):
    """Is told how the search goes on."""

    def update(self, call: FitCall, result: FitResult, n_done: int, n_asked: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class DriverSettings:
    """What the user may say about the running of a search."""

    share_work: bool = True
    max_retries: int = 3
    time_budget: float | None = None


@dataclass
class _Submitted:
    unit: WorkUnit
    n_losses: int = 0
    reasons: list[str] = field(default_factory=list)


class Driver:
    """The calls of one search, from the first to the last round."""

    def __init__(
        self, executor: Executor, settings: DriverSettings, journal: Journal | None, watchers: Sequence[Watcher] = ()
    ) -> None:
        self.executor = executor
        self.report = SearchReport(backend=executor.name, n_slots=executor.n_slots)
        self.n_calls = 0
        self.stopped: str | None = None
        self._follow_up: FollowUp | None = None
        self._followed: dict[str, tuple[FitResult, float]] = {}
        self._settings = settings
        self._journal = journal
        self._watchers = watchers
        self._started = time.monotonic()
        self._closed = False
        self._calls_planned = False
        self._data: SearchData | None = None
        self._splits: dict[str, Split] = {}
        self._prepared: set[tuple[str, str]] = set()
        self._calls: dict[int, FitCall] = {}
        self._results: dict[int, FitResult] = {}
        self._errors: dict[int, BaseException] = {}
        self._submitted: dict[int, _Submitted] = {}
        self._n_submitted = 0
        self._rows: set[int] = set()
        self._row_finished: dict[int, float] = {}
        self._warned: dict[Any, Any] = {}

    # What scikit-learn's side calls.

    def begin(self, shared: SharedArguments) -> None:
        """Bring the data to the workers."""
        if self._journal is not None:
            self._journal.open(shared)
        self._data = SearchData(shared, self._splits)
        self.executor.place_shared(shared)

    @property
    def data(self) -> SearchData:
        assert self._data is not None
        return self._data

    def next_number(self) -> int:
        """A number for a call; those of a candidate's folds follow each other."""
        self.n_calls += 1
        return self.n_calls - 1

    def follow(self, follow_up: FollowUp) -> None:
        """Show every result as it comes. Who looks at it may add calls that scikit-learn asks for later."""
        self._follow_up = follow_up

    def add(self, calls: Sequence[FitCall], splits: Mapping[str, Split], *, asked: bool = True) -> None:
        """Take calls on; what is not known yet is planned and queued. `asked` is whether scikit-learn asks for them."""
        for name, split in splits.items():
            if name not in self._splits:
                self._splits[name] = split
                self.executor.place_split(name, split)
        self.report.calls_asked += len(calls) if asked else 0
        if asked:
            self._rows.update(_row(call) for call in calls)
        self._calls.update((call.number, call) for call in calls)
        unknown = [call for call in calls if not self._recalled(call)]
        if self.stopped is None and unknown:
            if self._settings.share_work and not self._calls_planned:
                self.report.notes += notes_on_sharing(unknown[0], self.data)
            self._calls_planned = True
            plan = planner_for(self.data, self._settings.share_work)
            units = plan(unknown, self.data, self.executor.n_slots)
            if isinstance(self.executor, BringsPreparedRows):
                self._prepare_for(units, self.executor)
            self._submit([_Submitted(unit) for unit in units])

    def _prepare_for(self, units: Sequence[WorkUnit], executor: BringsPreparedRows) -> None:
        """Prepare what units need and no unit before has needed, as long as that succeeds."""
        for unit in units:
            if unit.prepared is None or unit.prepared in self._prepared:
                continue
            self._prepared.add(unit.prepared)
            try:
                prepared = prepared_for(unit, self.data)
            except Exception:  # noqa: BLE001 - whatever is wrong with rows or parameters: a fit says it better
                self.report.counters["sharing_failed"] += 1
                continue
            if prepared is not None:
                executor.place_prepared(unit.prepared, prepared)
                self.report.counters["folds_prepared"] += 1

    def result_of(self, number: int) -> FitResult:
        """The result of a call that was added; runs whatever comes first until it is there."""
        while number not in self._results:
            if self._errors:
                self.abort()
                raise self._errors[min(self._errors)]
            if self.stopped is not None:
                return self._not_run(number)
            self._step()
        result = self._results[number]
        # Whoever follows looks after failures: a trial that fails is not the end of the search.
        return result if self._follow_up is None else {**result, "fit_error": None}

    def run_to_the_end(self) -> list[FitResult]:
        """Run all calls, also those that are added on the way; what came of all of them."""
        while self._submitted and not self._errors and self.stopped is None:
            self._step()
        if self._errors:
            self.abort()
            raise self._errors[min(self._errors)]
        return list(self._results.values())

    def has_a_complete_candidate(self) -> bool:
        """Whether any candidate has results of all folds."""
        return bool({_row(call) for call in self._calls.values()} - self._incomplete_rows())

    def abort(self) -> None:
        """Forget all calls that have no result."""
        self.executor.cancel()
        self._submitted.clear()

    def close(self) -> None:
        """End the search; the report is complete after this. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self.report.seconds = time.monotonic() - self._started
        traffic = self.executor.traffic()
        self.report.bytes_placed, self.report.bytes_of_units = traffic["bytes_placed"], traffic["bytes_of_units"]
        self.report.stopped = self.stopped
        incomplete = self._incomplete_rows()
        self.report.finished_at = [
            math.nan if row in incomplete else self._row_finished[row] for row in sorted(self._rows)
        ]
        if isinstance(self.executor, LeavesWorkersOut):
            self.report.notes += self.executor.left_out()
        for watcher in self._watchers:
            watcher.close()
        self.executor.close()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    # Running.

    def _step(self) -> None:
        try:
            events = self.executor.wait(self._seconds_left())
        except KeyboardInterrupt:
            if not self.has_a_complete_candidate():
                self.abort()
                raise
            self._stop("Ctrl-C")
            return
        for event in events:
            self._take(event)
        left = self._seconds_left()
        if left is not None and left <= 0 and self._submitted:
            self._stop("time_budget")

    def _seconds_left(self) -> float | None:
        budget = self._settings.time_budget
        return None if budget is None else max(0.0, budget - self.elapsed)

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self.abort()

    def _submit(self, submitted: Iterable[_Submitted]) -> None:
        waiting = list(submitted)
        n_running = max(1, min(self.executor.n_slots, len(self._submitted) + len(waiting)))
        n_threads = max(1, self.executor.n_cores // n_running)  # asked for once: a cluster takes milliseconds to say
        for each in waiting:
            number = self._n_submitted
            self._n_submitted += 1
            self._submitted[number] = each
            self.executor.submit(number, each.unit, n_threads)

    def _take(self, event: Event) -> None:
        submitted = self._submitted.pop(event.unit, None)
        if submitted is None:
            return
        if isinstance(event, Lost):
            self._retry(submitted, event)
            return
        self._finish(submitted.unit, event)

    def _finish(self, unit: WorkUnit, done: Done) -> None:
        result = done.result
        self.report.units += 1
        self.report.counters.update(result.counters)
        self.report.seconds_of_work += result.seconds
        for message, filename, line in result.warnings:
            warnings.warn_explicit(message, None, filename, line, registry=self._warned)
        for call, each in zip(unit.calls, result.results, strict=False):
            if self._journal is not None:
                self._journal.record(call, each)
            self.report.calls_answered += 1
            self._store(call, each)
        if result.error is not None:
            self._errors[unit.calls[len(result.results)].number] = result.error

    def _retry(self, submitted: _Submitted, lost: Lost) -> None:
        """Run a unit again whose worker was lost; the one call that kills its workers must not take others along."""
        self.report.units_lost += 1
        submitted.n_losses += lost.attempts
        submitted.reasons.append(f"{lost.worker} {lost.reason}")
        if submitted.n_losses <= self._settings.max_retries:
            self._submit([submitted])
        elif len(submitted.unit.calls) > 1:
            singly = (WorkUnit((call,)) for call in submitted.unit.calls)
            self._submit(_Submitted(unit, submitted.n_losses - 1, list(submitted.reasons)) for unit in singly)
        else:
            (call,) = submitted.unit.calls
            outcome = lost_result(call, self.data, submitted.reasons)
            if isinstance(outcome, BaseException):
                self._errors[call.number] = outcome
            else:
                self._store(call, outcome)

    # Results.

    def _store(self, call: FitCall, result: FitResult) -> None:
        self._results[call.number] = result
        self._row_finished[_row(call)] = self.elapsed
        for watcher in self._watchers:
            watcher.update(call, result, len(self._results), max(len(self._calls), self.report.calls_asked))
        if self._follow_up is not None:
            self._followed[call_key(call)] = (result, self.elapsed)
            self._follow_up(call, result)

    def _recalled(self, call: FitCall) -> bool:
        if self._follow_up is not None and (followed := self._followed.get(call_key(call))) is not None:
            self._results[call.number], self._row_finished[_row(call)] = followed
            self._follow_up(call, followed[0])
            return True
        known = None if self._journal is None else self._journal.recall(call)
        if known is None:
            return False
        self.report.calls_from_journal += 1
        self._store(call, known)
        return True

    def _not_run(self, number: int) -> FitResult:
        self.report.calls_not_run += 1
        return not_run_result(self._calls[number], self.data, next(iter(self._results.values()), None))

    def _incomplete_rows(self) -> set[int]:
        return {_row(call) for number, call in self._calls.items() if number not in self._results}


def _row(call: FitCall) -> int:
    """Stands for the row of `cv_results_` that a call belongs to: the calls of a candidate are numbered in a row."""
    return call.number - call.fold
