"""One generation of ranks, seen from the driver: start the barrier stage, follow it, end it.

Whatever happens here (a lost executor, an error in a callback, Ctrl-C), no rank of the generation is running when the
call returns.
"""

from __future__ import annotations

import json
import time
from typing import Any

from gbdt.objectives import RowError
from gbdt.ranks.fit_report import RankReport
from gbdt.ranks.losses import RanksLostError
from gbdt.ranks.progress import Progress
from spark_backend.cluster import BackgroundJob, SparkCluster
from spark_backend.rank_task import RankMain, RankOrder, iteration_of
from spark_backend.reports import DriverLine, Kind, Message

_POLL_SECONDS = 0.1
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_SLOTS = 30.0
_SECONDS_FOR_LAST_WORDS = 30.0
# The Python process of an executor that was killed may live a little longer and talk.
_SECONDS_AFTER_LOSS = 1.0
_LONGEST_REASON = 300
# Errors of these kinds keep their kind on the way to the driver.
_KINDS: dict[str, type[Exception]] = {
    each.__name__: each for each in (ValueError, TypeError, ZeroDivisionError, RowError)
}


class RankError(RuntimeError):
    """A rank failed by itself: training again would fail again."""


def run_ranks(
    cluster: SparkCluster, line: DriverLine, order: RankOrder, shares_by_rank: Any, progress: Progress
) -> list[RankReport]:
    """Train with a rank for each partition of `shares_by_rank`; `progress` is told of every iteration, in order."""
    generation = order.driver.generation
    stage = shares_by_rank.barrier().mapPartitions(RankMain(cluster.share(order)))
    group = f"dmlgbm-{cluster.session}-{generation}"
    job = BackgroundJob(cluster, stage.collect, group, f"DMLGBM: train, generation {generation}")
    try:
        _follow(job, line, progress, _Starting(cluster, line))
    except BaseException:
        job.cancel()
        raise
    try:
        reports: list[RankReport] = job.result()
    except Exception as error:
        raise RanksLostError(_reason(error)) from error
    return reports


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


def _follow(job: BackgroundJob, line: DriverLine, progress: Progress, starting: _Starting) -> None:
    told = False
    while not job.done:
        message = line.next(_POLL_SECONDS)
        if message is None:
            starting.check()
        else:
            _hear(message, progress)
        if progress.stop_reason is not None and not told:
            told = True
            line.stop(progress.stop_reason)
    for message in line.rest(_SECONDS_FOR_LAST_WORDS if job.succeeded else _SECONDS_AFTER_LOSS):
        _hear(message, progress)


def _hear(message: Message, progress: Progress) -> None:
    if message.kind == Kind.ERROR:
        name, words, trace = json.loads(message.payload)
        error = _KINDS[name](*words) if name in _KINDS else RankError(f"{name}: {words[0]}")
        error.add_note(f"raised on rank {message.rank}:\n{trace}")
        raise error
    progress.add(iteration_of(message.payload))


def _reason(error: Exception) -> str:
    """The first words of what Spark says, without the traces of its own threads."""
    text = str(error)
    for marker in ("Most recent failure reason:", "Job aborted due to stage failure:"):
        if marker in text:
            text = text.partition(marker)[2]
            break
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines)[:_LONGEST_REASON]
