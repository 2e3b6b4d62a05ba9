"""Faults on purpose, for tests: end, stop or delay this process at a chosen point of a chosen collective."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlgbm.collectives.frames import Operation, decode
from dmlgbm.collectives.kernels.layout import DONE
from dmlgbm.collectives.transports.contract import Transport, Work

if TYPE_CHECKING:
    from dmlgbm.collectives.communicator import Communicator

POINTS = ("before", "amid", "after")
_ACTIONS: dict[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "delay": lambda: time.sleep(1.0),
}


@dataclass(frozen=True)
class Fault:
    """What happens where: on `rank`, in the collective with this name and sequence number.

    `before` it sends anything; `amid` it, when it has sent what goes out at once and received what is there; or
    `after` it has done its part.
    """

    rank: int
    operation: str
    sequence: int
    point: str = "before"
    action: str = "kill"

    def __post_init__(self) -> None:
        if self.point not in POINTS or self.action not in _ACTIONS:
            raise ValueError(f"point must be one of {POINTS} and action one of {tuple(_ACTIONS)}, got {self}")
        Operation[self.operation.upper()]


class _FaultyTransport(Transport):
    """Passes everything on, until its moment has come."""

    def __init__(self, transport: Transport, fault: Fault) -> None:
        self.rank, self.world_size = transport.rank, transport.world_size
        self._transport = transport
        self._fault = fault

    def run(self, work: Work, until: int) -> int:
        header = decode(work.headers[0].tobytes()) if len(work.headers) else None
        fault = self._fault
        if header is None or (header.operation, header.sequence) != (
            Operation[fault.operation.upper()],
            fault.sequence,
        ):
            return self._transport.run(work, until)
        if fault.point == "amid":
            self._transport.run(work, 0)
        status = self._transport.run(work, until) if fault.point == "after" else DONE
        _ACTIONS[fault.action]()
        return status if fault.point == "after" else self._transport.run(work, until)

    def exchange(self, first: int, last: int, work: Work, until: int) -> int:
        return self._transport.exchange(first, last, work, until)

    def send_now(self, peer: int, data: bytes) -> bool:
        return self._transport.send_now(peer, data)

    def receive_now(self, peer: int, size: int) -> bytes | None:
        return self._transport.receive_now(peer, size)

    def look_ahead(self, peer: int, size: int) -> bytes:
        return self._transport.look_ahead(peer, size)

    def stop_watching(self, peer: int) -> None:
        self._transport.stop_watching(peer)

    def wake(self) -> None:
        self._transport.wake()

    def close(self) -> None:
        self._transport.close()


def inject(communicator: Communicator, fault: Fault) -> None:
    """Let the fault happen if this is its rank."""
    if communicator.rank == fault.rank:
        session = communicator._session
        session.transport = _FaultyTransport(session.transport, fault)
