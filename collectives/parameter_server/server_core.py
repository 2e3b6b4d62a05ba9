"""A server without sockets or clocks: messages and the time go in, messages come out.

The server holds the replicas that the current view gives it, lets their heads answer workers, tells the coordinator
that it lives, and keeps the lease that it gets in return. A head whose lease has run out answers no reads, because it
may have been replaced without knowing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from dmlgbm.collectives.parameter_server.messages import (
    Answered,
    Copied,
    Fill,
    Lease,
    Message,
    NotHere,
    Outcome,
    Read,
    Register,
    Registered,
    Replicate,
    ServerAlive,
    Status,
    Update,
    Updated,
)
from dmlgbm.collectives.parameter_server.replica import Replica, ServerName
from dmlgbm.collectives.parameter_server.shard_requests import ShardRequests
from dmlgbm.collectives.parameter_server.statistics import Statistics
from dmlgbm.collectives.parameter_server.view import NOBODY, View


class CoordinatorName:
    """The coordinator as the destination of a message."""


COORDINATOR: Final = CoordinatorName()
Destination = Hashable

# Of a lease: how often a server reports, and how long it waits before it sends updates again.
_REPORT_SHARE = 0.25
_REPEAT_SHARE = 0.25
_MOST_AHEAD = 1024
# Before there is a view, nobody has said how long a lease is.
_FIRST_REPORT_SECONDS = 0.2


class ServerCore:
    """One server. The host calls `receive` and `tick` and sends what `take` returns."""

    def __init__(self, token: int, address: str) -> None:
        self.number = NOBODY
        self.view: View | None = None
        self.statistics = Statistics()
        self.leaving = False
        self._token = token
        self._address = address
        self._outbox: list[tuple[Destination, Message]] = []
        self._replicas: dict[int, Replica] = {}
        self._requests: dict[int, ShardRequests] = {}
        # Requests of workers that know a newer view than this server.
        self._ahead: list[tuple[Hashable, Update | Read]] = []
        self._lease_until = float("-inf")
        self._reported = float("-inf")

    def take(self) -> list[tuple[Destination, Message]]:
        """What is to be sent, in order; each message is handed out once."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def receive(self, sender: Hashable, message: Message, now: float) -> None:
        if isinstance(message, Update | Read):
            self._request(sender, message, now)
        elif isinstance(message, Replicate | Copied | Fill):
            self._from_server(message, now)
        elif isinstance(message, View):
            self._adopt(message, now)
        elif isinstance(message, Lease):
            if self.view is not None and not self.leaving:
                self._lease_until = max(self._lease_until, message.sent + self.view.lease_seconds)
                self._advance(now)
        elif isinstance(message, Registered) and self.number == NOBODY:
            self.number = message.server
            self._report(now)

    def tick(self, now: float) -> None:
        """Report to the coordinator when it is time, send again what got no answer, end what waited too long."""
        seconds = self.view.lease_seconds if self.view is not None else 0.0
        if now - self._reported >= (_REPORT_SHARE * seconds or _FIRST_REPORT_SECONDS):
            self._report(now)
        for replica in self._replicas.values():
            replica.tick(now, _REPEAT_SHARE * seconds)
        self._advance(now)

    def leave(self, now: float) -> None:
        """Ask to be replaced; `has_left` says when nothing depends on this server any more."""
        self.leaving = True
        self._lease_until = float("-inf")
        self._report(now)

    @property
    def has_left(self) -> bool:
        return self.leaving and not self._replicas

    def _report(self, now: float) -> None:
        self._reported = now
        if self.number == NOBODY:
            self._outbox.append((COORDINATOR, Register(self._token, self._address)))
            return
        version = 0 if self.view is None else self.view.version
        filled = tuple((shard, each.filled) for shard, each in self._replicas.items() if each.filled != NOBODY)
        self._outbox.append((COORDINATOR, ServerAlive(self.number, version, now, self.leaving, filled)))

    def _adopt(self, view: View, now: float) -> None:
        if self.number == NOBODY or (self.view is not None and view.version <= self.view.version):
            return
        self.view = view
        for shard, placement in enumerate(view.placements):
            if self.number not in placement.everybody:
                self._replicas.pop(shard, None)
                self._resign(shard)
                continue
            replica = self._replicas.get(shard)
            if replica is None:
                replica = self._replicas[shard] = Replica(shard, self.number, self._send_to_server)
            replica.adopt(view.version, placement, view.consistency, now)
            if replica.is_head:
                self._lead(replica)
            else:
                self._resign(shard)
        ahead, self._ahead = self._ahead, []
        for sender, message in ahead:
            self._request(sender, message, now)
        self._advance(now)
        self._report(now)

    def _send_to_server(self, name: ServerName, message: Message) -> None:
        self._outbox.append((name, message))

    def _reply(self, sender: Hashable, message: Message) -> None:
        self._outbox.append((sender, message))

    def _lead(self, replica: Replica) -> None:
        assert self.view is not None
        if replica.shard not in self._requests:
            self._requests[replica.shard] = ShardRequests(replica, self.statistics, self._reply)
        self._requests[replica.shard].remove_missing(self.view.workers)

    def _resign(self, shard: int) -> None:
        assert self.view is not None
        requests = self._requests.pop(shard, None)
        if requests is not None:
            requests.resign(self.view.version)

    def _request(self, sender: Hashable, message: Update | Read, now: float) -> None:
        version = 0 if self.view is None else self.view.version
        if message.version > version:
            self._ahead = [*self._ahead[-_MOST_AHEAD:], (sender, message)]  # what is dropped will be sent again
            return
        requests = self._requests.get(message.shard)
        if requests is None:
            self._reply(sender, NotHere(version, message.shard))
        elif self.view is None or message.worker not in self.view.workers:
            self._reply(sender, _expired(message))
        elif isinstance(message, Update):
            requests.update(sender, message)
            requests.advance(now, now < self._lease_until)
        else:
            requests.read(sender, message, now)
            requests.advance(now, now < self._lease_until)

    def _from_server(self, message: Replicate | Copied | Fill, now: float) -> None:
        replica = self._replicas.get(message.shard)
        if replica is None:
            return
        if isinstance(message, Replicate):
            replica.replicate(message)
        elif isinstance(message, Copied):
            was_filled = replica.filled
            replica.copied(message, now)
            if replica.filled != was_filled:
                self._report(now)
        else:
            replica.fill(message)
        if message.shard in self._requests:
            self._requests[message.shard].advance(now, now < self._lease_until)

    def _advance(self, now: float) -> None:
        for requests in self._requests.values():
            requests.advance(now, now < self._lease_until)

    def fingerprint(self, shard: int) -> object:
        """The copy of a shard held here, or None; for comparing replicas."""
        replica = self._replicas.get(shard)
        return None if replica is None or replica.state is None else replica.state.copy()


def _expired(message: Update | Read) -> Updated | Answered:
    outcome = Outcome(Status.EXPIRED, 0, "the worker was silent for too long and does not take part any more")
    if isinstance(message, Update):
        return Updated(message.shard, message.sequence, outcome)
    return Answered(message.number, outcome, None)
