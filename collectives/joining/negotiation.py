"""Brings connections through TLS and the handshake, many at once, none able to hold up another.

Everything before a peer is authenticated is bounded: the bytes (messages of fixed size), the time of a connection,
and the number of connections under way, of which the oldest gives way to the newest. A dialler that fails the
handshake is dropped and the listener goes on. One thread polls them all; nothing here blocks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dmlgbm.collectives.errors import AuthenticationError, CollectiveError, PeerLostError
from dmlgbm.collectives.joining.addresses import Address, Listener, answer_at_once, limit_buffers, start_connecting
from dmlgbm.collectives.joining.handshake import Hello, Steps, Verdict, answer, dial

MAXIMUM_PENDING = 256
HANDSHAKE_SECONDS = 10.0


@dataclass(frozen=True)
class TlsContexts:
    """The contexts a rank listens and dials with, made by the caller; certificates are checked as they say."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    server_hostname: str | None = None


@dataclass(frozen=True)
class Security:
    """What a peer must prove: knowledge of the secret, and with TLS contexts also its certificate."""

    session: str
    secret: bytes
    tls: TlsContexts | None = None


@dataclass(frozen=True)
class Arrival:
    """A connection whose two sides have made sure of each other. `dialled` says which side this is."""

    connection: socket.socket
    hello: Hello
    dialled: bool


@dataclass(frozen=True)
class Failure:
    """A connection that was dropped, and why."""

    error: Exception
    hello: Hello | None


class _Negotiation:
    """One connection on its way: connect, TLS, then the steps of the handshake."""

    def __init__(self, connection: socket.socket, steps: Steps, hello: Hello | None, until: float) -> None:
        self.connection = connection
        self.hello = hello
        self.until = until
        self.result: Hello | None = None
        self._steps = steps
        self._connecting = hello is not None
        self._in_tls = isinstance(connection, ssl.SSLSocket)
        self._outgoing, self._wanted = next(steps)
        self._incoming = b""
        self.events = selectors.EVENT_WRITE if self._connecting else selectors.EVENT_READ

    def advance(self) -> None:
        """Go as far as possible without blocking; `events` says what to wait for, `result` that it is over."""
        try:
            if self._connecting:
                self._finish_connecting()
            if self._in_tls and isinstance(self.connection, ssl.SSLSocket):
                self.connection.do_handshake()
                self._in_tls = False
            while self.result is None:
                self._step()
        except (ssl.SSLWantReadError, BlockingIOError):
            self.events = selectors.EVENT_WRITE if self._outgoing and not self._in_tls else selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            self.events = selectors.EVENT_WRITE
        except ssl.SSLError as error:
            raise AuthenticationError(f"TLS failed: {error}") from error

    def _finish_connecting(self) -> None:
        error = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        self._connecting = False

    def _step(self) -> None:
        while self._outgoing:
            self._outgoing = self._outgoing[self.connection.send(self._outgoing) :]
        while len(self._incoming) < self._wanted:
            data = self.connection.recv(self._wanted - len(self._incoming))
            if not data:
                raise ConnectionResetError("the peer closed the connection during the handshake")
            self._incoming += data
        try:
            self._outgoing, self._wanted = self._steps.send(self._incoming)
            self._incoming = b""
        except StopIteration as end:
            self.result = end.value


