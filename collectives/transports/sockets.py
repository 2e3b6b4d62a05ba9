"""Sockets, in two ways that do the same: a loop without the GIL for plain ones, and a pure Python loop.

The Python loop is the reference, and the only one for TLS and for systems whose C library the kernels do not know.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgbm.collectives.kernels import system_calls
from dmlgbm.collectives.kernels.compiler import for_types_of
from dmlgbm.collectives.kernels.layout import (
    ACTION,
    DONE,
    ERROR_NUMBER,
    EXPIRED,
    HEADER_BYTES,
    HUNG_UP,
    LOST,
    PEER,
    SEND,
    STOPPED_PEER,
    STOPPED_ROW,
    UNEXPECTED,
    WOKEN,
)
from dmlgbm.collectives.kernels.program_loop import run_over_sockets
from dmlgbm.collectives.kernels.socket_loop import exchange_over_sockets
from dmlgbm.collectives.spinning import close_scratch, scratch_of_rank
from dmlgbm.collectives.transports.contract import Transport, Work, unfinished_rows

_LONGEST_DRAIN = 1 << 20


class SocketTransport(Transport):
    """The pure Python loop over non-blocking sockets, plain or TLS."""

    def __init__(self, rank: int, connections: dict[int, socket.socket]) -> None:
        self.rank = rank
        self.world_size = len(connections) + 1
        self._connections = connections
        self._watched = np.ones(self.world_size, np.int64)
        self._watched[rank] = 0
        # What was read from TLS connections ahead of time; others can be looked at without reading.
        self._ahead: dict[int, bytes] = {}
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)

    def exchange(self, first: int, last: int, work: Work, until: int) -> int:
        rows = unfinished_rows(work, first, last)
        while rows:
            moved_any = False
            for row in rows:
                before = work.moved_bytes[row]
                status = self._move(work, row)
                if status != DONE:
                    return status
                moved_any |= bool(work.moved_bytes[row] != before)
            rows = [row for row in rows if work.moved_bytes[row] < work.sizes[row]]
            if not moved_any and rows:
                status = self._wait(work, rows, until)
                if status != DONE:
                    return status
        return DONE

    def _move(self, work: Work, row: int) -> int:
        """Send or receive what is possible now."""
        peer, before = int(work.rows[row, PEER]), int(work.moved_bytes[row])
        sends = work.rows[row, ACTION] == SEND
        header = work.headers if sends else work.received
        if before < HEADER_BYTES:
            view = memoryview(header[row]).cast("B")[before:]
        else:
            view = work.payload(row)[before - HEADER_BYTES :]
        try:
            connection = self._connections[peer]
            moved = connection.send(view) if sends else self._receive_into(peer, connection, view)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return DONE
        except OSError as error:
            return _stopped(work, LOST, row, peer, error.errno or 0)
        if moved == 0:
            return _stopped(work, LOST, row, peer, 0)
        work.moved_bytes[row] = before + moved
        complete = not sends and before < HEADER_BYTES <= before + moved
        if complete and (work.received[row] != work.headers[row]).any():
            return _stopped(work, UNEXPECTED, row, peer, 0)
        return DONE

    def _receive_into(self, peer: int, connection: socket.socket, view: memoryview) -> int:
        ahead = self._ahead.get(peer)
        if not ahead:
            return connection.recv_into(view)
        moved = min(len(ahead), len(view))
        view[:moved] = ahead[:moved]
        self._ahead[peer] = ahead[moved:]
        return moved

    def _wait(self, work: Work, rows: list[int], until: int) -> int:
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        events: dict[int, int] = {}
        for row in rows:
            descriptor = self._connections[int(work.rows[row, PEER])].fileno()
            event = select.POLLOUT if work.rows[row, ACTION] == SEND else select.POLLIN
            events[descriptor] = events.get(descriptor, 0) | event
        awaited = {int(work.rows[row, PEER]) for row in rows if work.rows[row, ACTION] != SEND}
        watched = {
            self._connections[peer].fileno(): peer
            for peer in np.flatnonzero(self._watched).tolist()
            if peer not in awaited
        }
        for descriptor in watched:
            events[descriptor] = events.get(descriptor, 0) | system_calls.POLL_HANG_UP
        for descriptor, event in events.items():
            poll.register(descriptor, event)
        left = until - time.monotonic_ns()
        if left <= 0:
            return EXPIRED
        ready = poll.poll(left / 1e6 + 1)
        if any(descriptor == self._wake_in.fileno() for descriptor, _ in ready):
            return WOKEN
        for descriptor, event in ready:
            if descriptor in watched and event & system_calls.POLL_HANG_UP:
                return _stopped(work, HUNG_UP, 0, watched[descriptor], 0)
        return DONE if ready or time.monotonic_ns() < until else EXPIRED

    def send_now(self, peer: int, data: bytes) -> bool:
        with contextlib.suppress(OSError):
            return self._connections[peer].send(data) == len(data)
        return False

    def look_ahead(self, peer: int, size: int) -> bytes:
        connection = self._connections[peer]
        with contextlib.suppress(OSError):
            if not isinstance(connection, ssl.SSLSocket):
                return connection.recv(size, socket.MSG_PEEK)
            while len(self._ahead.get(peer, b"")) < size and (more := connection.recv(size)):
                self._ahead[peer] = self._ahead.get(peer, b"") + more
        return self._ahead.get(peer, b"")

    def stop_watching(self, peer: int) -> None:
        self._watched[peer] = 0

    def receive_now(self, peer: int, size: int) -> bytes | None:
        if self._ahead.get(peer):
            data, self._ahead[peer] = self._ahead[peer][:size], self._ahead[peer][size:]
            return data
        try:
            return self._connections[peer].recv(size) or None
        except (BlockingIOError, ssl.SSLWantReadError):
            return b""
        except OSError:
            return None

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_out.send(b"!")

    def release(self) -> None:
        """Give back everything but the connections, which the caller goes on using."""
        self._wake_in.close()
        self._wake_out.close()

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            # Closing with unread bytes would reset the connection and could destroy what the peer has yet to read.
            with contextlib.suppress(OSError):
                connection.recv(_LONGEST_DRAIN)
            connection.close()
        self.release()


def _stopped(work: Work, status: int, row: int, peer: int, error: int) -> int:
    work.control[STOPPED_ROW], work.control[STOPPED_PEER], work.control[ERROR_NUMBER] = row, peer, error
    return status


class NativeSocketTransport(SocketTransport):
    """The loop without the GIL: a whole program in one call where the kernels know its element type."""

    def __init__(self, rank: int, connections: dict[int, socket.socket], spin_microseconds: int = 0) -> None:
        super().__init__(rank, connections)
        self._run: dict[np.dtype[Any], Callable[..., int]] = {}
        self._descriptors = np.full(self.world_size, -1, np.int64)
        for peer, connection in connections.items():
            self._descriptors[peer] = connection.fileno()
        n_polls = 3 * self.world_size + 1
        self._scratch = scratch_of_rank(spin_microseconds)
        self._wires = (
            self._descriptors,
            self._wake_in.fileno(),
            self._watched,
            np.zeros(self.world_size, np.int64),
            np.zeros(n_polls, np.int64),
            np.zeros(n_polls, np.int64),
            1000 * spin_microseconds,
            self._scratch,
        )

    @property
    def wires(self) -> tuple[Any, ...]:
        return self._wires

    def close(self) -> None:
        # A kernel that is run once more finds no connection, instead of whatever got the same number since.
        self._descriptors.fill(-1)
        super().close()

    def release(self) -> None:
        super().release()
        close_scratch(self._scratch)

    def exchange(self, first: int, last: int, work: Work, until: int) -> int:
        return exchange_over_sockets(first, last, work.kernel_view, work.addresses, self._wires, until, work.control)

    def run(self, work: Work, until: int) -> int:
        if not work.fused:
            return super().run(work, until)
        arguments = (work.kernel_view, work.addresses, self._wires, work.operation or 0, work.like, until, work.control)
        # All arrays but `like` are of the same types in every call.
        run = self._run.get(work.like.dtype)
        if run is None:
            run = self._run[work.like.dtype] = for_types_of(run_over_sockets, *arguments)
        return run(*arguments)


def is_plain(connections: dict[int, socket.socket]) -> bool:
    """Whether the bytes of every connection are the ones on the wire."""
    return not any(isinstance(connection, ssl.SSLSocket) for connection in connections.values())


def socket_transport(
    rank: int, connections: dict[int, socket.socket], native: bool | None = None, spin_microseconds: int = 0
) -> SocketTransport:
    """The transport for these connections: without the GIL where that is possible, unless `native` says otherwise."""
    possible = system_calls.AVAILABLE and is_plain(connections)
    if native and not possible:
        raise ValueError("native=True needs plain sockets on 64-bit Linux or macOS; TLS runs in Python (native=False)")
    if possible if native is None else native:
        return NativeSocketTransport(rank, connections, spin_microseconds)
    return SocketTransport(rank, connections)
