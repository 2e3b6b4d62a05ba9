"""The line between the ranks and the driver while a stage runs: iterations go up, a request to stop comes down.

Spark brings results of a task only when it ends. So the driver listens, and a rank that has something to tell (rank 0
each iteration, any rank its own error) dials it and proves that it knows the session's secret. Messages are
a kind, a length and bytes that are read as a model file or as text, never executed.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Self

from dmlgbm.collectives import Listener
from dmlgbm.collectives.joining.addresses import Address
from dmlgbm.collectives.joining.handshake import Hello, Purpose, Refusal, Verdict
from dmlgbm.collectives.joining.negotiation import Arrival, Negotiator, Security, connect

_HEAD = struct.Struct("<BQ")
_LARGEST = 1 << 32
_SECONDS_TO_CONNECT = 30.0
_POLL_SECONDS = 0.2
_DRIVER = 0


class Kind(IntEnum):
    """What a message says."""

    ITERATION = 1
    ERROR = 2
    STOP = 3


@dataclass(frozen=True)
class Message:
    """What a rank of some generation said."""

    kind: Kind
    rank: int
    payload: bytes


@dataclass(frozen=True)
class DriverAddress:
    """All that a rank must know to dial the driver. The secret travels with Spark's own messages only."""

    session: str
    secret: bytes
    address: str
    generation: int
    n_ranks: int


class DriverLine:
    """The driver's end. Strangers and ranks of other generations are turned away."""

    def __init__(self, bind_host: str, host: str, session: str, secret: bytes, generation: int, n_ranks: int) -> None:
        self._listener = Listener.tcp(bind_host)
        address = Address(host, self._listener.address.port)
        self.address = DriverAddress(session, secret, str(address), generation, n_ranks)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._connections: list[tuple[int, socket.socket]] = []
        self._readers: list[threading.Thread] = []
        self._closed = threading.Event()
        self._accepting = threading.Thread(target=self._accept, name="dmlgbm-reports", daemon=True)
        self._accepting.start()

    @property
    def connected(self) -> bool:
        """Whether a rank has dialled."""
        return bool(self._connections)

    def next(self, patience: float) -> Message | None:
        """The next message, if one comes in time."""
        try:
            return self._messages.get(timeout=patience)
        except queue.Empty:
            return None

    def rest(self, patience: float) -> list[Message]:
        """Every message that ranks sent before they ended; one that does not end is waited for this long."""
        self._closed.set()
        self._accepting.join()
        for reader in list(self._readers):
            reader.join(patience)
        left = []
        while (message := self.next(0)) is not None:
            left.append(message)
        return left

    def stop(self, reason: str) -> None:
        """Let training end after the iteration that it is at."""
        for rank, connection in self._connections:
            if rank == 0:
                with contextlib.suppress(OSError):
                    _send(connection, Kind.STOP, reason.encode())

    def close(self) -> None:
        self._closed.set()
        self._accepting.join()
        for _, connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for reader in self._readers:
            reader.join()
        for _, connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        known = Security(self.address.session, self.address.secret)
        with self._listener, Negotiator(known) as negotiator:
            negotiator.listen(self._listener, self._judge)
            until = float("inf")
            while (left := until - time.monotonic()) > 0:
                for result in negotiator.poll(min(left, _POLL_SECONDS)):
                    if isinstance(result, Arrival):
                        self._welcome(result)
                if self._closed.is_set() and until == float("inf"):
                    # A rank that has dialled by now may have said its last words already.
                    until = time.monotonic() + _POLL_SECONDS

    def _judge(self, hello: Hello) -> Verdict:
        refusal = Refusal.NONE
        if hello.purpose != Purpose.REPORTS:
            refusal = Refusal.PURPOSE
        elif hello.generation != self.address.generation:
            refusal = Refusal.GENERATION
        return Verdict(refusal, self.address.generation, self.address.n_ranks + 1, _DRIVER)

    def _welcome(self, arrival: Arrival) -> None:
        arrival.connection.setblocking(True)
        rank = arrival.hello.rank - 1
        self._connections.append((rank, arrival.connection))
        reader = threading.Thread(target=self._read, args=(rank, arrival.connection), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, rank: int, connection: socket.socket) -> None:
        # The connection of a rank that was killed ends in the middle of a message: that one was not said.
        with contextlib.suppress(OSError, ValueError):
            while True:
                kind, payload = _receive(connection)
                self._messages.put(Message(kind, rank, payload))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class RankLine:
    """A rank's end."""

    def __init__(self, driver: DriverAddress, rank: int) -> None:
        # The driver is number 0 of this line, so the ranks count from 1.
        hello = Hello(driver.session, driver.generation, rank + 1, _DRIVER, driver.n_ranks + 1, Purpose.REPORTS)
        security = Security(driver.session, driver.secret)
        self._connection = connect(Address.parse(driver.address), hello, security, _SECONDS_TO_CONNECT)
        self._connection.setblocking(True)

    def tell(self, kind: Kind, payload: bytes) -> None:
        _send(self._connection, kind, payload)

    def stop_reason(self) -> str | None:
        """What the driver asked for in the meantime; does not wait."""
        readable, _, _ = select.select([self._connection], [], [], 0)
        if not readable:
            return None
        _, payload = _receive(self._connection)
        return payload.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()


def _send(connection: socket.socket, kind: Kind, payload: bytes) -> None:
    connection.sendall(_HEAD.pack(kind, len(payload)) + payload)


def _receive(connection: socket.socket) -> tuple[Kind, bytes]:
    kind, length = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if length > _LARGEST:
        raise ValueError(f"a message of {length} bytes was announced")
    return Kind(kind), _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = connection.recv(min(length - len(received), 1 << 20))
        if not part:
            raise ConnectionResetError("the other side of the line has ended")
        received += part
    return bytes(received)
