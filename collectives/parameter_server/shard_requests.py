"""What the head of a chain does with the requests of workers: order them, hold them back, answer when all is done.

An update is applied when it is the worker's next one; a repeated one gets the recorded outcome; one that came too
early is held. A read is evaluated once the worker's own updates are in, the clocks allow it and the server's lease is
valid. No reply leaves before everything it depends on is held by the whole chain.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dmlgbm.collectives.parameter_server.messages import (
    Answer,
    Answered,
    Count,
    Describe,
    Export,
    Join,
    Leave,
    Message,
    NotHere,
    Outcome,
    Pull,
    PullChanges,
    Push,
    Read,
    Status,
    Update,
    Updated,
)
from dmlgbm.collectives.parameter_server.replica import Replica
from dmlgbm.collectives.parameter_server.shard_state import WINDOW, ShardState
from dmlgbm.collectives.parameter_server.statistics import Statistics
from dmlgbm.collectives.parameter_server.view import rank_of

Sender = Hashable
Reply = Callable[[Sender, Message], None]


@dataclass
class _Waiting:
    sender: Sender
    read: Read
    arrived: float


class ShardRequests:
    """The requests for one shard that are under way at its head."""

    def __init__(self, replica: Replica, statistics: Statistics, reply: Reply) -> None:
        self._replica = replica
        self._statistics = statistics
        self._reply = reply
        # Replies in the order of the updates they wait for.
        self._unsent: deque[tuple[int, Sender, Message]] = deque()
        self._early: dict[tuple[int, int], tuple[Sender, Update]] = {}
        self._reads: dict[tuple[int, int], _Waiting] = {}

    @property
    def _state(self) -> ShardState:
        assert self._replica.state is not None
        return self._replica.state

    def update(self, sender: Sender, update: Update) -> None:
        """Take an update of a worker that belongs to the session."""
        window = self._state.windows.get(update.worker)
        last = 0 if window is None else window.last
        if update.sequence <= last and window is not None:
            self._statistics.duplicate_updates += 1
            outcome = window.outcomes.get(update.sequence)
            if outcome is not None:  # else the worker has told that it knows
                self._send_later(sender, Updated(update.shard, update.sequence, outcome))
            return
        if update.sequence > last + WINDOW or isinstance(update.action, Leave):
            return  # no worker of this version sends that
        self._early[update.worker, update.sequence] = (sender, update)
        while (found := self._early.pop((update.worker, last + 1), None)) is not None:
            if not self._propose(*found):
                return
            last += 1

    def _propose(self, sender: Sender, update: Update) -> bool:
        if isinstance(update.action, Join) != (update.sequence == 1):
            return False
        if isinstance(update.action, Push):
            self._statistics.push_staleness[update.action.clock - self._state.frontier] += 1
        _, outcome = self._replica.propose(update.worker, update.sequence, update.floor, update.action)
        self._statistics.updates += 1
        self._statistics.late_pushes += outcome.status == Status.LATE
        self._send_later(sender, Updated(update.shard, update.sequence, outcome))
        return True

    def remove_missing(self, workers: tuple[int, ...]) -> None:
        """Let workers that no longer belong to the session leave the shard."""
        for worker in set(self._state.clocks).difference(workers):
            self._replica.propose(worker, 0, 0, Leave())
            self._early = {name: held for name, held in self._early.items() if name[0] != worker}
            self._reads = {name: waiting for name, waiting in self._reads.items() if name[0] != worker}

    def read(self, sender: Sender, read: Read, now: float) -> None:
        self._statistics.reads += 1
        known = self._reads.get((read.worker, read.number))
        self._reads[read.worker, read.number] = _Waiting(sender, read, now if known is None else known.arrived)

    def advance(self, now: float, lease_is_valid: bool) -> None:
        """Evaluate the reads that can be, and send the replies whose updates are done."""
        for name, waiting in list(self._reads.items()):
            found = self._evaluate(waiting.read) if lease_is_valid else None
            if found is None and now - waiting.arrived < waiting.read.patience:
                continue
            del self._reads[name]
            if found is None:
                self._statistics.timeouts += 1
                found = self._timeout(waiting.read, lease_is_valid)
            elif now > waiting.arrived:
                self._statistics.waited(now - waiting.arrived)
            self._send_later(waiting.sender, found)
        while self._unsent and self._unsent[0][0] <= self._replica.committed:
            _, sender, message = self._unsent.popleft()
            self._reply(sender, message)

    def _send_later(self, sender: Sender, message: Message) -> None:
        self._unsent.append((self._state.index, sender, message))

    def _evaluate(self, read: Read) -> Answered | None:
        """The answer as of now, or None while the read has to wait."""
        window = self._state.windows.get(read.worker)
        if window is None or window.last < read.after:
            return None
        query, answer = read.query, None
        outcome = Outcome(Status.DONE, self._state.frontier, "")
        if isinstance(query, Pull | PullChanges):
            problem = self._problem(query)
            if problem is None and self._state.frontier < query.min_clock:
                return None
            outcome = outcome if problem is None else problem
            answer = self._pull(query) if problem is None else None
        else:
            outcome, answer = self._other(query, outcome)
        return Answered(read.number, outcome, answer)

    def _problem(self, query: Pull | PullChanges) -> Outcome | None:
        table = self._state.tables.get((query.key, query.part))
        if table is None:
            return Outcome(Status.UNKNOWN_KEY, self._state.frontier, "is not known: call init first")
        text = table.problem_with(query.rows, None) if isinstance(query, Pull) else ""
        return Outcome(Status.MISMATCH, self._state.frontier, text) if text else None

    def _pull(self, query: Pull | PullChanges) -> Answer:
        self._statistics.pull_staleness[query.clock - self._state.frontier] += 1
        table = self._state.tables[query.key, query.part]
        return table.read(query.rows) if isinstance(query, Pull) else table.read_changes(query.since, self._state.index)

    def _other(self, query: Describe | Export | Count, outcome: Outcome) -> tuple[Outcome, Answer]:
        if isinstance(query, Export):
            return outcome, self._state.copy()
        if isinstance(query, Count):
            return outcome, json.dumps(self._statistics.as_dict())
        table = self._state.tables.get((query.key, 0))
        if table is None:
            return Outcome(Status.UNKNOWN_KEY, outcome.clock, "is not known: call init first"), None
        return outcome, table.spec

    def _timeout(self, read: Read, lease_is_valid: bool) -> Answered:
        missing: list[int] = []
        if not lease_is_valid:
            text = "the server has lost touch with the coordinator"
        elif isinstance(read.query, Pull | PullChanges) and self._state.frontier < read.query.min_clock:
            missing = self._state.lagging(read.query.min_clock)
            ranks = [rank_of(worker) for worker in missing]
            text = f"workers {ranks} have not reached clock {read.query.min_clock}"
        else:
            text = "earlier updates of the same worker have not arrived"
        return Answered(read.number, Outcome(Status.TIMEOUT, self._state.frontier, text), None, tuple(missing))

    def resign(self, version: int) -> None:
        """Send everybody who still waits to the new head."""
        shard = self._replica.shard
        senders = [sender for _, sender, _ in self._unsent]
        senders += [sender for sender, _ in self._early.values()]
        senders += [waiting.sender for waiting in self._reads.values()]
        self._unsent.clear()
        self._early.clear()
        self._reads.clear()
        for sender in dict.fromkeys(senders):
            self._reply(sender, NotHere(version, shard))
