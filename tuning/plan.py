"""Which calls run together: the plan of a round, and the one function that every worker runs.

A `WorkUnit` is a list of calls that one worker runs one after the other. The plain plan makes a unit of every call; a
plan that shares work puts calls together that have work in common and names a runner which knows how to share it.

The contract of a runner, `runner(calls, data, counters) -> iterator of results`:

* it is a function of a module (workers find it by name), and yields one `FitResult` a call, in the order of the calls;
* a result equals that of `run_call` in everything but times, whatever was shared and whatever `data.memory` holds;
* an exception ends the unit: with `error_score="raise"` that is how a model's error comes out;
* it adds what it did and saved to `counters`; all names appear in `search_report_`.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dmlgbm.tuning.calls import FitCall, FitResult, SearchData, run_call

Counters: TypeAlias = Counter[str]
UnitRunner: TypeAlias = Callable[[Sequence[FitCall], SearchData, Counters], Iterator[FitResult]]


def run_one_by_one(calls: Sequence[FitCall], data: SearchData, counters: Counters) -> Iterator[FitResult]:
    """Every call on its own, as scikit-learn does."""
    for call in calls:
        yield run_call(call, data)
        counters["fits"] += 1


@dataclass(frozen=True)
class WorkUnit:
    """Calls that run together on one worker."""

    calls: tuple[FitCall, ...]
    runner: UnitRunner = run_one_by_one
    affinity: Hashable = None
    """Units with the same affinity like the worker that ran one of them before: its memory holds what they need.
    Strings, numbers and tuples of them only. An idle worker takes any unit all the same."""
    goes_on: bool = False
    """Whether this takes further what an earlier unit of the same affinity has left: any other worker would have to
    do that again first."""
    prepared: tuple[str, str] | None = None
    """The name, in `SearchData.prepared`, of the prepared rows that all calls learn from; None if there are none."""


@dataclass
class UnitResult:
    """What became of a unit. Without an error there is a result for every call."""

    results: list[FitResult]
    error: BaseException | None = None
    """What the call after the last result raised; the calls behind it were not run."""
    counters: Counters = field(default_factory=Counter)
    warnings: list[tuple[Warning, str, int]] = field(default_factory=list)
    """Message, file and line of the warnings given on the worker, to be repeated on the client."""
    seconds: float = 0.0


Planner: TypeAlias = Callable[[Sequence[FitCall], SearchData, int], list[WorkUnit]]
"""plan(calls of a round, data, number of fits that can run at once) -> units. Every call is in exactly one unit. Units
are started in the order of the list, so the first candidates come first and the longest units early."""


def plan_singly(calls: Sequence[FitCall], data: SearchData, n_slots: int) -> list[WorkUnit]:
    """A unit a call."""
    return [WorkUnit((call,)) for call in calls]


def planner_for(data: SearchData, share_work: bool) -> Planner:
    """The plan for the estimator at hand; `share_work=False` asks for the plain one."""
    from dmlgbm.tuning.sharing.planner import can_share, plan_sharing

    return plan_sharing if share_work and can_share(data.shared.estimator) else plan_singly


def run_unit(unit: WorkUnit, data: SearchData, *, keep_warnings: bool = True) -> UnitResult:
    """Run a unit here. This is what executors call on a worker; it raises nothing but signals to end the process.

    Keeping warnings changes the whole process for that time: it is for workers that run one unit at a time.
    """
    result = UnitResult([])
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) if keep_warnings else contextlib.nullcontext() as caught:
        try:
            for each in unit.runner(unit.calls, data, result.counters):
                result.results.append(each)
        except Exception as error:  # noqa: BLE001 - the model's own error goes to the client, which raises it
            result.error = error
    result.warnings = [(_message(each), each.filename, each.lineno) for each in caught or ()]
    result.seconds = time.perf_counter() - started
    return result


def _message(caught: warnings.WarningMessage) -> Warning:
    return caught.message if isinstance(caught.message, Warning) else caught.category(caught.message)
