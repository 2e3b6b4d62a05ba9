"""Where tasks run: the workers of a Dask cluster, or this process where there is no client.

Both offer the same few calls, so that training takes one path. A handle is what a call returns for later calls: a
future on a cluster, the value itself in this process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from dask_backend.row_inputs import PartitionInputs
from gbdt.threads import available_threads

Handle = Any
ReadFunction = Callable[[int, Any, Mapping[str, Any]], Any]
HERE = ""
"""The only worker of this process."""


class Cluster(Protocol):
    """What training needs of the place it runs at."""

    def workers(self) -> dict[str, int]:
        """The workers that take part now, with their numbers of threads."""

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
        """function(*arguments) on every worker named, beside its tasks; workers that are gone are left out."""


class ThisProcess:
    """Everything at once, here; Dask's own scheduler computes the partitions."""

    def workers(self) -> dict[str, int]:
        return {HERE: available_threads()}

    def read(self, function: ReadFunction, inputs: Sequence[PartitionInputs], name: str) -> list[Handle]:
        from dask.base import compute
        from dask.delayed import delayed

        read = delayed(function, pure=False)
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
    """The workers of a client. Keys carry the session, so that no two fits ever share a task."""

    def __init__(self, client: Any, session: str) -> None:
        self.client = client
        self.session = session

    def workers(self) -> dict[str, int]:
        known = _known_workers(self.client)
        return {address: each["nthreads"] for address, each in known.items() if each["status"] == "running"}

    def read(self, function: ReadFunction, inputs: Sequence[PartitionInputs], name: str) -> list[Handle]:
        lazy = [part for each in inputs for part in (each.X, *each.vectors.values()) if hasattr(part, "dask")]
        # One call for all: what partitions have in common is computed once.
        futures = dict(zip((part.key for part in lazy), self.client.compute(lazy), strict=True))

        def piece(part: Any) -> Any:
            return futures[part.key] if hasattr(part, "dask") else part

        arguments = [
            (each.number, piece(each.X), {label: piece(part) for label, part in each.vectors.items()})
            for each in inputs
        ]
        return self.map(function, arguments, name)

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        name: str,
        workers: Sequence[str] | None = None,
    ) -> list[Handle]:
        return [
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

    def share(self, value: Any, name: str) -> Handle:
        # A task, unlike scattered data, is computed again when the workers that held it are lost.
        return self.client.submit(_same, value, key=self._key(name), pure=False)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return list(self.client.gather(list(handles)))

    def gather_each(self, handles: Sequence[Handle], on_value: Callable[[Any], None]) -> list[Any]:
        from distributed import as_completed

        values = {}
        for future, value in as_completed(handles, with_results=True):
            on_value(value)
            values[future.key] = value
        return [values[handle.key] for handle in handles]

    def memory(self) -> float:
        known = _known_workers(self.client)
        # Zero is no limit.
        return float(sum(each["memory_limit"] or float("inf") for each in known.values()))

    def holders(self, handles: Sequence[Handle]) -> list[str | None]:
        who_has = self.client.who_has(list(handles))
        return [next(iter(who_has.get(handle.key, ())), None) for handle in handles]

    def run(
        self, function: Callable[..., Any], *arguments: Any, workers: Sequence[str] | None = None
    ) -> dict[str, Any]:
        answers = self.client.run(
            function, *arguments, workers=None if workers is None else list(workers), on_error="return"
        )
        for answer in answers.values():
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise answer
        return {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}

    def _key(self, name: str) -> str:
        return f"dmlgbm-{name}-{self.session}"


def _same(value: Any) -> Any:
    return value


def _known_workers(client: Any) -> dict[str, dict[str, Any]]:
    """What the scheduler says of each worker, by address.

    Not from `scheduler_info`: that reads a field of the client, which a periodic update without any workers may
    overwrite between the question and the answer.
    """
    workers: dict[str, dict[str, Any]] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return workers


@contextlib.contextmanager
def connected(collections: Sequence[Any], session: str, given: Any = None) -> Iterator[Cluster]:
    """The cluster of the given client, of the client that holds the data, or of the current one; else this process."""
    client = _client_of(collections, given)
    if client is None:
        yield ThisProcess()
        return
    _require_usable(client)
    # Whatever is computed meanwhile is computed there.
    with client.as_current(), _outside_of_a_task():
        yield DaskCluster(client, session)


def _client_of(collections: Sequence[Any], given: Any) -> Any:
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
    owner = getattr(_unwrapped(get_scheduler()), "__self__", None)
    return owner if hasattr(owner, "scheduler_info") else None


def _unwrapped(function: Any) -> Any:
    return function.func if isinstance(function, functools.partial) else function


def _require_usable(client: Any) -> None:
    if client.asynchronous:
        raise ValueError("fit needs a synchronous client, but the current one is asynchronous: use Client(address).")
    if client.status != "running":
        raise ValueError(
            f"The Dask client {client.id} is {client.status}: connect a new client, and persist the data again if it "
            "was held there."
        )
    if not _known_workers(client):
        raise ValueError(
            f"The Dask cluster at {client.scheduler.address} has no workers: start workers, or scale the cluster, "
            "before calling fit."
        )


@contextlib.contextmanager
def _outside_of_a_task() -> Iterator[None]:
    """A fit inside a task gives its place in the worker's queue to the tasks that it starts."""
    from distributed import get_worker, rejoin, secede

    try:
        get_worker()
        secede()
    except (ValueError, KeyError, AttributeError):
        # Not in a task, in one that has left already (`worker_client`) and will come back itself, or in a thread of its
        # own that never had a place.
        yield
        return
    try:
        yield
    finally:
        rejoin()
