"""The store with servers and workers in processes of their own, killed with SIGKILL or stopped with SIGSTOP."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.process import BaseProcess

import numpy as np
import pytest

from dmlgbm.collectives.parameter_server import Coordinator, Membership, Store, StorePlan, asp, bsp
from tests.reference.linearizability import Add, History, Seen
from tests.reference.server_processes import KillPoint, running, serve, step_forever

pytestmark = pytest.mark.fault

N_WORKERS = 3
N_STEPS = 40
SIZE = N_WORKERS * N_STEPS


class Counting:
    """Workers in threads that add to and read one counter while servers die."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.history = History()
        self.lock = threading.Lock()

    def work(self, rank: int) -> None:
        with Store(self.membership, rank, timeout=30.0) as store:
            store.init("n", np.zeros(SIZE, np.int64))
            for step in range(N_STEPS):
                add = Add(rank * N_STEPS + step, time.monotonic())
                with self.lock:
                    self.history.adds.append(add)
                one = np.zeros(SIZE, np.int64)
                one[add.number] = 1
                store.push("n", one)
                add.end = time.monotonic()
                counts = store.pull("n")
                seen = Seen(add.end, time.monotonic(), counts)
                with self.lock:
                    self.history.reads.append(seen)

    def run(self) -> None:
        with ThreadPoolExecutor(N_WORKERS) as pool:
            list(pool.map(self.work, range(N_WORKERS)))

    def check(self) -> None:
        """The history is linearizable and the final count is exact."""
        self.history.check()
        assert len(self.history.adds) == SIZE
        with Store(self.membership, timeout=30.0) as store:
            np.testing.assert_array_equal(store.pull("n"), np.ones(SIZE, np.int64))


def plan(**changes: object) -> StorePlan:
    return StorePlan(
        **{  # type: ignore[arg-type]
            "n_servers": 2,
            "n_workers": N_WORKERS,
            "n_shards": 1,
            "copies": 2,
            "consistency": asp(),
            "lease_seconds": 1.0,
            **changes,
        }
    )


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def start_servers(stack: ExitStack, coordinator: Coordinator, *points: KillPoint | None) -> list[BaseProcess]:
    """Processes in the order of their numbers: the first is the head of the only chain, the second its tail."""
    processes = []
    for number, point in enumerate(points):
        processes.append(stack.enter_context(running(serve, coordinator.membership.as_dict(), point)))
        wait_for(lambda number=number: len(coordinator.view.addresses) == number + 1)
    return processes


HEAD, TAIL = 0, 1
POINTS: dict[str, tuple[int, KillPoint]] = {
    "head applied, not passed on": (HEAD, ("Replicate", 30, "before")),
    "head passed on, not acknowledged": (HEAD, ("Updated", 30, "before")),
    "head acknowledged": (HEAD, ("Updated", 30, "after")),
    "tail applied, not acknowledged": (TAIL, ("Copied", 30, "before")),
    "tail acknowledged": (TAIL, ("Copied", 30, "after")),
}


@pytest.mark.parametrize("name", POINTS)
def test_no_acknowledged_push_is_lost_and_none_applied_twice_when_a_server_kills_itself(name: str) -> None:
    victim, point = POINTS[name]
    with Coordinator(plan()) as coordinator, ExitStack() as stack:
        processes = start_servers(
            stack, coordinator, *[point if position == victim else None for position in (HEAD, TAIL)]
        )
        counting = Counting(coordinator.membership)
        counting.run()
        counting.check()
        assert coordinator.view.placements[0].chain == (1 - victim,)
        assert processes[victim].exitcode == -signal.SIGKILL
        assert processes[1 - victim].is_alive()


def test_a_replacement_is_filled_from_the_survivor_and_then_survives_it() -> None:
    with Coordinator(plan()) as coordinator, ExitStack() as stack:
        processes = start_servers(stack, coordinator, None, None)
        counting = Counting(coordinator.membership)
        thread = threading.Thread(target=counting.run)
        thread.start()
        wait_for(lambda: len(counting.history.adds) > 20)
        os.kill(processes[0].pid, signal.SIGKILL)
        processes.append(stack.enter_context(running(serve, coordinator.membership.as_dict(), None)))
        wait_for(lambda: coordinator.view.placements[0].chain == (1, 2))
        os.kill(processes[1].pid, signal.SIGKILL)
        thread.join()
        counting.check()
        assert coordinator.view.placements[0].chain == (2,)


def test_a_stopped_head_is_replaced_and_does_no_harm_when_it_goes_on() -> None:
    with Coordinator(plan()) as coordinator, ExitStack() as stack:
        processes = start_servers(stack, coordinator, None, None)
        counting = Counting(coordinator.membership)
        thread = threading.Thread(target=counting.run)
        thread.start()
        wait_for(lambda: len(counting.history.adds) > 20)
        head = processes[coordinator.view.placements[0].head]
        os.kill(head.pid, signal.SIGSTOP)
        wait_for(lambda: len(coordinator.view.placements[0].chain) == 1)
        os.kill(head.pid, signal.SIGCONT)
        thread.join()
        counting.check()
        wait_for(lambda: len(coordinator.view.placements[0].chain) == 2)


def test_a_killed_worker_holds_up_the_others_only_until_its_deadline() -> None:
    layout = plan(n_workers=2, copies=1, n_servers=1, consistency=bsp(), worker_deadline_seconds=1.5)
    with Coordinator(layout) as coordinator, ExitStack() as stack:
        record = coordinator.membership.as_dict()
        stack.enter_context(running(serve, record, None))
        worker = stack.enter_context(running(step_forever, record, 1))
        with Store(coordinator.membership, 0, timeout=30.0) as store:
            store.init("n", np.zeros(4))
            for step in range(20):
                if step == 10:
                    os.kill(worker.pid, signal.SIGKILL)
                store.pull("n", timeout=10.0)
                store.push("n", np.ones(4))
                store.advance()
            assert store.ranks == (0,)
            assert 20 < store.pull("n")[0] <= 40
