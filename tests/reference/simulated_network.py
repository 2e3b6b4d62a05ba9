"""A store in one thread: real cores, a made-up network and clock, every failure arranged and repeatable.

Messages are encoded and decoded like on a socket, then dropped, repeated, delayed and thereby reordered as a seed
says. A worker is a generator that yields functions of (core, now) which start a request, and gets the result of each.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from dmlgbm.collectives.parameter_server.codec import decode, encode
from dmlgbm.collectives.parameter_server.coordinator_core import CoordinatorCore, StorePlan
from dmlgbm.collectives.parameter_server.replica import ServerName
from dmlgbm.collectives.parameter_server.server_core import COORDINATOR, ServerCore
from dmlgbm.collectives.parameter_server.worker_core import Result, WorkerCore

TICK_SECONDS = 0.02
Program = Generator[Callable[[WorkerCore, float], int], Result, None]
# (node, destination, message) -> "", "before" or "after": when to kill the node, as seen from this message
KillPoint = Callable[[str, str, Any], str]


@dataclass
class Network:
    """How badly messages travel."""

    drop: float = 0.0
    duplicate: float = 0.0
    shortest: float = 0.0005
    longest: float = 0.002


@dataclass
class Simulation:
    """One store. `cut` holds pairs of nodes between which nothing arrives, not even what is on its way."""

    plan: StorePlan
    seed: int = 0
    network: Network = field(default_factory=Network)
    kill_point: KillPoint | None = None
    time: float = 0.0
    nodes: dict[str, Any] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    cut: set[frozenset[str]] = field(default_factory=set)
    killed: list[str] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.nodes["coordinator"] = CoordinatorCore(self.plan)
        self._events: list[tuple[float, int, str, str, Any]] = []
        self._count = 0
        self._programs: dict[str, Program] = {}
        self._tickets: dict[str, int] = {}
        self._start_ticking("coordinator")
        for number in range(self.plan.n_servers):
            self.add_server(f"server-{number}")

    def add_server(self, name: str) -> ServerCore:
        core = self.nodes[name] = ServerCore(self.random.getrandbits(60), name)
        self._start_ticking(name)
        return core

    def add_worker(self, name: str, program: Program, rank: int = -1) -> WorkerCore:
        core = self.nodes[name] = WorkerCore(self.random.getrandbits(60), rank, repeat_seconds=0.05)
        self._programs[name] = program
        self._start_ticking(name)
        return core

    def kill(self, name: str) -> None:
        del self.nodes[name]
        self._programs.pop(name, None)
        self.killed.append(name)

    def _start_ticking(self, name: str) -> None:
        self._schedule(self.random.uniform(0, TICK_SECONDS), "tick", name, None)

    def _schedule(self, delay: float, sender: str, name: str, data: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.time + delay, self._count, sender, name, data))

    def run(self, until: Callable[[], bool], limit: float = 60.0) -> None:
        """Let time pass until the condition holds; fail after `limit` made-up seconds."""
        end = self.time + limit
        while not until():
            assert self.time < end, f"not reached in {limit} s; programs left: {list(self._programs)}"
            self._step()

    def run_for(self, seconds: float) -> None:
        end = self.time + seconds
        self.run(lambda: self.time >= end)

    @property
    def finished(self) -> bool:
        return not self._programs

    def _step(self) -> None:
        self.time, _, sender, name, data = heapq.heappop(self._events)
        if name not in self.nodes or frozenset((sender, name)) in self.cut:
            return
        if name in self.paused:  # what arrives meanwhile waits in the buffers of the system
            self._schedule(TICK_SECONDS, sender, name, data)
            return
        core = self.nodes[name]
        if sender == "tick":
            core.tick(self.time)
            self._schedule(TICK_SECONDS, "tick", name, None)
        else:
            kind, content = data
            core.receive(sender, decode(kind, content), self.time)
        self._flush(name)
        if name in self._programs:
            self._go_on(name)

    def _flush(self, name: str) -> None:
        for destination, message in self.nodes[name].take():
            target = self._resolve(name, destination)
            when = self.kill_point(name, target, message) if self.kill_point is not None else ""
            if when == "before":
                return self.kill(name)
            self._post(name, target, message)
            if when == "after":
                return self.kill(name)
        return None

    def _resolve(self, name: str, destination: Any) -> str:
        if destination is COORDINATOR:
            return "coordinator"
        if isinstance(destination, ServerName):
            return self.nodes[name].view.address_of(destination.number)
        return destination

    def _post(self, sender: str, target: str, message: Any) -> None:
        self.sent += 1
        data = type(message), b"".join(map(bytes, encode(message)))
        copies = (self.random.random() >= self.network.drop) + (self.random.random() < self.network.duplicate)
        for _ in range(copies):
            self._schedule(self.random.uniform(self.network.shortest, self.network.longest), sender, target, data)

    def _go_on(self, name: str) -> None:
        """Hand results to a worker's program and start what it wants next."""
        core, program = self.nodes[name], self._programs[name]
        if not core.ready:
            return
        if name not in self._tickets:
            self._advance(name, core, program, None)
        for result in core.results:
            if result.ticket == self._tickets.get(name):
                self._advance(name, core, program, result)
        core.results.clear()
        if name in self.nodes:
            self._flush(name)

    def _advance(self, name: str, core: WorkerCore, program: Program, result: Result | None) -> None:
        try:
            start = program.send(result)  # type: ignore[arg-type]
            self._tickets[name] = start(core, self.time)
        except StopIteration:
            del self._programs[name]
