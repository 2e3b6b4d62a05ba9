"""The protocol under a simulated network that drops, repeats and reorders messages and kills servers at chosen points.

Counters must be linearizable: no acknowledged push lost, none applied twice, reads that agree with real time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives.parameter_server.consistency import asp
from dmlgbm.collectives.parameter_server.coordinator_core import StorePlan
from dmlgbm.collectives.parameter_server.messages import (
    Copied,
    Init,
    Join,
    KeySpec,
    Pull,
    Push,
    Replicate,
    Status,
    Updated,
)
from dmlgbm.collectives.parameter_server.view import Placement
from tests.reference.linearizability import Add, History, Seen
from tests.reference.simulated_network import KillPoint, Network, Program, Simulation

N_WORKERS = 3
N_STEPS = 12
SIZE = N_WORKERS * N_STEPS
SPEC = KeySpec((SIZE,), 0, "<i8", 1, 0.0, "sum", ())
TERRIBLE = Network(drop=0.2, duplicate=0.2, shortest=0.0005, longest=0.03)


def counting(simulation: Simulation, number: int, history: History, pause: int = 1) -> Program:
    """Add to elements of its own and read everything, in turn."""
    patience = 1000.0
    result = yield lambda core, now: core.update(0, Join(), now, patience)
    assert result.outcome.status == Status.DONE
    yield lambda core, now: core.update(0, Init("n", 0, SPEC, np.zeros(SIZE, np.int64)), now, patience)
    for step in range(N_STEPS):
        add = Add(number * N_STEPS + step, simulation.time)
        history.adds.append(add)
        one = np.zeros(SIZE, np.int64)
        one[add.number] = 1
        result = yield lambda core, now, one=one: core.update(0, Push("n", 0, 0, None, one), now, patience)
        assert result.outcome.status == Status.DONE, result
        add.end = simulation.time
        if step % pause == 0:
            start = simulation.time
            result = yield lambda core, now: core.read(0, Pull("n", 0, 0, -1, None), now, patience)
            assert result.outcome.status == Status.DONE, result
            history.reads.append(Seen(start, simulation.time, result.answer))


def make(n_servers: int, copies: int, seed: int, network: Network) -> tuple[Simulation, History]:
    plan = StorePlan(n_servers, 1, 1, copies, asp(), lease_seconds=0.4, worker_deadline_seconds=1000.0)
    simulation, history = Simulation(plan, seed, network), History()
    for number in range(N_WORKERS):
        simulation.add_worker(f"worker-{number}", counting(simulation, number, history))
    return simulation, history


def chain_of(simulation: Simulation) -> tuple[str, ...]:
    view = simulation.nodes["coordinator"].view
    return tuple(view.address_of(server) for server in view.placements[0].chain) if view.formed else ()


def check_everything(simulation: Simulation, history: History) -> None:
    """The history is linearizable, everything acknowledged is there once, and all copies are equal."""
    history.check()
    simulation.network = Network()
    simulation.cut.clear()
    simulation.run_for(3.0)
    copies = [simulation.nodes[name].fingerprint(0) for name in chain_of(simulation)]
    assert copies
    for copy in copies:
        assert copy.index == copies[0].index
        assert copy.windows == copies[0].windows
        np.testing.assert_array_equal(copy.tables[0].values, np.ones((1, SIZE), np.int64))


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_counters_are_linearizable_when_messages_are_dropped_repeated_and_reordered(copies: int, seed: int) -> None:
    simulation, history = make(3, copies, seed, TERRIBLE)
    simulation.run(lambda: simulation.finished)
    check_everything(simulation, history)


def at_message(simulation: Simulation, position: int, kind: Any, which: int, when: str) -> KillPoint:
    """Kill the server that has a position in the first chain, around its message number `which` of a kind."""
    seen = iter(range(100_000))

    def decide(node: str, target: str, message: Any) -> str:
        if (
            simulation.killed
            or chain_of(simulation)[position : position + 1] != (node,)
            or not isinstance(message, kind)
        ):
            return ""
        return when if next(seen) == which else ""

    return decide


KILL_POINTS = {
    "applied, not passed on": (Replicate, "before", 0),
    "passed on, not acknowledged": (Updated, "before", 0),
    "acknowledged to the worker": (Updated, "after", 0),
    "tail applied, not acknowledged": (Copied, "before", 1),
    "tail acknowledged": (Copied, "after", 1),
}


@pytest.mark.medium
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.property_long) for seed in (1, 2))])
@pytest.mark.parametrize("point", KILL_POINTS)
@pytest.mark.parametrize("n_servers", [2, 3], ids=["no spare server", "spare server"])
def test_no_acknowledged_push_is_lost_and_none_applied_twice_when_a_server_is_killed(
    point: str, n_servers: int, seed: int
) -> None:
    kind, when, position = KILL_POINTS[point]
    for which in range(1, 30, 4):
        simulation, history = make(n_servers, 2, seed, Network(0.05, 0.1, longest=0.01))
        simulation.kill_point = at_message(simulation, position, kind, which, when)
        simulation.run(lambda simulation=simulation: simulation.finished)
        assert len(simulation.killed) == 1
        check_everything(simulation, history)
        assert len(chain_of(simulation)) == n_servers - 1


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_server_of_a_chain_of_three_may_die_at_any_of_its_messages(position: int) -> None:
    def run(at: int) -> bool:
        simulation, history = make(3, 3, 1, Network())
        simulation.kill_point = at_message(simulation, position, object, at, "before")
        simulation.run(lambda: simulation.finished)
        if not simulation.killed:
            return False
        check_everything(simulation, history)
        return True

    tried = 0
    while run(tried):
        tried += 1
    assert tried > 50


@pytest.mark.parametrize("seed", range(8))
def test_servers_may_die_one_after_another_as_long_as_replacements_were_filled(seed: int) -> None:
    simulation, history = make(2, 2, seed, Network(0.05, 0.05, longest=0.01))
    for name in ("server-2", "server-3"):
        simulation.run_for(0.5)
        simulation.add_server(name)
        simulation.kill(chain_of(simulation)[0])
        simulation.run(lambda name=name: name in chain_of(simulation) and len(chain_of(simulation)) == 2)
    simulation.run(lambda: simulation.finished)
    assert set(chain_of(simulation)) == {"server-2", "server-3"}
    check_everything(simulation, history)


def reading(simulation: Simulation, history: History) -> Program:
    yield lambda core, now: core.update(0, Join(), now, 1000.0)
    while len(history.reads) < SIZE + 40:
        start = simulation.time
        result = yield lambda core, now: core.read(0, Pull("n", 0, 0, -1, None), now, 1000.0)
        if result.outcome.status == Status.DONE:
            history.reads.append(Seen(start, simulation.time, result.answer))


def cut_off(simulation: Simulation, node: str, others: Iterable[str]) -> None:
    simulation.cut |= {frozenset((node, other)) for other in others}


@pytest.mark.parametrize("seed", range(8))
def test_a_replaced_head_gives_no_stale_answers_to_a_reader_that_knows_no_other(seed: int) -> None:
    simulation, history = make(3, 2, seed, Network(longest=0.01))
    simulation.add_worker("reader", reading(simulation, history))
    simulation.run(lambda: len(history.adds) > 6)
    head = chain_of(simulation)[0]
    cut_off(simulation, head, set(simulation.nodes) - {"reader"})
    cut_off(simulation, "reader", set(simulation.nodes) - {head})
    simulation.run(lambda: len(history.adds) == SIZE)
    simulation.run_for(0.5)
    assert head not in chain_of(simulation)
    simulation.cut.clear()
    simulation.run(lambda: simulation.finished)
    check_everything(simulation, history)


@pytest.mark.parametrize("seed", range(16))
def test_what_a_replaced_head_still_passes_on_is_not_applied(seed: int) -> None:
    simulation, history = make(2, 2, seed, Network(0.2, 0.2, longest=0.05))
    simulation.run(lambda: len(history.adds) > 6)
    head = chain_of(simulation)[0]
    cut_off(simulation, head, ["coordinator"])
    simulation.run(lambda: simulation.finished)
    check_everything(simulation, history)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_acknowledged_after_a_joining_server_was_filled_is_on_it(seed: int) -> None:
    """The last server that held everything is lost before it learns that the new one has become part of the chain."""
    simulation, history = make(2, 2, seed, Network(longest=0.01))
    simulation.run(lambda: len(history.adds) > 3)
    survivor, killed = chain_of(simulation)
    simulation.kill(killed)
    simulation.add_server("server-2")
    simulation.run(lambda: chain_of(simulation) == (survivor, "server-2"))
    cut_off(simulation, survivor, ["coordinator", "server-2"])
    simulation.run(lambda: chain_of(simulation) == ("server-2",))
    simulation.run(lambda: simulation.finished)
    check_everything(simulation, history)


@pytest.mark.parametrize("seed", range(8))
def test_a_stopped_server_that_wakes_up_after_its_replacement_does_no_harm(seed: int) -> None:
    simulation, history = make(3, 2, seed, Network(0.02, 0.02, longest=0.01))
    simulation.run(lambda: len(history.adds) > 6)
    head = chain_of(simulation)[0]
    simulation.paused.add(head)
    simulation.run(lambda: chain_of(simulation)[0] != head)
    simulation.paused.clear()
    simulation.run(lambda: simulation.finished)
    check_everything(simulation, history)


def test_the_last_copy_of_a_shard_is_not_given_up_while_its_server_is_silent() -> None:
    simulation, history = make(1, 1, 0, Network())
    simulation.run(lambda: len(history.adds) > 6)
    simulation.paused.add("server-0")
    simulation.run_for(5.0)
    assert simulation.nodes["coordinator"].view.placements == (Placement((0,)),)
    simulation.paused.clear()
    simulation.run(lambda: simulation.finished)
    check_everything(simulation, history)


def test_a_server_that_leaves_is_replaced_without_losing_anything() -> None:
    simulation, history = make(1, 1, 0, Network(0.05, 0.05, longest=0.01))
    simulation.run(lambda: len(history.adds) > 6)
    leaving = simulation.nodes["server-0"]
    leaving.leave(simulation.time)
    simulation.add_server("server-1")
    simulation.run(lambda: leaving.has_left)
    simulation.kill("server-0")
    simulation.run(lambda: simulation.finished)
    assert chain_of(simulation) == ("server-1",)
    check_everything(simulation, history)
