"""A worker's side of the protocol without sockets or clocks: messages and the time go in, messages come out.

Updates of a shard are numbered; each is sent until its outcome is known, to whoever the newest view says is in
charge. An update whose caller has given up is still sent, because the ones after it are applied only in order. Reads
carry the number of the last update they must see.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dmlgbm.collectives.parameter_server.messages import (
    Action,
    Answer,
    Answered,
    Enrol,
    Enrolled,
    Join,
    Message,
    NotHere,
    Outcome,
    Query,
    Read,
    Status,
    Update,
    Updated,
    WorkerAlive,
)
from dmlgbm.collectives.parameter_server.replica import ServerName
from dmlgbm.collectives.parameter_server.server_core import COORDINATOR
from dmlgbm.collectives.parameter_server.shard_state import WINDOW
from dmlgbm.collectives.parameter_server.view import NOBODY, View

# Of a worker's deadline: how often it reports.
_REPORT_SHARE = 0.1
# The server ends a read itself and says why; only if it stays silent does the worker, this much later.
_SERVER_SAYS_SECONDS = 0.5
_LONGEST_REPEAT_SECONDS = 4.0


class Result(NamedTuple):
    """How one request ended; `missing` are workers whose clocks were waited for in vain."""

    ticket: int
    shard: int
    outcome: Outcome
    answer: Answer = None
    missing: tuple[int, ...] = ()


@dataclass
class _Pending:
    message: Update | Read
    ticket: int
    deadline: float
    interval: float
    due: float


@dataclass
class _Lane:
    """The updates of one shard."""

    last: int = 0
    pending: dict[int, _Pending] = field(default_factory=dict)


class WorkerCore:
    """One worker. The host calls `receive` and `tick`, sends what `take` returns and hands on what `results` holds."""

    def __init__(self, token: int, rank: int, repeat_seconds: float = 0.5) -> None:
        self.worker = NOBODY
        self.view: View | None = None
        self.refusal = ""
        self.expired = False
        self.results: list[Result] = []
        self._token = token
        self._rank = rank
        self._repeat_seconds = repeat_seconds
        self._outbox: list[tuple[Hashable, Message]] = []
        self._lanes: dict[int, _Lane] = {}
        self._reads: dict[int, _Pending] = {}
        self._last_read = 0
        self._last_ticket = 0
        self._deadline_seconds = 0.0
        self._reported = float("-inf")
        self._joined = False

    def take(self) -> list[tuple[Hashable, Message]]:
        outbox, self._outbox = self._outbox, []
        return outbox

    @property
    def ready(self) -> bool:
        """Whether the servers have gathered and this worker belongs to the session."""
        return self.view is not None and self.view.formed and self.worker in self.view.workers

    @property
    def started(self) -> bool:
        """Whether also the other workers that the store begins with are there."""
        return self.ready and self.view is not None and self.view.started

    @property
    def _version(self) -> int:
        return 0 if self.view is None else self.view.version

    def room(self, shard: int) -> bool:
        """Whether one more update of the shard may be under way."""
        lane = self._lanes.get(shard)
        return lane is None or not lane.pending or lane.last - min(lane.pending) + 1 < WINDOW

    def update(self, shard: int, action: Action, now: float, patience: float) -> int:
        """Start an update; the result will carry the returned ticket."""
        lane = self._lanes.setdefault(shard, _Lane())
        if not lane.last and not isinstance(action, Join):
            raise AssertionError("a worker joins a shard before it does anything else there")
        lane.last += 1
        floor = min(lane.pending, default=lane.last)
        message = Update(self._version, shard, self.worker, lane.last, floor, action)
        lane.pending[lane.last] = pending = self._pending(message, now, patience)
        self._send(pending, now)
        return pending.ticket

    def read(self, shard: int, query: Query, now: float, patience: float) -> int:
        """Start a read that sees this worker's updates so far."""
        self._last_read += 1
        after = self._lanes[shard].last if shard in self._lanes else 0
        message = Read(self._version, shard, self.worker, self._last_read, after, patience, query)
        self._reads[self._last_read] = pending = self._pending(message, now, patience + _SERVER_SAYS_SECONDS)
        self._send(pending, now)
        return pending.ticket

    def _pending(self, message: Update | Read, now: float, patience: float) -> _Pending:
        self._last_ticket += 1
        return _Pending(message, self._last_ticket, now + patience, self._repeat_seconds, now)

    def _send(self, pending: _Pending, now: float) -> None:
        assert self.view is not None
        message = pending.message
        pending.due = now + pending.interval
        pending.interval = min(2 * pending.interval, _LONGEST_REPEAT_SECONDS)
        if message.version != self.view.version:
            message = pending.message = replace(message, version=self.view.version)
        self._outbox.append((ServerName(self.view.placements[message.shard].head), message))

    def receive(self, sender: Hashable, message: Message, now: float) -> None:
        if isinstance(message, Updated):
            lane = self._lanes.get(message.shard, _Lane())
            self._finish(lane.pending.pop(message.sequence, None), message.outcome)
        elif isinstance(message, Answered):
            self._finish(self._reads.pop(message.number, None), message.outcome, message.answer, message.missing)
        elif isinstance(message, NotHere):
            self._not_here(message, now)
        elif isinstance(message, View):
            self._adopt(message, now)
        elif isinstance(message, Enrolled) and message.token == self._token:
            self.refusal = message.refusal
            if not message.refusal:
                self.worker, self._deadline_seconds = message.worker, message.deadline_seconds

    def _finish(
        self, pending: _Pending | None, outcome: Outcome, answer: Answer = None, missing: tuple[int, ...] = ()
    ) -> None:
        if pending is not None and pending.ticket:  # else a repeated reply, or the caller has given up
            self.results.append(Result(pending.ticket, pending.message.shard, outcome, answer, missing))

    def _not_here(self, message: NotHere, now: float) -> None:
        assert self.view is not None
        if message.version > self.view.version:
            self._report(now)
        elif message.version == self.view.version:
            for pending in self._of_shard(message.shard):
                self._send(pending, now)

    def _of_shard(self, shard: int) -> list[_Pending]:
        lane = self._lanes.get(shard, _Lane())
        updates = [lane.pending[sequence] for sequence in sorted(lane.pending)]
        return updates + [pending for pending in self._reads.values() if pending.message.shard == shard]

    def _adopt(self, view: View, now: float) -> None:
        if self.view is not None and view.version <= self.view.version and self.view.formed:
            return
        before, self.view = self.view, view
        if before is not None and self.worker in before.workers and self.worker not in view.workers:
            self._expire()
        if before is None or not before.formed:
            return
        for shard, (old, new) in enumerate(zip(before.placements, view.placements, strict=True)):
            if old.head != new.head:
                for pending in self._of_shard(shard):
                    pending.interval = self._repeat_seconds
                    self._send(pending, now)

    def _expire(self) -> None:
        self.expired = True
        outcome = Outcome(Status.EXPIRED, 0, "the worker was silent for too long and does not take part any more")
        self.fail_all(outcome)

    def fail_all(self, outcome: Outcome) -> None:
        """End every request under way."""
        lanes = [pending for lane in self._lanes.values() for pending in lane.pending.values()]
        for pending in [*lanes, *self._reads.values()]:
            self._finish(pending, outcome)
        for lane in self._lanes.values():
            lane.pending.clear()
        self._reads.clear()

    def tick(self, now: float) -> None:
        """Report to the coordinator, send again what got no answer, end what waited too long."""
        period = _REPORT_SHARE * self._deadline_seconds if self.started else self._repeat_seconds / 4
        if now - self._reported >= period and not self.expired:
            self._report(now)
        if not self.ready:
            return
        timeout = Outcome(Status.TIMEOUT, 0, "no answer")
        for number, pending in list(self._reads.items()):
            if now >= pending.deadline:
                self._finish(self._reads.pop(number), timeout)
        updates = [pending for lane in self._lanes.values() for pending in lane.pending.values()]
        for pending in updates:
            if now >= pending.deadline and pending.ticket:
                self._finish(pending, timeout)
                pending.ticket = 0
        overdue = [pending for pending in (*updates, *self._reads.values()) if now >= pending.due]
        for pending in overdue:
            self._send(pending, now)
        if overdue:
            self._report(now)  # a silent server may have been replaced

    def _report(self, now: float) -> None:
        self._reported = now
        if self.worker == NOBODY:
            self._outbox.append((COORDINATOR, Enrol(self._token, self._rank)))
            return
        self._outbox.append((COORDINATOR, WorkerAlive(self.worker, self._version, self._joined, leaving=False)))

    def joined(self, now: float) -> None:
        """Tell the coordinator that every shard knows this worker."""
        self._joined = True
        self._report(now)

    def leave(self) -> None:
        """Tell the coordinator that this worker is done."""
        if self.worker != NOBODY:
            self._outbox.append((COORDINATOR, WorkerAlive(self.worker, self._version, self._joined, leaving=True)))