class Negotiator:
    """Listens, dials and polls. Arrivals and failures come out of `poll`; closing drops everything still under way."""

    def __init__(
        self, security: Security, buffer_bytes: int | None = None, handshake_seconds: float = HANDSHAKE_SECONDS
    ) -> None:
        self._security = security
        self._buffer_bytes = buffer_bytes
        self._handshake_seconds = handshake_seconds
        self._selector = selectors.DefaultSelector()
        self._pending: dict[_Negotiation, None] = {}
        self._listener: Listener | None = None
        self._judge: Callable[[Hello], Verdict] | None = None

    def listen(self, listener: Listener, judge: Callable[[Hello], Verdict]) -> None:
        """Accept connections; `judge` decides about diallers that know the secret. The caller closes the listener."""
        listener.socket.setblocking(False)
        limit_buffers(listener.socket, self._buffer_bytes)
        self._listener, self._judge = listener, judge
        self._selector.register(listener.socket, selectors.EVENT_READ, None)

    def dial(self, address: Address, hello: Hello) -> Failure | None:
        """Start a connection; a failure that shows at once is returned, every other one comes out of `poll`."""
        try:
            connection = start_connecting(address, self._buffer_bytes)
        except OSError as error:
            return Failure(error, hello)
        tls = self._security.tls
        name = (tls.server_hostname or address.host) if tls is not None else None
        self._add(connection, dial(hello, self._security.secret), hello, name)
        return None

    def poll(self, timeout: float) -> list[Arrival | Failure]:
        """Wait for at most `timeout` seconds and move on whatever can be moved on."""
        results: list[Arrival | Failure] = []
        soonest = min((negotiation.until for negotiation in self._pending), default=float("inf"))
        patience = max(0.0, min(timeout, soonest - time.monotonic()))
        for key, _ in self._selector.select(patience):
            if key.data is None:
                self._accept()
            else:
                results += self._advance(key.data)
        now = time.monotonic()
        late = [negotiation for negotiation in self._pending if negotiation.until <= now]
        return results + [self._drop(each, TimeoutError("the handshake took too long")) for each in late]

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._judge is not None
        with contextlib.suppress(OSError):  # the dialler may be gone already, or descriptors run out for a moment
            connection, _ = self._listener.socket.accept()
            connection.setblocking(False)
            if len(self._pending) >= MAXIMUM_PENDING:
                self._drop(next(iter(self._pending)), TimeoutError("too many connections under way"))
            self._add(connection, answer(self._security.session, self._security.secret, self._judge), None, None)

    def _add(self, connection: socket.socket, steps: Steps, hello: Hello | None, name: str | None) -> None:
        answer_at_once(connection)
        tls = self._security.tls
        if tls is not None:
            context = tls.server if hello is None else tls.client
            connection = context.wrap_socket(
                connection, server_side=hello is None, server_hostname=name, do_handshake_on_connect=False
            )
        negotiation = _Negotiation(connection, steps, hello, time.monotonic() + self._handshake_seconds)
        self._pending[negotiation] = None
        self._selector.register(connection, negotiation.events, negotiation)

    def _advance(self, negotiation: _Negotiation) -> list[Arrival | Failure]:
        if negotiation not in self._pending:
            return []
        try:
            negotiation.advance()
        except (OSError, CollectiveError) as error:
            return [self._drop(negotiation, error)]
        if negotiation.result is None:
            self._selector.modify(negotiation.connection, negotiation.events, negotiation)
            return []
        self._selector.unregister(negotiation.connection)
        del self._pending[negotiation]
        return [Arrival(negotiation.connection, negotiation.result, negotiation.hello is not None)]

    def _drop(self, negotiation: _Negotiation, error: Exception) -> Failure:
        self._selector.unregister(negotiation.connection)
        del self._pending[negotiation]
        negotiation.connection.close()
        return Failure(error, negotiation.hello)

    def close(self) -> None:
        for negotiation in list(self._pending):
            self._drop(negotiation, ConnectionAbortedError("closed"))
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(
    address: Address, hello: Hello, security: Security, timeout: float, buffer_bytes: int | None = None
) -> socket.socket:
    """An authenticated connection to one listener, for clients that are no part of a mesh."""
    until = time.monotonic() + timeout
    with Negotiator(security, buffer_bytes, handshake_seconds=timeout) as negotiator:
        results: list[Arrival | Failure] = [failure] if (failure := negotiator.dial(address, hello)) else []
        while not results:
            results = negotiator.poll(max(0.0, until - time.monotonic()))
    if isinstance(results[0], Arrival):
        return results[0].connection
    error = results[0].error
    if isinstance(error, CollectiveError):
        raise error
    raise PeerLostError(f"cannot reach rank {hello.peer} at {address}: {error}", hello.peer) from error
