"""Connects every rank with every other: a rank dials those below it and accepts those above.

Whoever else connects (a scanner, a rank with another secret, a rank of an old generation) is refused without
holding up the others. Diallers try again until the deadline, because a peer may not have started yet; only what
cannot get better (a wrong secret, a stale generation) ends the attempt at once.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field

from dmlgbm.collectives.errors import CollectiveError, CollectiveTimeout
from dmlgbm.collectives.joining.addresses import Address, Listener
from dmlgbm.collectives.joining.handshake import Hello, Purpose, Refusal, Verdict
from dmlgbm.collectives.joining.negotiation import Arrival, Failure, Negotiator, Security, TlsContexts
from dmlgbm.collectives.joining.rendezvous import Rendezvous

_LONGEST_PAUSE = 0.2


@dataclass
class _Formation:
    """The state of one rank's attempt: whom it has, whom it still has to dial, and when to try again."""

    rendezvous: Rendezvous
    rank: int
    connections: dict[int, socket.socket] = field(default_factory=dict)
    retries: dict[int, tuple[float, float]] = field(default_factory=dict)  # peer -> (when, pause after that)
    troubles: dict[int, str] = field(default_factory=dict)
    refused: int = 0

    def judge(self, hello: Hello) -> Verdict:
        ours = self.rendezvous
        refusal = Refusal.NONE
        if hello.purpose != Purpose.MESH:
            refusal = Refusal.PURPOSE
        elif hello.generation != ours.generation:
            refusal = Refusal.GENERATION
        elif hello.world_size != ours.world_size:
            refusal = Refusal.WORLD
        elif hello.peer != self.rank or not self.rank < hello.rank < ours.world_size or hello.rank in self.connections:
            refusal = Refusal.RANK
        return Verdict(refusal, ours.generation, ours.world_size, self.rank)

    def hello_to(self, peer: int) -> Hello:
        ours = self.rendezvous
        return Hello(ours.session, ours.generation, self.rank, peer, ours.world_size)

    def missing(self) -> list[int]:
        return [peer for peer in range(self.rendezvous.world_size) if peer not in self.connections | {self.rank: None}]


def connect_mesh(
    rendezvous: Rendezvous,
    rank: int,
    listener: Listener,
    timeout: float,
    tls: TlsContexts | None = None,
    buffer_bytes: int | None = None,
) -> dict[int, socket.socket]:
    """A non-blocking, authenticated connection to every other rank."""
    until = time.monotonic() + timeout
    state = _Formation(rendezvous, rank, retries=dict.fromkeys(range(rank), (0.0, 0.01)))
    security = Security(rendezvous.session, rendezvous.secret, tls)
    try:
        with Negotiator(security, buffer_bytes) as negotiator:
            negotiator.listen(listener, state.judge)
            while state.missing():
                if time.monotonic() >= until:
                    raise _late(state, timeout)
                patience = _dial_who_is_due(state, negotiator)
                for result in negotiator.poll(min(patience, until - time.monotonic())):
                    _take(state, result)
    except BaseException:
        for connection in state.connections.values():
            connection.close()
        raise
    return state.connections


def _dial_who_is_due(state: _Formation, negotiator: Negotiator) -> float:
    """Start the connections whose time has come; seconds until the next one's."""
    now = time.monotonic()
    for peer, (when, _) in list(state.retries.items()):
        if when > now:
            continue
        state.retries[peer] = (float("inf"), state.retries[peer][1])
        failure = negotiator.dial(Address.parse(state.rendezvous.addresses[peer]), state.hello_to(peer))
        if failure is not None:
            _take(state, failure)
    soonest = min((when for when, _ in state.retries.values()), default=float("inf"))
    return max(0.0, min(soonest - time.monotonic(), _LONGEST_PAUSE))


def _take(state: _Formation, result: Arrival | Failure) -> None:
    if isinstance(result, Failure):
        if result.hello is None:
            state.refused += 1
            return
        if isinstance(result.error, CollectiveError):
            raise result.error
        peer = result.hello.peer
        pause = state.retries[peer][1]
        state.retries[peer] = (time.monotonic() + pause, min(2 * pause, _LONGEST_PAUSE))
        state.troubles[peer] = str(result.error)
        return
    peer = result.hello.peer if result.dialled else result.hello.rank
    if peer in state.connections:
        result.connection.close()  # two attempts of one peer that were judged before either arrived
        return
    state.retries.pop(peer, None)
    state.connections[peer] = result.connection


def _late(state: _Formation, timeout: float) -> CollectiveTimeout:
    missing = state.missing()
    details = "; ".join(f"rank {peer}: {state.troubles[peer]}" for peer in missing if peer in state.troubles)
    refused = f"; {state.refused} other connections were refused" if state.refused else ""
    return CollectiveTimeout(
        f"rank {state.rank} could not connect to ranks {missing} of session {state.rendezvous.session!r} within "
        f"{timeout:g} s{': ' + details if details else ''}{refused}. Check that every rank has started with the same "
        f"record and can reach the addresses in it",
        missing,
    )
