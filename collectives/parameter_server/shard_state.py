"""The replicated state of one shard: a pure function of the updates applied to it, in their order.

Every server of a chain applies the same updates with the same numbers, so whatever a worker may ask again after a
failure is part of this state: the tables, the workers' clocks, the pushes that wait for the end of their step, and
for each worker which of its updates were applied and how they ended. Updates that are refused are recorded like
others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dmlgbm.collectives.compression import PayloadError
from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server.consistency import Consistency
from dmlgbm.collectives.parameter_server.messages import (
    Action,
    Advance,
    Init,
    Join,
    Leave,
    Outcome,
    Push,
    Restore,
    ShardCopy,
    Status,
    WindowCopy,
)
from dmlgbm.collectives.parameter_server.table import Contribution, Table

# A worker may have this many updates of a shard under way.
WINDOW = 1024


@dataclass
class Window:
    """The updates of one worker: all up to `last` were applied; outcomes are kept while it may ask again."""

    last: int = 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def record(self, sequence: int, floor: int, outcome: Outcome) -> None:
        self.last = sequence
        self.outcomes[sequence] = outcome
        for old in [known for known in self.outcomes if known < floor]:
            del self.outcomes[old]


class ShardState:
    """Tables, clocks and windows of one shard."""

    def __init__(self, consistency: Consistency) -> None:
        self.index = 0
        self.frontier = 0
        self.tables: dict[tuple[str, int], Table] = {}
        self.clocks: dict[int, int] = {}
        self.windows: dict[int, Window] = {}
        self._consistency = consistency
        self._held: dict[int, list[tuple[int, Push]]] = {}

    def apply(self, worker: int, sequence: int, floor: int, action: Action) -> Outcome:
        """Apply the next update. The caller has made sure that it is the worker's next one."""
        self.index += 1
        if isinstance(action, Leave):
            self._leave(worker)
            return Outcome(Status.DONE, self.frontier, "")
        if isinstance(action, Join):
            self.clocks[worker] = max([self.frontier, *self.clocks.values()])
            self.windows[worker] = Window()
            outcome = Outcome(Status.DONE, self.clocks[worker], "")
        else:
            outcome = self._perform(worker, action)
        self.windows[worker].record(sequence, floor, outcome)
        return outcome

    def _perform(self, worker: int, action: Action) -> Outcome:
        if isinstance(action, Push):
            return self._push(worker, action)
        if isinstance(action, Init):
            return self._init(action)
        if isinstance(action, Advance):
            return self._advance(worker, action.clock)
        assert isinstance(action, Restore)
        return self._restore(worker, action.copy)

    def _done(self) -> Outcome:
        return Outcome(Status.DONE, self.frontier, "")

    def _init(self, action: Init) -> Outcome:
        existing = self.tables.get((action.key, action.part))
        if existing is not None:
            if existing.spec == action.spec:
                return self._done()
            return Outcome(Status.MISMATCH, self.frontier, f"exists already as {existing.spec}, not {action.spec}")
        try:
            self.tables[action.key, action.part] = Table.new(action.key, action.part, action.spec, action.value)
        except ProtocolError as error:
            return Outcome(Status.MISMATCH, self.frontier, str(error))
        return self._done()

    def _push(self, worker: int, push: Push) -> Outcome:
        table = self.tables.get((push.key, push.part))
        if table is None:
            return Outcome(Status.UNKNOWN_KEY, self.frontier, "is not known: call init first")
        try:
            values = table.plain(push.values)
        except PayloadError as error:
            return Outcome(Status.MISMATCH, self.frontier, str(error))
        if problem := table.problem_with(push.rows, values):
            return Outcome(Status.MISMATCH, self.frontier, problem)
        if not self._consistency.collects:
            table.apply([Contribution(push.rows, values)], self.index)
        elif push.clock < self.frontier:
            return Outcome(Status.LATE, self.frontier, f"step {push.clock} is over")
        else:
            self._held.setdefault(push.clock, []).append((worker, replace(push, values=values)))
        return self._done()

    def _advance(self, worker: int, clock: int) -> Outcome:
        if clock < self.clocks[worker]:
            return Outcome(Status.REFUSED, self.frontier, f"the clock of worker {worker} is {self.clocks[worker]}")
        self.clocks[worker] = clock
        self._move_frontier()
        return self._done()

    def _leave(self, worker: int) -> None:
        """Forget a worker; what it pushed for steps that it finished still counts."""
        clock = self.clocks.pop(worker, None)
        self.windows.pop(worker, None)
        if clock is None:
            return
        for step in [step for step in self._held if step >= clock]:
            self._held[step] = [(owner, push) for owner, push in self._held[step] if owner != worker]
        self._move_frontier()

    def _move_frontier(self) -> None:
        """The clock that all workers but the backups have reached; steps that this ends are applied."""
        if not self.clocks:
            return
        ordered = sorted(self.clocks.values())
        reached = ordered[min(self._consistency.backup_workers, len(ordered) - 1)]
        while self.frontier < reached:
            # Steps nobody pushed for may be many after a jump, but holding none of them costs nothing.
            self.frontier = min((step for step in self._held if step < reached), default=reached - 1) + 1
            self._finish_step(self.frontier - 1)

    def _finish_step(self, step: int) -> None:
        """Apply what was pushed for a step, key by key, in the order of workers; a worker still in it is too late."""
        by_table: dict[tuple[str, int], list[tuple[int, Push]]] = {}
        for worker, push in self._held.pop(step, []):
            if self.clocks.get(worker, step + 1) > step:
                by_table.setdefault((push.key, push.part), []).append((worker, push))
        for name in sorted(by_table):
            if name not in self.tables:
                continue
            pushes = sorted(
                by_table[name], key=lambda entry: entry[0]
            )  # stable: a worker's own pushes keep their order
            n_workers = len({worker for worker, _ in pushes})
            table = self.tables[name]
            contributions = [Contribution(push.rows, table.plain(push.values)) for _, push in pushes]
            table.apply(contributions, self.index, n_workers)

    def _restore(self, worker: int, copy: ShardCopy) -> Outcome:
        others = sorted(set(self.clocks) - {worker})
        if others:
            text = f"only a single worker can restore a snapshot, but workers {others} take part too"
            return Outcome(Status.REFUSED, self.frontier, text)
        try:
            tables = {(table.key, table.part): Table(table) for table in copy.tables}
        except ProtocolError as error:
            return Outcome(Status.MISMATCH, self.frontier, str(error))
        self.tables = tables
        self._held.clear()
        self.frontier = self.clocks[worker] = max(self.clocks[worker], copy.frontier)
        return self._done()

    def lagging(self, clock: int) -> list[int]:
        """The workers that have not reached a clock."""
        return sorted(worker for worker, reached in self.clocks.items() if reached < clock)

    def copy(self) -> ShardCopy:
        windows = (WindowCopy(worker, each.last, tuple(each.outcomes.items())) for worker, each in self.windows.items())
        return ShardCopy(
            self.index,
            self.frontier,
            tuple(self.tables[name].copy() for name in sorted(self.tables)),
            tuple(self.clocks.items()),
            tuple(windows),
            tuple(entry for step in sorted(self._held) for entry in self._held[step]),
        )

    @classmethod
    def from_copy(cls, copy: ShardCopy, consistency: Consistency) -> ShardState:
        state = cls(consistency)
        state.index, state.frontier = copy.index, copy.frontier
        state.tables = {(table.key, table.part): Table(table) for table in copy.tables}
        state.clocks = dict(copy.clocks)
        state.windows = {each.worker: Window(each.last, dict(each.outcomes)) for each in copy.windows}
        for worker, push in copy.held:
            state._held.setdefault(push.clock, []).append((worker, push))
        return state
