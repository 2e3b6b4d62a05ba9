"""One authenticated connection that carries messages as frames, without ever blocking.

A frame is the header every connection of this package uses, then the fields of one message. The header is checked,
its size included, before room for the message is made; bytes that make no sense end the connection.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.frames import Header, Kind
from dmlgbm.collectives.frames import decode as decode_header
from dmlgbm.collectives.kernels.layout import HEADER_BYTES
from dmlgbm.collectives.parameter_server.codec import Buffer, decode, encode
from dmlgbm.collectives.parameter_server.messages import MESSAGES, Message

_MOST_BUFFERS = 64
# Received at a time, so that one busy peer does not keep the others waiting.
_MOST_MESSAGES = 64
# Read together with what comes before: all of a short message, the header of a long one.
_BEGINNING_BYTES = 512
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_NUMBERS = {kind: number for number, kind in enumerate(MESSAGES)}


# Workers send messages of the same few sizes again and again; making and checking their headers anew took a tenth of a
# round trip.
@lru_cache(maxsize=1024)
def _header(session: int, generation: int, number: int, size: int) -> bytes:
    return Header(Kind.REQUEST, session, generation, 0, operation=number, payload=size).encode()


@lru_cache(maxsize=1024)
def _check_header(data: bytes, session: int, generation: int, largest: int) -> tuple[type[Message], int]:
    """The class of the message that follows and its size, or ProtocolError."""
    header = decode_header(data, largest)
    if header.kind != Kind.REQUEST or header.operation >= len(MESSAGES):
        raise ProtocolError(f"no message has kind {header.kind} and operation {header.operation}")
    if (header.session, header.generation) != (session, generation):
        raise ProtocolError("a message belongs to another session or generation")
    return MESSAGES[header.operation], header.payload


class Channel:
    """A connection under the care of one reactor."""

    def __init__(self, connection: socket.socket, session: int, generation: int, largest: int) -> None:
        self.connection = connection
        self.bytes_received = 0
        self.bytes_sent = 0
        self._session = session
        self._generation = generation
        self._largest = largest
        self._outgoing: deque[memoryview] = deque()
        # The beginning of the next message, and the rest of it once its header has told how much that is.
        self._beginning = memoryview(bytearray(_BEGINNING_BYTES))
        self._begun = 0
        self._kind: type[Message]
        self._payload: memoryview | None = None
        self._filled = 0

    @property
    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def post(self, message: Message) -> bool:
        """Queue a message; `send` sends what the system takes. False if no peer would accept one so large."""
        buffers = encode(message)
        size = sum(len(buffer) for buffer in buffers)
        if size > self._largest:
            return False
        header = _header(self._session, self._generation, _NUMBERS[type(message)], size)
        self._queue([header, *buffers])
        return True

    def _queue(self, buffers: list[Buffer]) -> None:
        # Short neighbours travel as one buffer.
        if len(buffers) == 2:
            buffers = [b"".join(buffers)]
        self._outgoing.extend(view for buffer in buffers if len(view := memoryview(buffer)))

    def send(self) -> None:
        """Send as much as the system takes; OSError when the connection is gone."""
        with contextlib.suppress(*_NOT_NOW):
            while self._outgoing:
                sent = self._send_some()
                self.bytes_sent += sent
                self._forget(sent)

    def _send_some(self) -> int:
        if isinstance(self.connection, ssl.SSLSocket):
            return self.connection.send(self._outgoing[0])
        return self.connection.sendmsg(
            [self._outgoing[position] for position in range(min(len(self._outgoing), _MOST_BUFFERS))]
        )

    def _forget(self, sent: int) -> None:
        while sent:
            first = self._outgoing.popleft()
            if len(first) > sent:
                self._outgoing.appendleft(first[sent:])
                return
            sent -= len(first)

    def receive(self) -> Iterator[Message]:
        """The messages that have arrived; OSError or ProtocolError when the connection is of no more use."""
        messages = 0
        more = True
        while more and (messages < _MOST_MESSAGES or self._has_decrypted):
            try:
                more = self._read()
            except _NOT_NOW:
                return
            while (message := self._next_message()) is not None:
                messages += 1
                yield message

    def _read(self) -> bool:
        """Take what has arrived, in one system call if there is room for all of it; whether there may be more."""
        beginning = self._beginning[self._begun :]
        if isinstance(self.connection, ssl.SSLSocket):
            count = self.connection.recv_into(beginning if self._payload is None else self._payload[self._filled :])
            full = True  # one record at a time is decrypted
        else:
            targets = [beginning] if self._payload is None else [self._payload[self._filled :], beginning]
            count = self.connection.recvmsg_into(targets)[0]
            full = count == sum(map(len, targets))
        if not count:
            raise ConnectionResetError("the peer closed the connection")
        self.bytes_received += count
        into_payload = 0 if self._payload is None else min(count, len(self._payload) - self._filled)
        self._filled += into_payload
        self._begun += count - into_payload
        return full

    @property
    def _has_decrypted(self) -> bool:
        """Whether bytes wait that no selector would tell of."""
        return isinstance(self.connection, ssl.SSLSocket) and self.connection.pending() > 0

    def _next_message(self) -> Message | None:
        """The next message, if all of it is there."""
        if self._payload is None:
            if self._begun < HEADER_BYTES:
                return None
            header = bytes(self._beginning[:HEADER_BYTES])
            self._kind, size = _check_header(header, self._session, self._generation, self._largest)
            self._payload = np.empty(size, np.uint8).data
            self._filled = min(size, self._begun - HEADER_BYTES)
            used = HEADER_BYTES + self._filled
            self._payload[: self._filled] = self._beginning[HEADER_BYTES:used]
            self._begun -= used
            self._beginning[: self._begun] = bytes(self._beginning[used : used + self._begun])
        if self._filled < len(self._payload):
            return None
        payload, self._payload = self._payload, None
        return decode(self._kind, payload)

    def close(self) -> None:
        self._outgoing.clear()
        self.connection.close()
