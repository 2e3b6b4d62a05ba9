"""A rank: one task of a barrier stage that takes its rows, meets the other ranks and trains.

Spark starts all tasks of the stage together and ends all of them when one is lost, so a rank only has to notice that
somebody else is gone. What goes wrong in a rank itself is told to the driver in words before the task fails.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dmlgbm.collectives import (
    CollectiveError,
    Communicator,
    JoinOptions,
    Listener,
    MismatchError,
    Rendezvous,
    join,
    this_host,
)
from dmlgbm.gbdt.boosting.evaluation import EvaluationPart, EvaluationSet
from dmlgbm.gbdt.callbacks import TrainingState
from dmlgbm.gbdt.objectives import RowError
from dmlgbm.gbdt.ranks.fit_report import RankReport, TreeCounts
from dmlgbm.gbdt.ranks.rank import (
    Checkpoint,
    CountedIteration,
    RankData,
    RankTask,
    refit_rank,
    train_rank,
)
from dmlgbm.gbdt.ranks.rank_threads import threads_of_rank
from dmlgbm.spark_backend.ingestion import BinnedShare
from dmlgbm.spark_backend.reports import DriverAddress, Kind, RankLine


@dataclass(frozen=True)
class RankAssignment:
    """What all ranks of one generation are told."""

    driver: DriverAddress
    task: RankTask
    set_names: tuple[str, ...] = ()
    n_jobs: int | None = None
    resume: bytes | None = None


@dataclass(frozen=True)
class Watched:
    """A share of an evaluation set."""

    set_number: int
    share: int
    part: EvaluationPart


class Assignment(Protocol):
    """What ranks of any kind are told: at least where the driver is."""

    @property
    def driver(self) -> DriverAddress: ...


RankWork = Callable[[Any, int, Any, Iterable[tuple[int, Any]]], Any]
"""From (Spark's context of the task, rank, assignment, numbered rows of the rank) to what the driver collects."""


@dataclass(frozen=True)
class RankMain:
    """The function of the barrier stage; the rows of rank r are those of partition r."""

    assignment: Any  # broadcast
    work: RankWork

    def __call__(self, items: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        rank = int(context.partitionId())
        assignment: Assignment = self.assignment.value
        try:
            yield self.work(context, rank, assignment, items)
        except Exception as error:
            if _is_own(error):
                _tell_error(assignment, rank, error)
            raise


def grow_trees(
    context: Any, rank: int, assignment: RankAssignment, items: Iterable[tuple[int, BinnedShare | Watched]]
) -> RankReport | bytes:
    """The work of a rank of the tree learner; a model that was refitted is sent as its file."""
    n_threads = threads_of_rank(max(1, int(context.cpus())), assignment.n_jobs)
    task = replace(assignment.task, parameters=replace(assignment.task.parameters, n_threads=n_threads))
    data, watched = _own_rows(items, assignment)
    with contextlib.ExitStack() as stack:
        communicator = stack.enter_context(join_ranks(context, rank, assignment.driver))
        line = stack.enter_context(RankLine(assignment.driver, rank)) if rank == 0 else None
        if task.to_refit is not None:
            booster = refit_rank(communicator, data, task, watched)
            return booster.to_bytes() if rank == 0 else b""
        result = train_rank(
            communicator,
            data,
            task,
            evaluation_sets=watched,
            callbacks=() if line is None else [_Ending(line)],
            on_iteration=None if line is None else _Telling(line),
            resume=None if assignment.resume is None else Checkpoint.from_bytes(assignment.resume),
        )
    return result.report


@contextlib.contextmanager
def join_ranks(context: Any, rank: int, driver: DriverAddress) -> Iterator[Communicator]:
    """Listen, tell all ranks where through Spark, and join them."""
    address = str(context.getTaskInfos()[rank].address)
    with Listener.tcp(address.rpartition(":")[0] or address) as listener:
        record = _record(context, driver, listener)
        one_host = len(set(record.hosts)) == 1
        with join(record, rank, listener, JoinOptions(shared_memory=one_host)) as communicator:
            yield communicator


def _own_rows(
    items: Iterable[tuple[int, BinnedShare | Watched]], assignment: RankAssignment
) -> tuple[RankData, list[EvaluationSet]]:
    partitions, watched = [], []
    for _, item in items:
        if isinstance(item, BinnedShare):
            partitions.append(item.partition)
        else:
            watched.append(item)
    watched.sort(key=lambda each: each.share)
    sets = [
        EvaluationSet(name, [each.part for each in watched if each.set_number == number])
        for number, name in enumerate(assignment.set_names)
    ]
    return RankData.assembled(assignment.task.plan, partitions), sets


def _record(context: Any, driver: DriverAddress, listener: Listener) -> Rendezvous:
    """Tell all ranks where this one listens, through Spark, and learn where they do."""
    told = context.allGather(json.dumps([str(listener.address), this_host()]))
    places = [json.loads(each) for each in told]
    return Rendezvous(
        driver.session,
        tuple(str(address) for address, _ in places),
        driver.secret,
        driver.generation,
        tuple(str(host) for _, host in places),
    )


def iteration_message(report: CountedIteration) -> bytes:
    """An iteration as bytes: a line of JSON, then a model file with the new trees."""
    head = json.dumps([report.iteration, report.n_iterations, report.counts])
    return head.encode() + b"\n" + Checkpoint().extended(report).to_bytes()


def iteration_of(message: bytes) -> CountedIteration:
    """What `iteration_message` made; executes nothing."""
    head, _, model = message.partition(b"\n")
    iteration, n_iterations, counts = json.loads(head)
    finished = Checkpoint.from_bytes(model)
    assert finished.trees is not None
    evaluations = list(finished.evaluations[0])
    trees = tuple(TreeCounts(*each) for each in counts)
    return CountedIteration(iteration, n_iterations, finished.trees, evaluations, trees, at_start=finished.at_start)


def error_message(error: Exception) -> bytes:
    """An error in words: its kind, what it was made of, its traceback."""
    words = error.args if isinstance(error, RowError) else (str(error),)
    return json.dumps([type(error).__name__, words, traceback.format_exc()]).encode()


@dataclass(frozen=True)
class _Telling:
    """Sends every finished iteration to the driver."""

    line: RankLine

    def __call__(self, report: CountedIteration) -> None:
        self.line.tell(Kind.ITERATION, iteration_message(report))


@dataclass(frozen=True)
class _Ending:
    """A callback of the engine: stops when the driver says so."""

    line: RankLine

    def __call__(self, state: TrainingState) -> None:
        reason = self.line.stop_reason()
        if reason is not None:
            state.stop(reason)


def _is_own(error: Exception) -> bool:
    """Whether the error would come again: the loss of others, or of a connection, is not of that kind."""
    if isinstance(error, MismatchError):
        return True
    return not isinstance(error, CollectiveError | OSError)


def _tell_error(assignment: Assignment, rank: int, error: Exception) -> None:
    # The driver may be gone; then nobody waits for these words.
    with contextlib.suppress(CollectiveError, OSError), RankLine(assignment.driver, rank) as line:
        line.tell(Kind.ERROR, error_message(error))
