"""The coordinator without sockets or clocks: who takes part, and which server holds what.

It is the only one that makes views. Servers and workers report regularly; a server that was silent for longer than
its lease is taken out of every chain in which another copy lives, a free server is filled to make up for it, and a
worker that was silent for longer than its deadline no longer counts. The last copy of a shard is never given up:
while its server is silent, requests end at their deadlines, and if it comes back they go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from dmlgbm.collectives.parameter_server.consistency import Consistency, bsp
from dmlgbm.collectives.parameter_server.messages import (
    Enrol,
    Enrolled,
    Lease,
    Message,
    Register,
    Registered,
    ServerAlive,
    WorkerAlive,
)
from dmlgbm.collectives.parameter_server.view import NOBODY, Placement, View, rank_of, worker_number


@dataclass(frozen=True)
class StorePlan:
    """How a store is laid out: set once, when its coordinator is made.

    The store starts when `n_servers` and `n_workers` have come; more may come later. Each of `n_shards` is kept on
    `copies` servers. `lease_seconds` is how long a silent server stays in charge, `worker_deadline_seconds` how long a
    silent worker holds up the others.
    """

    n_servers: int = 1
    n_workers: int = 1
    n_shards: int = 16
    copies: int = 1
    consistency: Consistency = field(default_factory=bsp)
    lease_seconds: float = 2.0
    worker_deadline_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("n_servers", "n_workers", "n_shards", "copies"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.copies > self.n_servers:
            raise ValueError(f"copies must be at most n_servers ({self.n_servers}), got {self.copies}")
        for name in ("lease_seconds", "worker_deadline_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass
class _Member:
    """A server or worker, where it was last heard from, and when."""

    token: int
    sender: Hashable
    heard: float
    address: str = ""
    leaving: bool = False
    joined: bool = False


class CoordinatorCore:
    """Makes the views of one store. The host calls `receive` and `tick` and sends what `take` returns."""

    def __init__(self, plan: StorePlan) -> None:
        self.plan = plan
        self.view = View(0, plan.consistency, (), (), (), plan.lease_seconds)
        self._servers: dict[int, _Member] = {}
        self._workers: dict[int, _Member] = {}
        self._attempts: Counter[int] = Counter()
        self._outbox: list[tuple[Hashable, Message]] = []

    def take(self) -> list[tuple[Hashable, Message]]:
        outbox, self._outbox = self._outbox, []
        return outbox

    def receive(self, sender: Hashable, message: Message, now: float) -> None:
        if isinstance(message, Register):
            self._register(sender, message, now)
        elif isinstance(message, ServerAlive):
            self._server_alive(sender, message, now)
        elif isinstance(message, Enrol):
            self._enrol(sender, message, now)
        elif isinstance(message, WorkerAlive):
            self._worker_alive(sender, message, now)

    def tick(self, now: float) -> None:
        """Let go of the silent."""
        deadline = now - self.plan.worker_deadline_seconds
        if silent := [number for number, each in self._workers.items() if each.heard < deadline]:
            for number in silent:
                del self._workers[number]
            self._publish()
        self._repair(now)

    def _register(self, sender: Hashable, message: Register, now: float) -> None:
        known = [number for number, each in self._servers.items() if each.token == message.token]
        number = known[0] if known else max(self._servers, default=-1) + 1
        self._servers[number] = _Member(message.token, sender, now, message.address)
        self._outbox.append((sender, Registered(number)))
        if not self.view.formed and len(self._servers) == self.plan.n_servers:
            self._form()
        elif not known:
            self._publish()
            self._repair(now)

    def _form(self) -> None:
        servers = sorted(self._servers)
        chains = (
            tuple(servers[(shard + position) % len(servers)] for position in range(self.plan.copies))
            for shard in range(self.plan.n_shards)
        )
        self._publish(tuple(Placement(chain) for chain in chains))

    def _server_alive(self, sender: Hashable, message: ServerAlive, now: float) -> None:
        server = self._servers.get(message.server)
        if server is None:
            return
        server.sender, server.heard = sender, now
        server.leaving = server.leaving or message.leaving
        self._outbox.append((sender, Lease(message.sent)))
        placements = list(self.view.placements)
        for shard, joined in message.filled:
            if shard < 0 or shard >= len(placements):
                continue
            place = placements[shard]
            current = place.joining == joined != NOBODY and place.since <= message.version
            if current and place.chain[-1] == message.server:
                placements[shard] = Placement((*place.chain, joined))
        if tuple(placements) != self.view.placements:
            self._publish(tuple(placements))
        elif message.version < self.view.version:
            self._outbox.append((sender, self.view))
        self._repair(now)

    def _enrol(self, sender: Hashable, message: Enrol, now: float) -> None:
        known = [number for number, each in self._workers.items() if each.token == message.token]
        if known:
            number = known[0]
            self._workers[number].sender, self._workers[number].heard = sender, now
        else:
            taken = {rank_of(worker) for worker in self._workers}
            rank = message.rank if message.rank >= 0 else next(i for i in range(len(taken) + 1) if i not in taken)
            if rank in taken:
                text = (
                    f"rank {rank} is a worker of this store already; if that one died, its place is free "
                    f"{self.plan.worker_deadline_seconds:g} s later"
                )
                self._outbox.append((sender, Enrolled(message.token, NOBODY, 0.0, text)))
                return
            self._attempts[rank] += 1
            number = worker_number(rank, self._attempts[rank])
            self._workers[number] = _Member(message.token, sender, now)
            self._publish()
        self._outbox.append((sender, Enrolled(message.token, number, self.plan.worker_deadline_seconds, "")))
        self._outbox.append((sender, self.view))

    def _worker_alive(self, sender: Hashable, message: WorkerAlive, now: float) -> None:
        worker = self._workers.get(message.worker)
        if worker is not None and message.leaving:
            del self._workers[message.worker]
            self._publish()
        elif worker is not None:
            worker.sender, worker.heard, worker.joined = sender, now, message.joined
            if not self.view.started and sum(each.joined for each in self._workers.values()) >= self.plan.n_workers:
                self._publish(started=True)
        if message.version < self.view.version:
            self._outbox.append((sender, self.view))

    def _publish(self, placements: tuple[Placement, ...] | None = None, started: bool = False) -> None:
        """Make the next view and send it to everybody; who misses it gets it with the next report."""
        formed = placements is not None or self.view.formed
        self.view = View(
            self.view.version + 1 if formed else 0,
            self.plan.consistency,
            self.view.placements if placements is None else placements,
            tuple((number, each.address) for number, each in sorted(self._servers.items())),
            tuple(sorted(self._workers)),
            self.plan.lease_seconds,
            self.view.started or started,
        )
        for member in (*self._servers.values(), *self._workers.values()):
            self._outbox.append((member.sender, self.view))

    def _repair(self, now: float) -> None:
        """Take the silent and the leaving out of chains, and give a new copy to those that became too short."""
        if not self.view.formed:
            return
        alive = {number for number, each in self._servers.items() if now - each.heard <= self.plan.lease_seconds}
        staying = {number for number in alive if not self._servers[number].leaving}
        load = Counter(server for place in self.view.placements for server in place.everybody)
        placements = tuple(self._repaired(place, alive, staying, load) for place in self.view.placements)
        gone = [number for number, each in self._servers.items() if each.leaving and not load[number]]
        if placements != self.view.placements:
            self._publish(placements)
        elif gone and not alive.issuperset(gone):
            for number in set(gone) - alive:
                del self._servers[number]
            self._publish()

    def _repaired(self, place: Placement, alive: set[int], staying: set[int], load: Counter[int]) -> Placement:
        chain = tuple(server for server in place.chain if server in staying)
        chain = chain or tuple(server for server in place.chain if server in alive) or place.chain
        if place.joining in staying:
            return replace(place, chain=chain)
        free = staying.difference(chain)
        if not free or sum(server in staying for server in chain) >= self.plan.copies:
            return Placement(chain)
        joining = min(free, key=lambda server: (load[server], server))
        load[joining] += 1
        return Placement(chain, joining, self.view.version + 1)
