"""Where tasks run: the workers of a Dask cluster, or this process where there is no client.

Both offer the same few calls, so that training takes one path. A handle is what a call returns for later calls: a
future on a cluster, the value itself in this process.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol

from dmlgbm.dask_backend.heartbeats import (
    ALIVE,
    SECONDS_WITHOUT_WORKERS,
    WORKER_TIMEOUT,
    WorkerWatch,
    known_workers,
    without_workers,
)
from dmlgbm.dask_backend.row_inputs import PartitionInputs, ReadFunction, Unpacked
from dmlgbm.dask_backend.shared_settings import COMPUTING_ON_CLIENTS
from dmlgbm.dask_backend.task_seat import outside_of_a_task
from dmlgbm.dask_backend.worker_calls import answers_of
from dmlgbm.gbdt.ranks.losses import TrainingLostError
from dmlgbm.gbdt.system.cores import available_threads

Handle = Any
HERE = ""
"""The only worker of this process."""
_SECONDS_FOR_SCHEDULER = 5.0


class Cluster(Protocol):
    """What training needs of the place it runs at."""

    def workers(self) -> dict[str, int]:
        """The workers that take tasks now, at least one, with their numbers of threads."""

    def alive(self) -> dict[str, int]:
        """The workers that go on with what they have: also those that take no new tasks at the moment."""

    def read(self, function: ReadFunction, inputs: Sequence[PartitionInputs], name: str) -> list[Handle]:
        """function(number, X, vectors) for every partition, where Dask likes."""

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        name: str,
        workers: Sequence[str] | None = None,
    ) -> list[Handle]:
        """function(*each) for every tuple of arguments, which may hold handles; `workers` says where."""

    def share(self, value: Any, name: str) -> Handle:
        """A value that many tasks are going to read."""

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """The values behind handles."""

    def gather_each(self, handles: Sequence[Handle], on_value: Callable[[Any], None]) -> list[Any]:
        """The values behind handles; each is shown as it comes."""

    def memory(self) -> float:
        """The bytes that all workers together may use."""

    def holders(self, handles: Sequence[Handle]) -> list[str | None]:
        """A worker that has each value, where that is known."""

    def run(
        self, function: Callable[..., Any], *arguments: Any, workers: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """function(*arguments) on the workers named (or all), beside their tasks.

        Workers that are gone, or do not answer in time, are left out.
        """


class ThisProcess:
    """Everything at once, here; Dask's own scheduler computes the partitions."""

    def workers(self) -> dict[str, int]:
        return {HERE: available_threads()}

    def alive(self) -> dict[str, int]:
        return self.workers()

    def read(self, function: ReadFunction, inputs: Sequence[PartitionInputs], name: str) -> list[Handle]:
        from dask.base import compute
        from dask.delayed import delayed

        read = delayed(Unpacked(function), pure=False)
        return list(compute(*[read(each.number, each.X, each.vectors) for each in inputs]))

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        name: str,
        workers: Sequence[str] | None = None,
    ) -> list[Handle]:
        return [function(*each) for each in arguments]

    def share(self, value: Any, name: str) -> Handle:
        return value

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return list(handles)

    def gather_each(self, handles: Sequence[Handle], on_value: Callable[[Any], None]) -> list[Any]:
        for handle in handles:
            on_value(handle)
        return list(handles)

    def memory(self) -> float:
        return float("inf")

    def holders(self, handles: Sequence[Handle]) -> list[str | None]:
        return [HERE] * len(handles)

    def run(
        self, function: Callable[..., Any], *arguments: Any, workers: Sequence[str] | None = None
    ) -> dict[str, Any]:
        return {HERE: function(*arguments)}


