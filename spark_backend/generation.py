"""One generation of ranks, seen from the driver: start the barrier stage, follow it, end it.

Whatever happens here (a lost executor, an error in a callback, Ctrl-C), no rank of the generation is running when the
call returns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from dmlgbm.gbdt.objectives import RowError
from dmlgbm.gbdt.ranks.losses import RanksLostError
from dmlgbm.spark_backend.cluster import BackgroundJob, SparkCluster
from dmlgbm.spark_backend.rank_task import Assignment, RankMain, RankWork
from dmlgbm.spark_backend.reports import DriverLine, Kind, Message

_POLL_SECONDS = 0.1
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_SLOTS = 30.0
_SECONDS_FOR_LAST_WORDS = 30.0
# The Python process of an executor that was killed may live a little longer and talk.
_SECONDS_AFTER_LOSS = 1.0
# Of a long message, how much to show of its beginning and of its end, where the cause is.
_FIRST_CHARACTERS, _LAST_CHARACTERS = 200, 600
# Errors of these kinds keep their kind on the way to the driver.
_KINDS: dict[str, type[Exception]] = {
    each.__name__: each for each in (ValueError, TypeError, ZeroDivisionError, RowError)
}


class RankError(RuntimeError):
    """A rank failed by itself: training again would fail again."""


class Follower(Protocol):
    """Whoever is told what rank 0 says, in order, and may ask it to stop."""

    @property
    def stop_reason(self) -> str | None: ...

    def add(self, report: Any) -> None: ...


def run_ranks(
    cluster: SparkCluster,
    line: DriverLine,
    assignment: Assignment,
    rows_by_rank: Any,
    follower: Follower,
    work: RankWork,
    read: Callable[[bytes], Any],
) -> list[Any]:
    """What a rank for each partition of `rows_by_rank` returns from `work`; `read` makes reports of what they tell."""
    generation = assignment.driver.generation
    stage = rows_by_rank.barrier().mapPartitions(RankMain(cluster.share(assignment), work))
    group = f"dmlgbm-{cluster.fit_id}-{generation}"
    job = BackgroundJob(cluster, stage.collect, group, f"DMLGBM: train, generation {generation}")
    try:
        _follow(job, line, _Hearing(follower, read), _Starting(cluster, line))
    except BaseException:
        job.cancel()
        raise
    try:
        results: list[Any] = job.result()
    except Exception as error:
        raise RanksLostError(_reason(error)) from error
    return results


class _Starting:
    """Notices that ranks cannot start: Spark would wait for missing executors without end."""

    def __init__(self, cluster: SparkCluster, line: DriverLine) -> None:
        self._cluster = cluster
        self._line = line
        self._enough_at = time.monotonic()
        self._looked_at = time.monotonic()

    def check(self) -> None:
        now = time.monotonic()
        if self._line.connected or now < self._looked_at + _SECONDS_BETWEEN_LOOKS:
            return
        self._looked_at = now
        n_slots, n_ranks = self._cluster.slots(), self._line.address.n_ranks
        if n_slots >= n_ranks:
            self._enough_at = now
        elif now > self._enough_at + _SECONDS_FOR_SLOTS:
            raise RanksLostError(f"{n_ranks} ranks wait for as many slots, but there are {n_slots}")


def _follow(job: BackgroundJob, line: DriverLine, hear: _Hearing, starting: _Starting) -> None:
    told = False
    while not job.done:
        message = line.next(_POLL_SECONDS)
        if message is None:
            starting.check()
        else:
            hear(message)
        reason = hear.follower.stop_reason
        if reason is not None and not told:
            told = True
            line.stop(reason)
    for message in line.rest(_SECONDS_FOR_LAST_WORDS if job.succeeded else _SECONDS_AFTER_LOSS):
        hear(message)


@dataclass(frozen=True)
class _Hearing:
    """Hands reports on; the error of a rank is raised here."""

    follower: Follower
    read: Callable[[bytes], Any]

    def __call__(self, message: Message) -> None:
        if message.kind == Kind.ERROR:
            name, words, trace = json.loads(message.payload)
            error = _KINDS[name](*words) if name in _KINDS else RankError(f"{name}: {words[0]}")
            error.add_note(f"raised on rank {message.rank}:\n{trace}")
            raise error
        self.follower.add(self.read(message.payload))


def _reason(error: Exception) -> str:
    """What Spark says, without the traces of its own threads."""
    text, _, _ = str(error).partition("Driver stacktrace:")
    for marker in ("Most recent failure reason:", "Job aborted due to stage failure:"):
        if marker in text:
            text = text.partition(marker)[2]
            break
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    text = " ".join(lines)
    if len(text) <= _FIRST_CHARACTERS + _LAST_CHARACTERS:
        return text
    return f"{text[:_FIRST_CHARACTERS]} ... {text[-_LAST_CHARACTERS:]}"
