"""An all_reduce of fixed arrays that is run again and again, if need be by a kernel that never takes the GIL.

A Python thread that wants the GIL back waits up to the interpreter's switch interval (5 ms) for another one to give
it up. A caller that cannot afford that stays inside its own kernel between the calls:

    with communicator.prepare_all_reduce(histogram) as prepared:
        status = my_kernel(prepared.arguments, ...)   # calls run_again_over_sockets(prepared.arguments, until)
        prepared.finish(status)
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from collectives.frames import Operation
from collectives.kernels.layout import DONE, SEQUENCE_WORD
from collectives.reducers import Array
from collectives.session import Session
from collectives.transports.contract import Work

if TYPE_CHECKING:
    from collectives.communicator import Communicator


class PreparedAllReduce:
    """Holds the communicator for itself between `with` and its end; every rank prepares and runs alike."""

    def __init__(
        self, communicator: Communicator, session: Session, work: Work, buffers: list[Array], result: Array
    ) -> None:
        if not work.fused:
            raise TypeError(f"no kernel combines {work.dtype}; use all_reduce")
        self.result = result
        self._communicator = communicator
        self._session = session
        self._work = work
        self._buffers = buffers
        self._arguments = (
            work.kernel_view,
            work.addresses,
            session.transport.wires,
            work.operation or 0,
            work.like,
            work.control,
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What `run_again_over_sockets` or `run_again_over_rings` takes; valid inside the `with` block."""
        return self._arguments

    def run(self, timeout: float | None = None) -> Array:
        """Run once more from Python."""
        communicator = self._communicator
        self._work.start(self._sequence + 1, self._buffers)
        self._finish(communicator.timeout if timeout is None else timeout)
        return self.result

    def finish(self, status: int, timeout: float | None = None) -> None:
        """Deal with the status a kernel brought back: complete the run it stopped in, or raise."""
        if status != DONE:
            self._finish(self._communicator.timeout if timeout is None else timeout)

    def _finish(self, timeout: float) -> None:
        self._session.run(self._work, (Operation.ALL_REDUCE, self._sequence), timeout)

    @property
    def _sequence(self) -> int:
        return int(self._work.headers[0, SEQUENCE_WORD])

    def __enter__(self) -> Self:
        self._communicator._lock.acquire()
        self._session.check_usable()
        self._work.start(self._communicator._sequence - 1, self._buffers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._communicator._sequence = self._sequence + 1
        self._communicator._lock.release()
