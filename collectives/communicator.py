"""The public face: what a rank can do together with the others.

Every rank makes the same calls in the same order. A call ends within its deadline on every rank, with a result or
with an error that names what happened; after an error the session is over for all ranks. Inputs are never written
to. Results have the same bits on every rank: where order matters, contributions are folded in rank order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import numpy as np

from dmlgbm.collectives import requests
from dmlgbm.collectives.arrays import check_dtype, flat, output, separate
from dmlgbm.collectives.call_work import Call, WorkMaker
from dmlgbm.collectives.frames import Operation
from dmlgbm.collectives.handles import Handle, InOrder
from dmlgbm.collectives.joining.groups import Regrouping, split
from dmlgbm.collectives.joining.negotiation import TlsContexts
from dmlgbm.collectives.kernel_calls import KernelCalls
from dmlgbm.collectives.point_to_point import PointToPoint
from dmlgbm.collectives.reducers import Array, Reducer, find_reducer
from dmlgbm.collectives.requests import Request
from dmlgbm.collectives.session import Session

DEFAULT_TIMEOUT = 120.0

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_NOTHING = np.empty(0, np.uint8)


class Communicator:
    """One of `world_size` ranks. Use it as a context manager, from one thread at a time.

    `timeout` (seconds) is the deadline of every call that is not given its own. `hosts[r]` names the machine of
    rank r, where that is known.
    """

    def __init__(
        self,
        session: Session,
        timeout: float = DEFAULT_TIMEOUT,
        hosts: Sequence[str] = (),
        regrouping: Regrouping | None = None,
        tls: TlsContexts | None = None,
    ) -> None:
        if not 0 < timeout < float("inf"):
            raise ValueError(f"timeout must be a finite number of seconds above 0, got {timeout}")
        self.rank = session.rank
        self.world_size = session.world_size
        self.timeout = timeout
        self.hosts = tuple(hosts)
        # What ranks dial each other with; for others who open connections between the same machines.
        self.tls = tls
        self._session = session
        self._regrouping = regrouping
        self._splits = 0
        self._maker = WorkMaker(session)
        self._lock = threading.RLock()
        self._started = InOrder(f"collectives-{session.name}-{session.rank}")
        self._point_to_point = PointToPoint(session)

    @property
    def bytes_sent(self) -> int:
        """What this rank has sent in calls that have ended, without those of its groups and kernels."""
        return self._session.bytes_sent

    # Collectives.

    def all_reduce(
        self,
        array: Array,
        op: str | Reducer = "sum",
        *,
        algorithm: str | None = None,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """The arrays of all ranks combined, element by element, on every rank."""
        with CallGuard(self, "all_reduce"):
            return self._answer(requests.all_reduce(array, op, algorithm, out), timeout)

    def reduce(
        self,
        array: Array,
        op: str | Reducer = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """The arrays of all ranks combined, on the root; None on the others."""
        with CallGuard(self, "reduce"):
            reducer, values = find_reducer(op), flat(array)
            self._check_rank(root, "root")
            # Owners of blocks that are not the root need room for their block as well.
            result = np.empty(np.shape(array), values.dtype)
            call = Call(Operation.REDUCE, values.dtype, (len(values),), root, reducer, algorithm)
            self._run(call, values, result.reshape(-1), timeout)
            return result if self.rank == root else None

    def broadcast(
        self,
        array: Array,
        root: int = 0,
        *,
        algorithm: str | None = None,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """The root's array on every rank. On the others `array` only says which type and shape to expect."""
        with CallGuard(self, "broadcast"):
            self._check_rank(root, "root")
            values = np.asarray(array)
            check_dtype(values.dtype, "array")
            call = Call(Operation.BROADCAST, values.dtype, (values.size,), root, algorithm=algorithm)
            if self.rank == root:
                self._run(call, _NOTHING, flat(values), timeout)
                result = output(out, values.shape, values.dtype)
                result[...] = values
                return result
            result = output(out, values.shape, values.dtype)
            self._run(call, _NOTHING, result.reshape(-1), timeout)
            return result

    def all_gather(
        self,
        array: Array,
        *,
        algorithm: str | None = None,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """The arrays of all ranks, which have one shape, stacked in rank order along a new first axis."""
        with CallGuard(self, "all_gather"):
            return self._answer(requests.all_gather(self.world_size, array, algorithm, out), timeout)

    def all_gather_unequal(
        self, array: Array, *, algorithm: str | None = None, timeout: float | None = None
    ) -> list[Array]:
        """The arrays of all ranks, which may differ in the length of their first axis, in rank order."""
        with CallGuard(self, "all_gather_unequal"):
            values, own = flat(array), np.asarray(array)
            if own.ndim == 0:
                raise ValueError("array must have at least one axis")
            lengths = self.all_gather(np.array([own.shape[0]], np.int64), timeout=timeout)[:, 0]
            width = int(np.prod(own.shape[1:], dtype=np.int64))
            counts = tuple(int(length) * width for length in lengths)
            result = np.empty((int(lengths.sum()), *own.shape[1:]), values.dtype)
            call = Call(Operation.ALL_GATHER, values.dtype, counts, algorithm=algorithm)
            self._run(call, values, result.reshape(-1), timeout)
            return np.split(result, np.cumsum(lengths)[:-1])

    def gather(self, array: Array, root: int = 0, *, timeout: float | None = None) -> Array | None:
        """The arrays of all ranks stacked in rank order, on the root; None on the others."""
        with CallGuard(self, "gather"):
            self._check_rank(root, "root")
            values = flat(array)
            result = np.empty((self.world_size, *np.shape(array)), values.dtype) if self.rank == root else None
            call = Call(Operation.GATHER, values.dtype, (len(values),) * self.world_size, root)
            self._run(call, values, values[:0] if result is None else result.reshape(-1), timeout)
            return result

    def scatter(self, array: Array | None, out: Array, root: int = 0, *, timeout: float | None = None) -> Array:
        """`out` filled with the root's array[rank]. Only the root's `array` is looked at."""
        with CallGuard(self, "scatter"):
            self._check_rank(root, "root")
            result = output(out, np.shape(out), np.asarray(out).dtype)
            check_dtype(result.dtype, "out")
            source = result.reshape(-1)[:0]
            if self.rank == root:
                expected = (self.world_size, *result.shape)
                if array is None or np.shape(array) != expected or np.asarray(array).dtype != result.dtype:
                    raise ValueError(f"array must be an array of {result.dtype} with shape {expected} on the root")
                source = separate(flat(array), out)
            call = Call(Operation.SCATTER, result.dtype, (result.size,) * self.world_size, root)
            self._run(call, source, result.reshape(-1), timeout)
            return result

    def reduce_scatter(
        self,
        array: Array,
        op: str | Reducer = "sum",
        counts: Sequence[int] | None = None,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """This rank's part of the combined arrays: `counts` rows of the first axis for each rank, or equal parts."""
        with CallGuard(self, "reduce_scatter"):
            request = requests.reduce_scatter(self.rank, self.world_size, array, op, counts, algorithm)
            return self._answer(request, timeout)

    def all_to_all(self, array: Array, *, out: Array | None = None, timeout: float | None = None) -> Array:
        """array[p] goes to rank p; result[p] is what rank p had for this rank."""
        with CallGuard(self, "all_to_all"):
            own = np.asarray(array)
            if own.ndim == 0 or own.shape[0] != self.world_size:
                raise ValueError(
                    f"array must have one entry a rank ({self.world_size}) on its first axis, got {own.shape}"
                )
            values, result = flat(own), output(out, own.shape, own.dtype)
            counts = (len(values) // self.world_size,) * self.world_size
            call = Call(Operation.ALL_TO_ALL, values.dtype, counts, incoming=counts)
            self._run(call, separate(values, out), result.reshape(-1), timeout)
            return result

    def all_to_all_unequal(self, arrays: Sequence[Array], *, timeout: float | None = None) -> list[Array]:
        """arrays[p] goes to rank p; the result has what each rank had for this one. Only first axes may differ."""
        with CallGuard(self, "all_to_all_unequal"):
            if len(arrays) != self.world_size or any(np.ndim(array) == 0 for array in arrays):
                raise ValueError(f"arrays must hold one array with a first axis for each of {self.world_size} ranks")
            dtype = np.asarray(arrays[0]).dtype
            # Given explicitly, because numpy would turn a foreign byte order into the native one.
            values = np.concatenate([np.asarray(array) for array in arrays], dtype=dtype, casting="equiv")
            lengths = np.array([len(array) for array in arrays], np.int64)
            incoming = self.all_to_all(lengths, timeout=timeout)
            width = int(np.prod(values.shape[1:], dtype=np.int64))
            result = np.empty((int(incoming.sum()), *values.shape[1:]), values.dtype)
            call = Call(
                Operation.ALL_TO_ALL,
                values.dtype,
                tuple(int(length) * width for length in lengths),
                incoming=tuple(int(length) * width for length in incoming),
            )
            self._run(call, flat(values), result.reshape(-1), timeout)
            return np.split(result, np.cumsum(incoming)[:-1])

    def barrier(self, *, algorithm: str | None = None, timeout: float | None = None) -> None:
        """Return once every rank has called it."""
        with CallGuard(self, "barrier"):
            call = Call(Operation.BARRIER, _NOTHING.dtype, (0,), algorithm=algorithm)
            self._run(call, _NOTHING, _NOTHING, timeout)

    # Point to point.

    def send(self, array: Array, destination: int, *, tag: int = 0, timeout: float | None = None) -> None:
        """Send an array to one rank, which must call `recv` as its next call that concerns this rank."""
        with CallGuard(self, "send"):
            self._exchange(flat(array), destination, _NOTHING, None, tag, timeout)

    def recv(self, out: Array, source: int, *, tag: int = 0, timeout: float | None = None) -> Array:
        """`out` filled with an array of the same type and size that one rank sends."""
        with CallGuard(self, "recv"):
            result = output(out, np.shape(out), np.asarray(out).dtype)
            self._exchange(_NOTHING, None, result.reshape(-1), source, tag, timeout)
            return result

    def send_recv(
        self,
        array: Array,
        destination: int,
        out: Array,
        source: int,
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> Array:
        """Send to one rank and receive from one (the same or another) side by side."""
        with CallGuard(self, "send_recv"):
            result = output(out, np.shape(out), np.asarray(out).dtype)
            self._exchange(separate(flat(array), out), destination, result.reshape(-1), source, tag, timeout)
            return result

    # Groups, calls that go on by themselves, and the end.

    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """A communicator for the ranks that give this color, ordered by key and rank; None for those that give None.

        Groups have their own connections, errors and end; close them before this communicator.
        """
        with CallGuard(self, "split"):
            if self._regrouping is None:
                raise ValueError("split is not possible for a communicator that was made by hand")
            self._splits += 1
            return split(self, self._regrouping, self._splits, color, key)

    def start(
        self, call: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Handle[Result]:
        """Start a call of this communicator, such as `start(c.all_reduce, x)`; started calls run in this order."""
        self._session.check_usable()
        return self._started.start(lambda: call(*arguments, **options))

    def kernel_calls(self) -> KernelCalls:
        """Collectives of fixed arrays that kernels run without the GIL, over plain sockets and memory."""
        with CallGuard(self, "kernel_calls"):
            return KernelCalls(self, self._session)

    def abort(self, reason: str) -> None:
        """End the session on every rank at once, from any thread; all calls raise AbortedError with the reason."""
        self._session.abort(reason)

    def close(self) -> None:
        """Wait for started calls, then give back every connection, thread and descriptor. May be called twice."""
        self._started.close()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(f"it left its block with {error!r}")
        self.close()

    # How calls are made.

    def guard(self, name: str) -> CallGuard:
        """What every call runs inside of."""
        return CallGuard(self, name)

    def take_over(self, session: Session) -> int:
        """Keep this communicator for kernels until `give_back`; the next sequence number."""
        with CallGuard(self, "kernel_calls"):
            session.hold()
            self._lock.acquire()
        return session.sequence

    def give_back(self, sequence: int) -> None:
        """Go on with this sequence number after kernels have run."""
        self._session.sequence = sequence
        self._lock.release()

    def _answer(self, request: Request, timeout: float | None) -> Array:
        self._run(request.call, request.source, request.result.reshape(-1), timeout)
        return request.result

    def _run(self, call: Call, source: Array, target: Array, timeout: float | None) -> None:
        made, sequence = self._maker.work_of(call), self._session.sequence
        scratch = self._maker.scratch(made.scratch_count, target.dtype)
        made.work.start(sequence, [source, target, scratch])
        self._session.run(made.work, (call.operation, sequence), self._deadline(timeout))
        self._session.sequence = sequence + 1

    def _exchange(
        self,
        array: Array,
        destination: int | None,
        out: Array,
        source: int | None,
        tag: int,
        timeout: float | None,
    ) -> None:
        for rank, name in ((destination, "destination"), (source, "source")):
            if rank is None:
                continue
            self._check_rank(rank, name)
            if rank == self.rank:
                raise ValueError(f"{name} is this rank itself ({rank})")
        if not 0 <= tag < 1 << 31:
            raise ValueError(f"tag must be between 0 and 2**31 - 1, got {tag}")
        self._point_to_point.exchange(array, destination, out, source, tag, self._deadline(timeout))

    def _check_rank(self, rank: int, name: str) -> None:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"{name} must be a rank from 0 to {self.world_size - 1}, got {rank}")

    def _deadline(self, timeout: float | None) -> float:
        seconds = self.timeout if timeout is None else timeout
        if not 0 < seconds < float("inf"):
            raise ValueError(f"timeout must be a finite number of seconds above 0, got {seconds}")
        return seconds


class CallGuard:
    """Lets one call run at a time; a call with bad arguments ends the session, so that nobody waits for this rank."""

    __slots__ = ("_communicator", "_name")

    def __init__(self, communicator: Communicator, name: str) -> None:
        self._communicator = communicator
        self._name = name

    def __enter__(self) -> None:
        communicator = self._communicator
        communicator._started.wait_for_started()
        communicator._lock.acquire()
        try:
            communicator._session.check_usable()
        except BaseException:
            communicator._lock.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        communicator = self._communicator
        try:
            if isinstance(error, TypeError | ValueError):
                where = f"{self._name} (sequence {communicator._session.sequence})"
                communicator.abort(f"{where} was called with bad arguments: {error}")
        finally:
            communicator._lock.release()
