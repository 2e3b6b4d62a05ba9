"""Clocks in the simulation: what a worker may read, who waits for whom, and who is not waited for.

Every worker pushes a one for each of its steps to an element of its own, so a read tells exactly which steps of which
worker it saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from dmlgbm.collectives.parameter_server.consistency import Consistency, asp, bsp, ssp
from dmlgbm.collectives.parameter_server.coordinator_core import StorePlan
from dmlgbm.collectives.parameter_server.messages import Advance, Init, Join, KeySpec, Pull, Push, Status
from dmlgbm.collectives.parameter_server.view import rank_of
from dmlgbm.collectives.parameter_server.worker_core import WorkerCore
from tests.reference.simulated_network import Network, Program, Simulation

N_WORKERS = 4
N_STEPS = 8
SHAPE = (N_WORKERS, N_STEPS)
SPEC = KeySpec(SHAPE, 0, "<i8", 1, 0.0, "sum", ())
BAD = Network(drop=0.1, duplicate=0.1, longest=0.02)
PATIENCE = 1000.0


@dataclass
class Record:
    """What happened: reads as (rank, clock, steps seen), and the clock each worker has begun to announce."""

    reads: list[tuple[int, int, npt.NDArray[np.int64]]] = field(default_factory=list)
    clocks: dict[int, int] = field(default_factory=dict)
    expired: list[int] = field(default_factory=list)
    late: int = 0
    largest_gap: int = 0


def stepping(rank: int, record: Record, n_steps: int = N_STEPS) -> Program:
    result = yield lambda core, now: core.update(0, Join(), now, PATIENCE)
    clock = result.outcome.clock
    record.clocks[rank] = clock
    yield lambda core, now: core.update(0, Init("n", 0, SPEC, np.zeros(SHAPE, np.int64).reshape(-1)), now, PATIENCE)
    while len(record.clocks) < N_WORKERS:  # begin together, as a store that is told n_workers does
        yield lambda core, now: core.read(0, Pull("n", 0, 0, -1, None), now, PATIENCE)
    while clock < n_steps:
        result = yield partial(_read_at, clock)
        if result.outcome.status == Status.EXPIRED:
            record.expired.append(rank)
            return
        record.reads.append((rank, clock, result.answer.reshape(SHAPE)))
        record.largest_gap = max(record.largest_gap, clock - min(record.clocks.values()))
        result = yield partial(_push_at, rank, clock)
        record.late += result.outcome.status == Status.LATE
        clock = max(clock + 1, result.outcome.clock)
        record.clocks[rank] = clock
        yield partial(_advance_to, clock)


def _read_at(clock: int, core: WorkerCore, now: float) -> int:
    assert core.view is not None
    oldest = clock - core.view.consistency.staleness
    return core.read(0, Pull("n", 0, clock, oldest, None), now, PATIENCE)


def _push_at(rank: int, clock: int, core: WorkerCore, now: float) -> int:
    one = np.zeros(SHAPE, np.int64)
    one[rank, clock] = 1
    return core.update(0, Push("n", 0, clock, None, one.reshape(-1)), now, PATIENCE)


def _advance_to(clock: int, core: WorkerCore, now: float) -> int:
    return core.update(0, Advance(clock), now, PATIENCE)


def simulate(consistency: Consistency, seed: int, deadline: float = PATIENCE) -> tuple[Simulation, Record]:
    plan = StorePlan(2, 1, 1, 2, consistency, lease_seconds=0.4, worker_deadline_seconds=deadline)
    simulation, record = Simulation(plan, seed, BAD), Record()
    for rank in range(N_WORKERS):
        simulation.add_worker(f"worker-{rank}", stepping(rank, record), rank)
    return simulation, record


def begin(simulation: Simulation, record: Record) -> None:
    simulation.run(lambda: len(record.clocks) == N_WORKERS)


@pytest.mark.parametrize("staleness", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_bounded_staleness_is_never_exceeded_while_a_worker_sleeps(staleness: int, seed: int) -> None:
    simulation, record = simulate(ssp(staleness), seed)
    begin(simulation, record)
    for sleeper in ("worker-2", "worker-0", "worker-2"):
        simulation.paused = {sleeper}
        simulation.run_for(2.0)
        asleep = record.clocks[int(sleeper[-1])]
        assert max(record.clocks.values()) <= max(asleep + staleness + 1, N_STEPS)
    simulation.paused.clear()
    simulation.run(lambda: simulation.finished)
    assert record.largest_gap <= staleness
    for rank, clock, seen in record.reads:
        assert seen[:, : max(0, clock - staleness)].all(), f"rank {rank} at clock {clock} missed an old step: {seen}"
        assert seen[rank, :clock].all(), "a worker sees its own pushes"


@pytest.mark.parametrize("staleness", [1, 3])
def test_workers_stop_exactly_at_the_bound_when_one_never_wakes(staleness: int) -> None:
    simulation, record = simulate(ssp(staleness), 0)
    begin(simulation, record)
    simulation.paused = {"worker-1"}
    simulation.run_for(10.0)
    asleep = record.clocks[1]
    assert {clock for rank, clock in record.clocks.items() if rank != 1} == {asleep + staleness + 1}


@pytest.mark.parametrize("seed", range(6))
def test_bulk_synchronous_reads_hold_exactly_the_steps_that_are_over(seed: int) -> None:
    simulation, record = simulate(bsp(), seed)
    simulation.run(lambda: simulation.finished)
    assert len(record.reads) == N_WORKERS * N_STEPS
    for _, clock, seen in record.reads:
        expected = np.zeros(SHAPE, np.int64)
        expected[:, :clock] = 1
        np.testing.assert_array_equal(seen, expected)


def test_asynchronous_workers_do_not_wait_for_a_sleeping_one() -> None:
    simulation, record = simulate(asp(), 0)
    begin(simulation, record)
    simulation.paused = {"worker-3"}
    simulation.run(lambda: sorted(record.clocks.values())[1:] == [N_STEPS] * 3, limit=20.0)
    assert record.clocks[3] < N_STEPS


@pytest.mark.parametrize("seed", range(6))
def test_backup_workers_are_not_waited_for_and_what_they_push_too_late_is_dropped(seed: int) -> None:
    simulation, record = simulate(bsp(backup_workers=1), seed)
    begin(simulation, record)
    simulation.paused = {"worker-0"}
    simulation.run(lambda: sorted(record.clocks.values())[1:] == [N_STEPS] * 3)
    simulation.paused.clear()
    simulation.run(lambda: simulation.finished)
    final = record.reads[-1][2]
    for _, clock, seen in record.reads:
        n_workers = seen.sum(axis=0)
        assert (n_workers[:clock] >= N_WORKERS - 1).all()
        started = n_workers > 0
        longer = final if final.sum() >= seen.sum() else seen
        np.testing.assert_array_equal(seen[:, started], longer[:, started])  # a step is applied once, for everybody
    assert record.late > 0


def test_a_dead_worker_holds_up_the_others_only_until_its_deadline() -> None:
    simulation, record = simulate(bsp(), 0, deadline=2.0)
    begin(simulation, record)
    simulation.kill("worker-1")
    died = simulation.time
    simulation.run(lambda: simulation.finished)
    assert simulation.time > died + 1.0
    assert {rank_of(worker) for worker in simulation.nodes["coordinator"].view.workers} == {0, 2, 3}


def test_a_worker_that_was_taken_for_dead_is_told_so() -> None:
    simulation, record = simulate(ssp(1), 0, deadline=1.0)
    begin(simulation, record)
    simulation.paused = {"worker-1"}
    simulation.run(lambda: sorted(record.clocks.values())[1:] == [N_STEPS] * 3)
    simulation.paused.clear()
    sleeper = simulation.nodes["worker-1"]
    simulation.run(lambda: sleeper.expired)
    # A server or the new view tells it, whichever comes first.
    assert record.expired == [1] or [result.outcome.status for result in sleeper.results] == [Status.EXPIRED]


def test_a_newcomer_starts_at_the_clock_of_the_others_and_is_waited_for() -> None:
    simulation, record = simulate(bsp(), 0)
    begin(simulation, record)
    simulation.paused = {"worker-0"}
    simulation.run_for(1.0)
    newcomer = Record(clocks=dict.fromkeys(range(N_WORKERS), 0))
    simulation.add_worker("newcomer", _joining(newcomer), 7)
    simulation.run(lambda: 7 in newcomer.clocks)
    assert newcomer.clocks[7] == max(record.clocks.values())
    simulation.paused.clear()
    simulation.run(lambda: len(simulation.nodes["coordinator"].view.workers) == 5)
    simulation.run_for(1.0)
    assert max(record.clocks.values()) <= newcomer.clocks[7] + 1 < N_STEPS


def _joining(record: Record) -> Program:
    result = yield lambda core, now: core.update(0, Join(), now, PATIENCE)
    record.clocks[7] = result.outcome.clock
