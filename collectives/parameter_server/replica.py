"""One server's copy of one shard, and its position in the chain: apply, pass on, acknowledge.

The head numbers updates and every server applies them in that order. An update counts as done (`committed`) at a
server once everybody after it in the chain holds it. A server keeps what the next one has not acknowledged and sends
it again on every change of the chain and whenever acknowledgements stay away, so lost, repeated and reordered
messages do no harm. Messages of another version of the view are ignored: a server that was replaced cannot get
anything done.

A joining server is sent a copy of the shard by the last server of the chain. From its first acknowledgement on,
updates count as done only when the joining server has them too; it may become part of the chain as soon as it has
everything that was ever done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server.consistency import Consistency
from dmlgbm.collectives.parameter_server.messages import Action, Copied, Fill, Outcome, Replicate
from dmlgbm.collectives.parameter_server.shard_state import ShardState
from dmlgbm.collectives.parameter_server.view import NOBODY, Placement

# Updates sent again at a time, so that a slow server is not drowned.
_REPEATED = 64


@dataclass(frozen=True)
class ServerName:
    """A server as the destination of a message."""

    number: int


Send = Callable[[ServerName, Copied | Fill | Replicate], None]


class Replica:
    """The copy of a shard on one server. `state` is None until a joining server has got its copy."""

    def __init__(self, shard: int, server: int, send: Send) -> None:
        self.shard = shard
        self.server = server
        self.state: ShardState | None = None
        self.committed = 0
        self._send = send
        self._version = 0
        self._placement = Placement(())
        self._log: deque[Replicate] = deque()
        self._copied = 0
        self._waits_for_joining = False
        self._quiet_since = 0.0

    @property
    def is_head(self) -> bool:
        return self._placement.chain[:1] == (self.server,) and self.state is not None

    @property
    def filled(self) -> int:
        """The joining server that holds everything done and may become part of the chain, or NOBODY."""
        ready = self._feeds_joining and self._waits_for_joining and self._copied >= self.committed
        return self._placement.joining if ready else NOBODY

    @property
    def _feeds_joining(self) -> bool:
        return self._placement.joining != NOBODY and self._placement.after(self.server) == self._placement.joining

    def adopt(self, version: int, placement: Placement, consistency: Consistency, now: float) -> None:
        """Take the position that a new view gives this server."""
        before, self._placement, self._version = self._placement, placement, version
        known = self.server in before.everybody
        if self.server == placement.joining:
            if not known or (before.joining, before.since) != (placement.joining, placement.since):
                self.state, self.committed = None, 0
        elif self.state is None:
            # A member of the chain from the beginning, which nobody could get anything done without.
            self.state = ShardState(consistency)
        following = placement.after(self.server)
        if following == NOBODY:
            self._log.clear()
        elif self._feeds_joining and (
            not known or before.after(self.server) != following or before.since != placement.since
        ):
            self._log.clear()
            self._copied, self._waits_for_joining = 0, False
            self._fill(now)
        self._consistency = consistency
        self._log = deque(replace(entry, version=version) for entry in self._log)
        self._repeat(now)
        self._settle()

    def _fill(self, now: float) -> None:
        assert self.state is not None
        self._quiet_since = now
        self._send(ServerName(self._placement.joining), Fill(self._version, self.shard, self.state.copy()))

    def propose(self, worker: int, sequence: int, floor: int, action: Action) -> tuple[int, Outcome]:
        """Apply an update as the head and pass it on; its number, and what it will have led to once it is done."""
        assert self.state is not None
        outcome = self.state.apply(worker, sequence, floor, action)
        self._pass_on(Replicate(self._version, self.shard, self.state.index, worker, sequence, floor, action))
        self._settle()
        return self.state.index, outcome

    def _pass_on(self, entry: Replicate) -> None:
        following = self._placement.after(self.server)
        if following != NOBODY:
            self._log.append(entry)
            self._send(ServerName(following), entry)

    def replicate(self, entry: Replicate) -> None:
        """Apply what the server before this one passes on, if it is next."""
        if entry.version != self._version or self.state is None:
            return
        if entry.index == self.state.index + 1:
            self.state.apply(entry.worker, entry.sequence, entry.floor, entry.action)
            self._pass_on(entry)
            self._settle()
        elif entry.index <= self.state.index:
            self._acknowledge()

    def fill(self, message: Fill) -> None:
        """Become a copy of the shard."""
        if message.version != self._version or self.server != self._placement.joining:
            return
        if self.state is None or self.state.index < message.copy.index:
            try:
                self.state = ShardState.from_copy(message.copy, self._consistency)
            except ProtocolError:
                return  # the sender sends it again, and the view says who is to blame
        self._settle()
        self._acknowledge()

    def copied(self, message: Copied, now: float) -> None:
        """The next server has acknowledged."""
        if message.version != self._version or message.server != self._placement.after(self.server):
            return
        self._quiet_since = now
        self._copied = max(self._copied, message.index)
        self._waits_for_joining = self._feeds_joining
        while self._log and self._log[0].index <= self._copied:
            self._log.popleft()
        self._settle()

    def _settle(self) -> None:
        """Find out what is done by now, and tell the server before this one."""
        if self.state is None:
            return
        following = self._placement.after(self.server)
        waits = following != NOBODY and (not self._feeds_joining or self._waits_for_joining)
        done = self._copied if waits else self.state.index
        if done > self.committed:
            self.committed = done
            self._acknowledge()

    def _acknowledge(self) -> None:
        before = self._placement.before(self.server)
        if before != NOBODY:
            self._send(ServerName(before), Copied(self._version, self.shard, self.server, self.committed))

    def tick(self, now: float, patience: float) -> None:
        """Send again what has gone unacknowledged for too long."""
        if now - self._quiet_since < patience:
            return
        if self._feeds_joining and not self._waits_for_joining and self.state is not None:
            self._fill(now)
        self._repeat(now)

    def _repeat(self, now: float) -> None:
        self._quiet_since = now
        following = self._placement.after(self.server)
        for entry in islice(self._log, _REPEATED):
            self._send(ServerName(following), entry)
