"""A transport over libraries that hand over whole messages and cannot be waited for: it asks again and again.

What arrives is kept for each peer as a stream of bytes, from which programs take headers and payloads as they do from
a socket. So the communicator, its checks, its deadlines and its order of summation are the same as everywhere.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod

import numpy as np

from dmlgbm.collectives.frames import session_number
from dmlgbm.collectives.kernels.layout import (
    ACTION,
    DONE,
    EXPIRED,
    HEADER_BYTES,
    PEER,
    SEND,
    STOPPED_PEER,
    STOPPED_ROW,
    UNEXPECTED,
    WOKEN,
)
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.transports.contract import Transport, Work, unfinished_rows

_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-5, 1e-3


class MessageTransport(Transport):
    """Subclasses say how a message goes out and how one comes in, neither of them waiting."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._streams: dict[int, bytearray] = {peer: bytearray() for peer in range(world_size) if peer != rank}
        self._woken = threading.Event()

    @abstractmethod
    def post(self, peer: int, message: bytes) -> None:
        """Send a message; the bytes are this transport's own."""

    @abstractmethod
    def collect(self, peer: int) -> bytes:
        """A message, or a part of one, that has come from a peer; b"" when none has."""

    def exchange(self, first: int, last: int, work: Work, until: int) -> int:
        rows, pause = unfinished_rows(work, first, last), _SHORTEST_PAUSE
        while rows:
            before = int(work.moved_bytes[first:last].sum())
            for row in rows:
                if not self._move(work, row):
                    work.control[STOPPED_ROW], work.control[STOPPED_PEER] = row, work.rows[row, PEER]
                    return UNEXPECTED
            rows = unfinished_rows(work, first, last)
            if not rows or int(work.moved_bytes[first:last].sum()) != before:
                pause = _SHORTEST_PAUSE
                continue
            if self._woken.is_set():
                return WOKEN
            if time.monotonic_ns() >= until:
                return EXPIRED
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return DONE

    def _move(self, work: Work, row: int) -> bool:
        """Send or receive what is possible now; whether the header is the expected one."""
        peer = int(work.rows[row, PEER])
        if work.rows[row, ACTION] == SEND:
            self.post(peer, work.headers[row].tobytes() + bytes(work.payload(row)))
            work.moved_bytes[row] = work.sizes[row]
            return True
        stream, done = self._stream(peer), int(work.moved_bytes[row])
        if done < HEADER_BYTES:
            if len(stream) < HEADER_BYTES:
                return True
            work.received[row] = np.frombuffer(bytes(stream[:HEADER_BYTES]), np.int64)
            del stream[:HEADER_BYTES]
            done = HEADER_BYTES
            work.moved_bytes[row] = done
            if (work.received[row] != work.headers[row]).any():
                return False
        size = min(len(stream), int(work.sizes[row]) - done)
        work.payload(row)[done - HEADER_BYTES : done - HEADER_BYTES + size] = stream[:size]
        del stream[:size]
        work.moved_bytes[row] = done + size
        return True

    def _stream(self, peer: int) -> bytearray:
        stream = self._streams[peer]
        while data := self.collect(peer):
            stream += data
        return stream

    def send_now(self, peer: int, data: bytes) -> bool:
        self.post(peer, data)
        return True

    def receive_now(self, peer: int, size: int) -> bytes | None:
        stream = self._stream(peer)
        data = bytes(stream[:size])
        del stream[:size]
        return data

    def look_ahead(self, peer: int, size: int) -> bytes:
        return bytes(self._stream(peer)[:size])

    def stop_watching(self, peer: int) -> None:
        """Nothing to do: these libraries do not say when a peer hangs up."""

    def wake(self) -> None:
        self._woken.set()


def session_over(transport: MessageTransport, name: str) -> Session:
    """A session whose peers the library has brought together and vouches for."""
    return Session(transport, name, session_number(name), 0)
