"""Collectives of fixed arrays that a kernel of the caller runs again and again, without ever taking the GIL.

A Python thread that wants the GIL back waits up to the interpreter's switch interval (5 ms) for another one to give
it up. A caller that cannot afford that prepares its collectives and stays inside its own kernel between them:

    calls = communicator.kernel_calls()
    sums, best = calls.reduce_scatter(histograms, counts=blocks), calls.all_gather(split)
    with calls:
        status = my_kernel(sums.arguments, best.arguments, until)   # calls run_again_over_sockets(arguments, until)
        calls.finish(status)                                        # then sums.result and best.result hold the last run

Every rank prepares alike and its kernel runs the prepared collectives in the same order, any number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dmlgbm.collectives import requests
from dmlgbm.collectives.call_work import WorkMaker
from dmlgbm.collectives.errors import AbortedError
from dmlgbm.collectives.kernels.layout import DONE, NEXT_SEQUENCE, NOBODY_RUNS, RUNNING, TURN_WORDS
from dmlgbm.collectives.reducers import Array, Reducer
from dmlgbm.collectives.requests import Request
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.transports.contract import Work

if TYPE_CHECKING:
    from dmlgbm.collectives.communicator import Communicator


class PreparedCall:
    """One collective of fixed arrays. `result` is overwritten by every run."""

    def __init__(self, request: Request, work: Work, arguments: tuple[Any, ...]) -> None:
        self.request = request
        self.result = request.result
        self.work = work
        self._arguments = arguments

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What `run_again_over_sockets` or `run_again_over_rings` takes."""
        return self._arguments


class KernelCalls:
    """Prepares collectives, and as a context manager keeps the communicator for the kernel that runs them."""

    def __init__(self, communicator: Communicator, session: Session) -> None:
        self._communicator = communicator
        self._session = session
        self._wires = session.transport.wires
        # One for all prepared collectives, so that they may be run in any order: see `kernels/layout.py`.
        self._turn = np.zeros(TURN_WORDS, np.int64)
        self._turn[RUNNING] = NOBODY_RUNS
        self._prepared: list[PreparedCall] = []

    def all_reduce(
        self, array: Array, op: str | Reducer = "sum", *, algorithm: str | None = None, out: Array | None = None
    ) -> PreparedCall:
        """Prepare `Communicator.all_reduce`."""
        with self._communicator.guard("all_reduce"):
            return self._prepare(array, requests.all_reduce(array, op, algorithm, out))

    def all_gather(self, array: Array, *, algorithm: str | None = None, out: Array | None = None) -> PreparedCall:
        """Prepare `Communicator.all_gather`."""
        with self._communicator.guard("all_gather"):
            return self._prepare(array, requests.all_gather(self._session.world_size, array, algorithm, out))

    def reduce_scatter(
        self,
        array: Array,
        op: str | Reducer = "sum",
        counts: Sequence[int] | None = None,
        *,
        algorithm: str | None = None,
    ) -> PreparedCall:
        """Prepare `Communicator.reduce_scatter`."""
        with self._communicator.guard("reduce_scatter"):
            rank, world_size = self._session.rank, self._session.world_size
            return self._prepare(array, requests.reduce_scatter(rank, world_size, array, op, counts, algorithm))

    def _prepare(self, array: Array, request: Request) -> PreparedCall:
        if not isinstance(array, np.ndarray) or (array.size and not np.may_share_memory(array, request.source)):
            raise ValueError("array must be a contiguous array that out does not overlap: it is used again and again")
        made = WorkMaker(self._session).work_of(request.call)
        work = made.work
        if not work.fused:
            raise TypeError(f"no kernel combines {work.dtype} with this op; use the call of the communicator")
        work.start(0, [request.source, request.result.reshape(-1), np.empty(made.scratch_count, work.dtype)])
        position = len(self._prepared)
        arguments = (
            work.kernel_view,
            work.addresses,
            self._wires,
            work.operation or 0,
            work.like,
            work.control,
            self._turn,
            position,
        )
        self._prepared.append(PreparedCall(request, work, arguments))
        return self._prepared[-1]

    def finish(self, status: int, timeout: float | None = None) -> None:
        """Deal with the status that a kernel brought back: complete the collective it stopped in, or raise."""
        under_way = self._under_way
        if status == DONE or under_way is None:
            return
        seconds = self._communicator.timeout if timeout is None else timeout
        name = (under_way.request.call.operation, int(self._turn[NEXT_SEQUENCE]))
        self._session.run(under_way.work, name, seconds, status)
        self._turn[NEXT_SEQUENCE] += 1
        self._turn[RUNNING] = NOBODY_RUNS

    @property
    def _under_way(self) -> PreparedCall | None:
        """The collective that a kernel began and did not end."""
        position = int(self._turn[RUNNING])
        return None if position == NOBODY_RUNS else self._prepared[position]

    def __enter__(self) -> Self:
        self._turn[NEXT_SEQUENCE] = self._communicator.take_over(self._session)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        under_way, problem = self._under_way, None
        if under_way is not None:
            reason = "did not finish a collective that its kernel had begun" if error is None else repr(error)
            problem = AbortedError(f"rank {self._session.rank} {reason}", self._session.rank)
        try:
            self._session.let_go(problem, None if under_way is None else under_way.work)
        finally:
            self._communicator.give_back(int(self._turn[NEXT_SEQUENCE]))
        if problem is not None and error is None:
            raise problem