class DaskCluster:
    """The workers of a client. Keys carry the id of the fit, so that no two fits ever share a task."""

    def __init__(
        self,
        client: Any,
        fit_id: str,
        worker_timeout: float = WORKER_TIMEOUT,
        timeout_parameter: str = "worker_timeout",
    ) -> None:
        self.client = client
        self.fit_id = fit_id
        self.watch = WorkerWatch(client, worker_timeout, timeout_parameter)
        self._made: list[weakref.ref[Any]] = []

    def workers(self) -> dict[str, int]:
        until = time.monotonic() + SECONDS_WITHOUT_WORKERS
        while not (found := self._workers_that_are("running")):
            if time.monotonic() > until:
                raise without_workers(self.client, self._known())
            time.sleep(0.1)
        return found

    def alive(self) -> dict[str, int]:
        return self._workers_that_are(*ALIVE)

    def read(self, function: ReadFunction, inputs: Sequence[PartitionInputs], name: str) -> list[Handle]:
        lazy = [part for each in inputs for part in (each.X, *each.vectors.values()) if hasattr(part, "dask")]
        # One call for all: what partitions have in common is computed once.
        futures = dict(zip((part.key for part in lazy), self._noted(self.client.compute(lazy)), strict=True))

        def piece(part: Any) -> Any:
            return futures[part.key] if hasattr(part, "dask") else part

        arguments = [
            (each.number, piece(each.X), {label: piece(part) for label, part in each.vectors.items()})
            for each in inputs
        ]
        return self.map(Unpacked(function), arguments, name)

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        name: str,
        workers: Sequence[str] | None = None,
    ) -> list[Handle]:
        return self._noted(
            [
                self.client.submit(
                    function,
                    *each,
                    key=self._key(f"{name}-{number}"),
                    workers=None if workers is None else [workers[number]],
                    allow_other_workers=workers is not None,
                    pure=False,
                )
                for number, each in enumerate(arguments)
            ]
        )

    def share(self, value: Any, name: str) -> Handle:
        # A task, unlike scattered data, is computed again when the workers that held it are lost.
        [handle] = self._noted([self.client.submit(_same, value, key=self._key(name), pure=False)])
        return handle

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return list(self.client.sync(self.watch.unless_lost, self.client.gather, list(handles)))

    def gather_each(self, handles: Sequence[Handle], on_value: Callable[[Any], None]) -> list[Any]:
        values: dict[str, Any] = {}

        async def take_each() -> None:
            from distributed import as_completed

            async for future, value in as_completed(handles, loop=self.client.loop, with_results=True):
                if future.cancelled():
                    raise value
                on_value(value)
                values[future.key] = value

        self.client.sync(self.watch.unless_lost, take_each)
        return [values[handle.key] for handle in handles]

    def memory(self) -> float:
        # Zero is no limit.
        return float(sum(each["memory_limit"] or float("inf") for each in self._known().values()))

    def holders(self, handles: Sequence[Handle]) -> list[str | None]:
        who_has = self.client.who_has(list(handles))
        return [next(iter(who_has.get(handle.key, ())), None) for handle in handles]

    def run(
        self, function: Callable[..., Any], *arguments: Any, workers: Sequence[str] | None = None
    ) -> dict[str, Any]:
        asked = list(self.alive() if workers is None else workers)
        answers: dict[str, Any] = self.client.sync(answers_of, self.client, self.watch, asked, function, arguments)
        return answers

    def release(self) -> None:
        """Let go of everything that was started here: what is still to be computed will not be, unless others want it.

        A traceback that somebody keeps would hold it otherwise, long after Ctrl-C.
        """
        for reference in self._made:
            future = reference()
            if future is not None:
                future.release()
        self._made.clear()

    def _noted(self, futures: list[Handle]) -> list[Handle]:
        self._made += map(weakref.ref, futures)
        return futures

    def _known(self) -> dict[str, dict[str, Any]]:
        if self.client.status != "running":
            # It would try to connect for half a minute, at every call.
            raise OSError(f"the connection to the scheduler at {self.client.scheduler.address} is lost")
        known: dict[str, dict[str, Any]] = self.client.sync(known_workers, self.client)
        return known

    def _workers_that_are(self, *status: str) -> dict[str, int]:
        given_up = self.watch.given_up
        return {
            address: each["nthreads"]
            for address, each in self._known().items()
            if each["status"] in status and address not in given_up
        }

    def _key(self, name: str) -> str:
        return f"dmlgbm-{name}-{self.fit_id}"


