"""One generation of ranks, seen from the client: start them, bring them together, follow them, end them.

Whatever happens here (a lost worker, an error in a callback, Ctrl-C), no rank of the generation is running when the
call returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dmlgbm.collectives import CollectiveError, MismatchError, Rendezvous, StaleGenerationError
from dmlgbm.dask_backend.cluster import DaskCluster
from dmlgbm.dask_backend.rank_task import (
    RankOutcome,
    RankStopped,
    finish_rank,
    introduce_rank,
    next_reports,
    rank_place,
    run_rank,
    stop_rank,
)
from dmlgbm.dask_backend.worker_holdings import MissingRowsError
from dmlgbm.gbdt.ranks.losses import RanksLostError

_PATIENCE = 1.0
_SECONDS_TO_STOP = 20.0
_SECONDS_PAUSED = 60.0


class Assignment(Protocol):
    """What all ranks of one generation are told; only the learner looks at the rest of it."""

    @property
    def fit_id(self) -> str: ...
    @property
    def generation(self) -> int: ...


class Place(Protocol):
    """Where a rank runs."""

    @property
    def worker(self) -> str: ...


class Follower(Protocol):
    """What the client makes of the reports of rank 0; a `stop_reason` ends training in order."""

    @property
    def stop_reason(self) -> str | None: ...
    def add(self, report: Any) -> None: ...


def run_ranks(
    cluster: DaskCluster,
    assignment: Assignment,
    places: Sequence[Place],
    follower: Follower,
    task: Callable[..., RankOutcome] = run_rank,
    inputs: Sequence[Sequence[Any]] | None = None,
) -> list[RankOutcome]:
    """Train with a rank at each place; `follower` is told here of every report, in order.

    A rank is task(assignment, rank, place), with its own `inputs` (handles) as a last argument where there are some.
    """
    with _alone_on(cluster, places):
        shared = cluster.share(assignment, f"assignment-{assignment.generation}")
        futures = [
            cluster.client.submit(
                task,
                shared,
                rank,
                place,
                *([] if inputs is None else [list(inputs[rank])]),
                key=f"dmlgbm-rank-{rank}-{assignment.generation}-{assignment.fit_id}",
                workers=[place.worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            for rank, place in enumerate(places)
        ]
        try:
            _introduce(cluster, assignment, places, futures)
            return _follow(cluster, assignment, places, futures, follower)
        except BaseException as error:
            _end(cluster, assignment, places, futures, f"training ended on the client: {error!r:.200}")
            raise


@contextlib.contextmanager
def _alone_on(cluster: DaskCluster, places: Sequence[Place]) -> Iterator[None]:
    """One fit at a time on a worker, so that fits do not take each other's threads.

    Locks are taken in one order, so nobody waits in a circle, and Dask takes them back from a client that is gone.
    """
    from distributed import Lock

    with contextlib.ExitStack() as stack:
        for worker in sorted(place.worker for place in places):
            client = cluster.client
            stack.enter_context(Lock(f"dmlgbm-{worker}", scheduler_rpc=client.scheduler, loop=client.loop))
        yield


def _introduce(cluster: DaskCluster, assignment: Assignment, places: Sequence[Place], futures: Sequence[Any]) -> None:
    """Wait until every rank listens, then tell each where the others are."""
    workers = [place.worker for place in places]
    found: dict[str, tuple[str, str]] = {}
    until = time.monotonic() + _SECONDS_PAUSED
    while len(found) < len(workers):
        _require_running(cluster, futures, places)
        missing = [each for each in workers if each not in found]
        if time.monotonic() > until:
            _require_unpaused(cluster, places, missing)
        answers = cluster.run(rank_place, assignment.fit_id, assignment.generation, workers=missing)
        found.update({worker: place for worker, place in answers.items() if place is not None})
    record = Rendezvous.create(
        [found[worker][0] for worker in workers],
        [found[worker][1] for worker in workers],
        assignment.generation,
        assignment.fit_id,
    )
    cluster.run(introduce_rank, assignment.fit_id, assignment.generation, record.as_dict(), workers=workers)


def _require_unpaused(cluster: DaskCluster, places: Sequence[Place], missing: Sequence[str]) -> None:
    """A worker that is paused does not start its rank before it has memory again, which may never be."""
    alive, willing = cluster.alive(), cluster.workers()
    paused = [
        f"rank {rank} on {place.worker}: its worker is paused, because its memory is full, and did not start the rank "
        f"within {_SECONDS_PAUSED:g} s"
        for rank, place in enumerate(places)
        if place.worker in missing and place.worker in alive and place.worker not in willing
    ]
    if paused:
        raise RanksLostError("; ".join(paused))


def _follow(
    cluster: DaskCluster,
    assignment: Assignment,
    places: Sequence[Place],
    futures: Sequence[Any],
    follower: Follower,
) -> list[RankOutcome]:
    n_seen, told = 0, False
    while not all(future.done() for future in futures):
        reports = cluster.client.sync(_next, cluster.client, assignment, places[0].worker, futures, n_seen)
        for report in reports:
            follower.add(report)
        n_seen += len(reports)
        if follower.stop_reason is not None and not told:
            told = True
            cluster.run(
                finish_rank, assignment.fit_id, assignment.generation, follower.stop_reason, workers=[places[0].worker]
            )
        _require_running(cluster, futures, places)
    _require_running(cluster, futures, places)
    outcomes = _gathered(cluster, futures, places)
    for report in outcomes[0].reports[n_seen - outcomes[0].first_report :]:
        follower.add(report)
    return outcomes


def _gathered(cluster: DaskCluster, futures: Sequence[Any], places: Sequence[Place]) -> list[RankOutcome]:
    """The results of ranks that have ended. Dask would wait for ever for those of a worker that has died since."""
    client = cluster.client

    async def start() -> asyncio.Future[Any]:
        return asyncio.ensure_future(client.gather(list(futures), asynchronous=True))

    async def has_ended(call: asyncio.Future[Any]) -> bool:
        await asyncio.wait({call}, timeout=_PATIENCE)
        return call.done()

    call = client.sync(start)
    try:
        while not client.sync(has_ended, call):
            _require_running(cluster, futures, places)
        outcomes: list[RankOutcome] = call.result()
        return outcomes
    finally:
        client.loop.add_callback(call.cancel)


async def _next(client: Any, assignment: Assignment, worker: str, futures: Sequence[Any], n_seen: int) -> list[Any]:
    """New reports, or nothing as soon as a rank has ended: asking a worker that is gone would take long."""
    from distributed import wait

    asked = asyncio.ensure_future(
        client.run(
            next_reports,
            assignment.fit_id,
            assignment.generation,
            n_seen,
            _PATIENCE,
            workers=[worker],
            on_error="return",
        )
    )
    pending = [future for future in futures if not future.done()]
    ended = asyncio.ensure_future(wait(pending, return_when="FIRST_COMPLETED"))
    try:
        await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=10 * _PATIENCE)
        if not asked.done():
            # The worker of a rank that ended in order answers soon.
            await asyncio.wait({asked}, timeout=_PATIENCE / 2)
        if not asked.done():
            return []
        answer = asked.result().get(worker)
        return answer if isinstance(answer, list) else []
    finally:
        for each in (asked, ended):
            each.cancel()
        await asyncio.gather(asked, ended, return_exceptions=True)


def _require_running(cluster: DaskCluster, futures: Sequence[Any], places: Sequence[Place]) -> None:
    """Raise for ranks that failed: their own error, or RanksLostError for what other ranks can recover from."""
    lost = []
    if not all(future.done() for future in futures):
        # Dask would wait for a worker of this name to return.
        alive = cluster.alive()
        lost = [
            f"rank {rank} on {place.worker}: its worker {cluster.watch.reasons.get(place.worker, 'is gone')}"
            for rank, place in enumerate(places)
            if place.worker not in alive
        ]
    for rank, (future, place) in enumerate(zip(futures, places, strict=True)):
        if future.status in ("pending", "finished"):
            continue
        error = future.exception() if future.status == "error" else None
        if error is not None and not _is_loss(error):
            error.add_note(f"raised on rank {rank}, worker {place.worker}")
            raise error
        lost.append(f"rank {rank} on {place.worker}: {error if error is not None else future.status}")
    if lost:
        raise RanksLostError("; ".join(lost))


def _is_loss(error: BaseException) -> bool:
    from distributed.scheduler import KilledWorker

    if isinstance(error, MismatchError) and not isinstance(error, StaleGenerationError):
        return False  # ranks that do different things would do so again
    return isinstance(error, CollectiveError | RankStopped | KilledWorker | MissingRowsError | OSError)


def _end(
    cluster: DaskCluster, assignment: Assignment, places: Sequence[Place], futures: Sequence[Any], reason: str
) -> None:
    """Stop what is left of a generation and wait until it has stopped."""
    with contextlib.suppress(Exception):
        alive = cluster.alive()
        left = [place.worker for place in places if place.worker in alive]
        # A rank that cannot stop so soon, because it is in a function of the user, does not make its worker silent.
        seconds = min(_SECONDS_TO_STOP, cluster.watch.seconds / 2)
        cluster.run(stop_rank, assignment.fit_id, reason, seconds, workers=left)
    with contextlib.suppress(Exception):
        cluster.client.cancel(list(futures))
