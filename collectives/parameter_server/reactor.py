"""The thread that gives a core its sockets and its clock.

One thread waits for all connections of a node and feeds the core; other threads may use the core under `lock` and
then call `flush`, which sends from the calling thread, and one that waits for an answer does the first one's work
meanwhile (`serve_until`), so a request costs no change of thread on its way out or back. A second thread lets callers
in through the handshake, and every dial has a short-lived thread of its own: neither can hold up the first.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from dmlgbm.collectives.errors import CollectiveError
from dmlgbm.collectives.frames import session_number
from dmlgbm.collectives.joining.addresses import Address, Listener
from dmlgbm.collectives.joining.handshake import Hello, Purpose, Refusal, Verdict
from dmlgbm.collectives.joining.negotiation import Arrival, Negotiator, connect
from dmlgbm.collectives.parameter_server.channels import Channel
from dmlgbm.collectives.parameter_server.membership import Membership
from dmlgbm.collectives.parameter_server.messages import Message
from dmlgbm.collectives.parameter_server.replica import ServerName
from dmlgbm.collectives.parameter_server.server_core import COORDINATOR
from dmlgbm.collectives.parameter_server.statistics import Statistics
from dmlgbm.collectives.parameter_server.view import View

_LOGGER = logging.getLogger(__name__)

_TICK_SECONDS = 0.025
_ACCEPT_SECONDS = 0.1
_DIAL_SECONDS = 3.0
# After a failed dial: until then, messages to that address are dropped, and their senders send them again.
_REDIAL_SECONDS = 0.1
_MOST_QUEUED = 4096
# How long the reactor's thread leaves the connections to a caller that serves them, or did so a moment ago.
_PAUSE_SECONDS = 0.005


class Core(Protocol):
    """What a reactor drives."""

    @property
    def view(self) -> View | None: ...
    def receive(self, sender: Hashable, message: Message, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def take(self) -> list[tuple[Hashable, Message]]: ...


@dataclass
class _Route:
    """The way to an address: a channel, or the messages that wait for one."""

    channel: Channel | None = None
    dialling: bool = False
    not_before: float = 0.0
    queued: list[Message] = field(default_factory=list)


class Reactor:
    """Runs one core. `after` is called, under the lock, whenever the core has been given something."""

    def __init__(
        self,
        name: str,
        core: Core,
        membership: Membership,
        listener: Listener | None = None,
        after: Callable[[], None] | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self.dial_error: BaseException | None = None
        self._name = name
        self._core = core
        self._membership = membership
        self._listener = listener
        self._after = after
        self._statistics = Statistics() if statistics is None else statistics
        self._session = session_number(membership.security.session)
        self._routes: dict[str, _Route] = {}
        self._channels: set[Channel] = set()
        self._writing: set[Channel] = set()
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ, None)
        self._closing = threading.Event()
        self._serving = threading.Lock()  # held by whoever waits for the connections and serves them
        self._caller = threading.Lock()  # held by the one caller that does so, or is about to
        self._called_at = float("-inf")
        self._dials: set[threading.Thread] = set()
        self._threads = [threading.Thread(target=self._run, name=f"{name}-reactor", daemon=True)]
        if listener is not None:
            self._threads.append(threading.Thread(target=self._accept, name=f"{name}-doorman", daemon=True))

    @property
    def bytes_sent(self) -> int:
        """What this node has sent on all its connections."""
        return self._statistics.bytes_sent

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def flush(self) -> None:
        """Send what the core has to say; the caller holds the lock."""
        touched: dict[Channel, None] = {}
        for destination, message in self._core.take():
            channel = self._channel_to(destination, message)
            if channel is not None:
                self._post(channel, message)
                touched[channel] = None
        for channel in touched:
            self._send(channel)

    def _post(self, channel: Channel, message: Message) -> None:
        if not channel.post(message):
            self._statistics.oversized_messages += 1

    def _channel_to(self, destination: Hashable, message: Message) -> Channel | None:
        """The channel for a message, or None if it has to wait or is lost."""
        if isinstance(destination, Channel):
            return destination if destination in self._channels else None
        address = self._address_of(destination)
        if address is None:
            return None
        route = self._routes.setdefault(address, _Route())
        if route.channel is None:
            self._dial(address, route)
            if route.dialling and len(route.queued) < _MOST_QUEUED:
                route.queued.append(message)
        return route.channel

    def _address_of(self, destination: Hashable) -> str | None:
        if destination is COORDINATOR:
            return self._membership.coordinator
        assert isinstance(destination, ServerName)
        view = self._core.view
        return None if view is None else view.address_of(destination.number)

    def _send(self, channel: Channel) -> None:
        before = channel.bytes_sent
        try:
            channel.send()
        except OSError:
            self._drop(channel)
            return
        self._statistics.bytes_sent += channel.bytes_sent - before
        if channel.has_unsent != (channel in self._writing):
            (self._writing.add if channel.has_unsent else self._writing.discard)(channel)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_unsent else 0)
            self._selector.modify(channel.connection, events, channel)
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def _dial(self, address: str, route: _Route) -> None:
        if route.dialling or time.monotonic() < route.not_before or self._closing.is_set():
            return
        route.dialling = True
        thread = threading.Thread(
            target=self._finish_dialling, args=(address, route), name=f"{self._name}-dial", daemon=True
        )
        self._dials.add(thread)
        thread.start()

    def _finish_dialling(self, address: str, route: _Route) -> None:
        hello = Hello(self._membership.security.session, self._membership.generation, 0, 0, 0, Purpose.PARAMETER_SERVER)
        connection = None
        try:
            connection = connect(Address.parse(address), hello, self._membership.security, _DIAL_SECONDS)
        except (CollectiveError, OSError) as error:
            self.dial_error = error
        with self.lock:
            self._dials.discard(threading.current_thread())
            route.dialling = False
            queued, route.queued = route.queued, []
            if connection is None:
                route.not_before = time.monotonic() + _REDIAL_SECONDS
            elif self._closing.is_set():
                connection.close()
            else:
                route.channel = self._add(connection)
                for message in queued:
                    self._post(route.channel, message)
                self._send(route.channel)

    def _add(self, connection: socket.socket) -> Channel:
        membership = self._membership
        channel = Channel(connection, self._session, membership.generation, membership.maximum_message_bytes)
        self._channels.add(channel)
        self._selector.register(connection, selectors.EVENT_READ, channel)
        self._ring()
        return channel

    def _drop(self, channel: Channel) -> None:
        if channel not in self._channels:
            return
        self._channels.discard(channel)
        self._writing.discard(channel)
        self._selector.unregister(channel.connection)
        for route in self._routes.values():
            if route.channel is channel:
                route.channel = None
        channel.close()

    def _judge(self, hello: Hello) -> Verdict:
        refusal = Refusal.NONE
        if hello.purpose != Purpose.PARAMETER_SERVER:
            refusal = Refusal.PURPOSE
        elif hello.generation != self._membership.generation:
            refusal = Refusal.GENERATION
        return Verdict(refusal, self._membership.generation, 0, 0)

    def _accept(self) -> None:
        assert self._listener is not None
        with Negotiator(self._membership.security) as negotiator:
            negotiator.listen(self._listener, self._judge)
            while not self._closing.is_set():
                for result in negotiator.poll(_ACCEPT_SECONDS):
                    with self.lock:
                        if not isinstance(result, Arrival):
                            self._statistics.refused_connections += 1
                        elif self._closing.is_set():
                            result.connection.close()
                        else:
                            self._add(result.connection)

    def _run(self) -> None:
        next_tick = time.monotonic()
        try:
            while not self._closing.is_set():
                patience = max(0.0, next_tick - time.monotonic())
                if self._caller.locked() or time.monotonic() - self._called_at < _PAUSE_SECONDS:
                    time.sleep(_PAUSE_SECONDS)
                    patience = 0.0
                if self._serving.acquire(blocking=False):
                    try:
                        self._serve_once(patience)
                    finally:
                        self._serving.release()
                if time.monotonic() >= next_tick:
                    next_tick = time.monotonic() + _TICK_SECONDS
                    self.use(lambda core: core.tick(time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - whoever calls next is told
            self._fail(error)
        finally:
            self._closing.set()
            with self.lock:
                self._drop_all()
                if self._after is not None:
                    self._after()

    def _fail(self, error: BaseException) -> None:
        _LOGGER.error("the %s stops", self._name, exc_info=error)
        self.failure = error
        self._closing.set()

    def serve_until(self, is_over: Callable[[], bool], timeout: float | None) -> None:
        """Serve the connections from the calling thread until that has led to what it waits for, or for `timeout`.

        Returns at once if another caller serves them, and when the reactor ends.
        """
        if not self._caller.acquire(blocking=False):
            return
        try:
            if not self._serving.acquire(blocking=False):
                self._ring()
                self._serving.acquire()
            try:
                until = float("inf") if timeout is None else time.monotonic() + timeout
                while not is_over() and (now := time.monotonic()) < until and not self._closing.is_set():
                    self._serve_once(min(until - now, _TICK_SECONDS))
            finally:
                self._serving.release()
            self._called_at = time.monotonic()
        finally:
            self._caller.release()

    def _serve_once(self, timeout: float) -> None:
        ready = self._selector.select(timeout)
        try:
            with self.lock:
                self._serve(ready)
        except BaseException as error:
            # The core may be in the middle of a message: a signal can end a caller's work anywhere.
            self._fail(error)
            raise

    def _drop_all(self) -> None:
        for channel in list(self._channels):
            self._drop(channel)

    def _serve(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, events in ready:
            if key.data is None:
                with contextlib.suppress(OSError):
                    self._ear.recv(4096)
            elif key.data in self._channels:
                if events & selectors.EVENT_WRITE:
                    self._send(key.data)
                if events & selectors.EVENT_READ:
                    self._receive(key.data)

    def _receive(self, channel: Channel) -> None:
        before = channel.bytes_received
        try:
            for message in channel.receive():
                self._core.receive(channel, message, time.monotonic())
        except (OSError, CollectiveError):
            self._drop(channel)
        self._statistics.bytes_received += channel.bytes_received - before
        self._handled()

    def _handled(self) -> None:
        self.flush()
        if self._after is not None:
            self._after()

    def use(self, action: Callable[[Any], Any]) -> Any:
        """Let another thread use the core, and send what follows from it."""
        with self.lock:
            result = action(self._core)
            self._handled()
            return result

    def close(self) -> None:
        """End the threads and close every connection and the listener."""
        self._closing.set()
        self._ring()
        with self.lock:
            dials = list(self._dials)
        for thread in (*self._threads, *dials):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()
        with self._serving, self.lock:
            self._drop_all()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        self._bell.close()
        self._ear.close()