def _same(value: Any) -> Any:
    return value


@contextlib.contextmanager
def connected(
    collections: Sequence[Any],
    fit_id: str,
    given: Any = None,
    worker_timeout: float = WORKER_TIMEOUT,
    timeout_parameter: str = "worker_timeout",
) -> Iterator[Cluster]:
    """The cluster of the given client, of the client that holds the data, or of the current one; else this process.

    Workers that are silent for `worker_timeout` seconds while the block runs are left out. `timeout_parameter` is what
    users call that.
    """
    client = client_of(collections, given)
    if client is None:
        yield ThisProcess()
        return
    _require_usable(client)
    # Whatever is computed meanwhile is computed there.
    cluster = DaskCluster(client, fit_id, worker_timeout, timeout_parameter)
    with (
        COMPUTING_ON_CLIENTS.held(),
        client.as_current(),
        outside_of_a_task(),
        _in_plain_words(client),
        cluster.watch.running(),
    ):
        try:
            yield cluster
        finally:
            cluster.release()


def client_of(collections: Sequence[Any], given: Any) -> Any:
    """The client of a fit: the one that is given, that holds the data or that is current; None where there is none."""
    from dask.base import get_scheduler, is_dask_collection

    if given is not None and not hasattr(given, "scheduler_info"):
        raise TypeError(f"client must be a distributed.Client, got {given!r}.")
    with contextlib.suppress(ImportError):
        from distributed import futures_of

        held = [future for each in collections if is_dask_collection(each) for future in futures_of(each)]
        holders = list({id(future.client): future.client for future in held}.values())
        others = [holder for holder in holders if holder is not (given or holders[0])]
        if others:
            raise ValueError(
                f"The data is held by the client {others[0].id}, but {'client' if given else 'other data'} is "
                f"{(given or holders[0]).id}: persist the data with the client that is to fit."
            )
        if held and given is None:
            return holders[0]
    if given is not None:
        return given
    # Dask's own choice: the scheduler that was configured, the client of the running task, or the current one.
    try:
        owner = getattr(_unwrapped(get_scheduler()), "__self__", None)
    except RuntimeError:  # which is how Dask refuses the asynchronous client of the running event loop
        from distributed import Client

        return Client.current()
    return owner if hasattr(owner, "scheduler_info") else None


def _unwrapped(function: Any) -> Any:
    return function.func if isinstance(function, functools.partial) else function


def _require_usable(client: Any) -> None:
    if client.asynchronous:
        raise ValueError("This needs a synchronous client, but the current one is asynchronous: use Client(address).")
    if client.status != "running":
        raise ValueError(
            f"The Dask client {client.id} is {client.status}: connect a new client, and persist the data again if it "
            "was held there."
        )
    if not client.sync(known_workers, client):
        raise ValueError(
            f"The Dask cluster at {client.scheduler.address} has no workers: start workers, or scale the cluster, "
            "before calling fit."
        )


@contextlib.contextmanager
def _in_plain_words(client: Any) -> Iterator[None]:
    """Say what it means that tasks were cancelled, or that the scheduler is gone."""
    address = client.scheduler.address
    try:
        yield
    except (CancelledError, OSError, TrainingLostError) as error:
        if not _has_scheduler(client):
            raise TrainingLostError(
                f"The connection to the Dask scheduler at {address} was lost: connect a new client, and call fit "
                "again. With checkpoint_dir set, it goes on from the last checkpoint; without it, training starts anew."
            ) from error
        if isinstance(error, CancelledError):
            raise CancelledError(
                f"Tasks of this fit were cancelled, by Client.cancel or Client.restart, or because data that was "
                f"persisted is gone: persist it again if it was, and call fit again ({error})"
            ) from error
        raise


def _has_scheduler(client: Any) -> bool:
    try:
        client.sync(known_workers, client, callback_timeout=_SECONDS_FOR_SCHEDULER)
    except (OSError, RuntimeError, AttributeError):  # also of a client that has closed itself
        return False
    return bool(client.status == "running")
