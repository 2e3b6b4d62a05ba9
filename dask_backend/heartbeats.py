"""Workers that have gone silent: noticed while a fit runs, and given up long before Dask itself would.

A process that is stopped, or whose machine is frozen, keeps its connections, so whoever asks it something waits. Its
heartbeats stop, though, and the scheduler knows when it heard the last one. A worker without heartbeats is given up in
Dask's own way, only sooner: its nanny starts it anew, and tasks and data that it had are made again elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from dmlgbm.gbdt.ranks.losses import TrainingLostError

logger = logging.getLogger("dmlgbm")

Answer = TypeVar("Answer")

WORKER_TIMEOUT = 30.0
"""Seconds without a heartbeat after which a worker is given up."""
SECONDS_WITHOUT_WORKERS = 60.0
ALIVE = ("running", "paused")
"""What a worker is while it works on what it has; one that is paused takes no new tasks until it has memory again."""

_LONGEST_INTERVAL = 3.0
# How long a nanny may take to end its process.
_SECONDS_TO_RESTART = 10.0


class Silence:
    """For how long each worker has not been heard of, in time during which the scheduler itself answered."""

    def __init__(self, seconds: float, longest_step: float) -> None:
        self._seconds = seconds
        self._longest_step = longest_step
        self._silent: dict[str, tuple[float, float]] = {}  # last heartbeat, and the time since then
        self._asked_at: float | None = None

    def silent_workers(self, last_seen: Mapping[str, float], now: float) -> list[str]:
        """Workers that have been silent for too long, by the time of the last heartbeat of each.

        Times of the scheduler are compared with each other only: its clock may be wrong. Where this process or the
        scheduler was busy, heartbeats may wait to be read, so one look never counts for more than a step.
        """
        step = 0.0 if self._asked_at is None else min(now - self._asked_at, self._longest_step)
        self._asked_at = now
        before = self._silent
        self._silent = {
            worker: (seen, before[worker][1] + step if worker in before and before[worker][0] == seen else 0.0)
            for worker, seen in last_seen.items()
        }
        # Workers of a large cluster send fewer heartbeats; three may be missing.
        allowed = max(self._seconds, 3.0 * (1.0 + len(last_seen) / 200))
        return [worker for worker, (_, silent) in self._silent.items() if silent >= allowed]


class WorkerWatch:
    """Looks after the workers of a client while a fit runs, on the client's event loop."""

    def __init__(self, client: Any, seconds: float, parameter: str = "worker_timeout") -> None:
        self.seconds = seconds
        self._parameter = parameter  # by which the user may change it
        self.given_up: set[str] = set()  # until the scheduler knows it, too
        self.reasons: dict[str, str] = {}  # of all workers that were given up in this fit
        self._client = client
        self._interval = min(_LONGEST_INTERVAL, seconds / 10)
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch until the block ends."""

        async def start() -> None:
            self._task = asyncio.ensure_future(self._watch())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

        self._client.sync(start)
        try:
            yield
        finally:
            task = self._task
            if task is not None:
                with contextlib.suppress(RuntimeError):  # the loop of a client that was closed
                    self._client.loop.add_callback(task.cancel)

    @property
    def found_no_workers(self) -> bool:
        """Whether nobody has taken tasks for so long that the watch has ended."""
        task = self._task
        return task is not None and task.done() and not task.cancelled() and task.exception() is not None

    async def unless_lost(self, function: Callable[..., Awaitable[Answer]], *arguments: Any) -> Answer:
        """function(*arguments), or the error that ends a fit without workers."""
        call = asyncio.ensure_future(function(*arguments))
        try:
            if self._task is not None and not self._task.done():
                await asyncio.wait({call, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and self._task is not None and self._task.done() and not self._task.cancelled():
                self._task.result()
            return await call
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def give_up(self, worker: str, reason: str) -> None:
        """Take a worker out of the cluster; it comes back as a new one if it has a nanny."""
        if worker in self.given_up:
            return
        self.given_up.add(worker)
        self.reasons[worker] = reason
        logger.warning("The Dask worker %s is left out and started anew: it %s", worker, reason)
        try:
            await self._client.scheduler.restart_workers(
                workers=[worker],
                client=self._client.id,
                timeout=_SECONDS_TO_RESTART,
                wait_for_workers=False,
                on_error="return",
                stimulus_id=f"dmlgbm-silent-worker-{time.time()}",
            )
        finally:
            self.given_up.discard(worker)

    async def _watch(self) -> None:
        silence = Silence(self.seconds, 2 * self._interval)
        until = time.monotonic() + SECONDS_WITHOUT_WORKERS
        restarts: set[asyncio.Task[None]] = set()
        known: dict[str, dict[str, Any]] = {}
        try:
            while True:
                if self._client.status != "running":
                    return  # without a scheduler, the call that waits for it says so
                with contextlib.suppress(OSError):
                    known = await known_workers(self._client)
                last_seen = {worker: each["last_seen"] for worker, each in known.items()}
                for worker in silence.silent_workers(last_seen, time.monotonic()):
                    reason = f"has not been heard of for {self.seconds:g} s ({self._parameter})"
                    restarts.add(asyncio.ensure_future(self.give_up(worker, reason)))
                if any(each["status"] in ALIVE for each in known.values()):
                    until = time.monotonic() + SECONDS_WITHOUT_WORKERS
                elif time.monotonic() > until:
                    raise without_workers(self._client, known)
                await asyncio.sleep(self._interval)
        finally:
            for restart in restarts:
                restart.cancel()


async def known_workers(client: Any) -> dict[str, dict[str, Any]]:
    """What the scheduler says of each worker, by address.

    Not from `scheduler_info`: that reads a field of the client, which a periodic update without any workers may
    overwrite between the question and the answer.
    """
    workers: dict[str, dict[str, Any]] = (await client.scheduler.identity(n_workers=-1))["workers"]
    return workers


def without_workers(client: Any, known: Mapping[str, Mapping[str, Any]]) -> TrainingLostError:
    """The error of a cluster where nobody takes tasks any more."""
    paused = sum(each["status"] == "paused" for each in known.values())
    why = f" ({paused} are paused because their memory is full)" if paused else ""
    return TrainingLostError(
        f"The Dask cluster at {client.scheduler.address} has had no workers that take tasks for "
        f"{SECONDS_WITHOUT_WORKERS:g} s{why}: start workers, and call fit again; with checkpoint_dir it goes on from "
        "the last checkpoint."
    )
