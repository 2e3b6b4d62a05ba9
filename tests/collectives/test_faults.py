"""One rank dies, stops, aborts or goes astray: every other one gets a clear error in time, and nothing stays behind."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dmlgbm.collectives import (
    AbortedError,
    ClosedError,
    Communicator,
    JoinOptions,
    MismatchError,
    PeerLostError,
    Reducer,
)
from dmlgbm.collectives.joining.launch import Outcome, launch_processes, run_processes, run_threads
from dmlgbm.collectives.session import PROBE_SECONDS
from tests.collectives import ranks
from tests.reference.faults import Fault

KINDS = {
    "tcp": ("tcp", JoinOptions(timeout=20)),
    "tcp in python": ("tcp", JoinOptions(timeout=20, native=False)),
    "shared memory": ("unix", JoinOptions(timeout=20, shared_memory=True)),
}


def survivors(outcomes: list[Outcome], victim: int) -> list[tuple[str, str, float]]:
    assert all(outcome.error is None for outcome in outcomes if outcome.rank != victim), outcomes
    return [outcome.result for outcome in outcomes if outcome.rank != victim]


def experiences(
    victim: int, number: signal.Signals, kind: tuple[str, JoinOptions], limit: float, folder: Path
) -> list[tuple[str, str, float]]:
    """How the others learn of a signal to one rank; in one of three attempts, all within `limit` seconds.

    On a machine whose cores are taken by others a process may get none for a second: that proves nothing.
    """
    transport, options = kind
    for attempt in range(3):
        arguments = (victim, number, folder / f"moment {attempt}")
        outcomes = launch_processes(
            ranks.signal_self, 4, arguments, transport=transport, options=options, timeout=ranks.STARTING_SECONDS
        )
        assert outcomes[victim].exit_code == -signal.SIGKILL
        found = survivors(outcomes, victim)
        if max(seconds for _, _, seconds in found) < limit:
            return found
    raise AssertionError(f"not within {limit} s in three attempts: {found}")


@pytest.mark.fault
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_all_others_raise_within_a_second_after_one_is_killed(kind: str, tmp_path: Path) -> None:
    for name, text, _ in experiences(2, signal.SIGKILL, KINDS[kind], 1.0, tmp_path):
        assert name == "PeerLostError"
        assert "rank 2" in text
        assert "all_reduce" in text


@pytest.mark.fault
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_all_others_raise_within_a_second_after_the_deadline_when_one_is_stopped(kind: str, tmp_path: Path) -> None:
    transport, options = KINDS[kind]
    deadline = 2.0
    hasty = replace(options, timeout=deadline)
    for name, text, seconds in experiences(1, signal.SIGSTOP, (transport, hasty), deadline + 1.0, tmp_path):
        assert name == "CollectiveTimeout"
        assert "[1]" in text
        assert "sequence" in text
        assert seconds > deadline / 2  # the others may have begun to wait before it stopped


@pytest.mark.fault
@pytest.mark.parametrize("point", ["before", "amid", "after"])
@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "all_gather"])
def test_a_kill_at_any_point_of_any_collective_reaches_everybody(operation: str, point: str) -> None:
    sequence = {"all_reduce": 4, "broadcast": 5, "all_gather": 6}[operation]
    fault = Fault(rank=1, operation=operation, sequence=sequence, point=point)
    outcomes = launch_processes(ranks.fault_at, 3, (fault,), options=JoinOptions(timeout=15), timeout=60)
    assert outcomes[1].exit_code == -signal.SIGKILL
    for name, text in survivors(outcomes, 1):
        assert name == "PeerLostError"
        assert "rank 1" in text


@pytest.mark.processes
def test_abort_from_another_thread_frees_every_rank() -> None:
    for result in run_processes(ranks.abort_from_thread, 3, options=JoinOptions(timeout=20)):
        name, text, seconds = result
        assert name == "AbortedError"
        assert "the disk is full" in text
        assert "rank 1" in text
        assert seconds < 1.5


def test_two_sessions_side_by_side_do_not_notice_each_other() -> None:
    failures: list[str] = []

    def failing(communicator: Communicator) -> None:
        communicator.barrier()
        if communicator.rank == 0:
            raise KeyError("one rank of one session")
        communicator.barrier()

    def run_failing() -> None:
        with pytest.raises(KeyError):
            run_threads(failing, 3, transport="tcp")
        failures.append("seen")

    def working(communicator: Communicator) -> None:
        until = time.monotonic() + 0.5
        while communicator.all_reduce(np.array([time.monotonic() < until]), "and")[0]:
            assert (communicator.all_reduce(np.arange(3000)) == 3 * np.arange(3000)).all()

    thread = threading.Thread(target=run_failing)
    thread.start()
    run_threads(working, 3, transport="tcp")
    thread.join()
    assert failures == ["seen"]


@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_a_rank_that_fails_outside_a_call_frees_the_others(transport: str) -> None:
    seen: list[str] = []

    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise KeyError("own code")
        with pytest.raises(AbortedError, match="own code") as caught:
            communicator.all_reduce(np.ones(10))
        assert caught.value.origin == 1
        seen.append("seen")

    with pytest.raises(KeyError):
        run_threads(work, 3, transport=transport)
    assert len(seen) == 2


def test_a_rank_that_closes_early_is_named() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 2:
            communicator.barrier()
            return
        # A rank that is late in the first barrier may hear there already that the second one is in vain.
        with pytest.raises(PeerLostError, match="rank 2 closed") as caught:
            meet_twice(communicator)
        assert caught.value.rank == 2

    run_threads(work, 3, transport="tcp")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda c: c.all_reduce(np.ones(10 + c.rank)),
        lambda c: c.all_reduce(np.ones(10, "f4" if c.rank else "f8")),
        lambda c: c.all_reduce(np.ones(10), "max" if c.rank else "sum"),
        lambda c: c.broadcast(np.ones(10), c.rank),
        lambda c: c.broadcast(np.ones(10), (c.rank + 1) % c.world_size),
        lambda c: c.all_reduce(np.ones(10)) if c.rank else c.all_gather(np.ones(10)),
        lambda c: c.barrier() if c.rank else c.all_gather(np.ones(10)),
        lambda c: (
            c.send(np.ones(3), 0, tag=1) if c.rank == 1 else c.recv(np.ones(3), 1, tag=2) if c.rank == 0 else None
        ),
    ],
)
@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_ranks_that_do_not_do_the_same_are_told_at_once(wrong, transport: str) -> None:
    def work(communicator: Communicator) -> None:
        wrong(communicator)
        communicator.barrier()

    run_threads(meet_twice, 3, transport=transport)  # compiles what is not compiled yet
    began = time.monotonic()
    with pytest.raises(MismatchError, match=r"rank \d and rank \d"):
        run_threads(work, 3, transport=transport)
    assert time.monotonic() - began < 5


def meet_twice(communicator: Communicator) -> None:
    communicator.barrier()
    communicator.barrier()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda c: c.broadcast(np.ones(3), 7), "root must be a rank from 0 to 2"),
        (lambda c: c.all_reduce(np.ones(3), "median"), "op must be one of"),
        (lambda c: c.all_reduce(np.ones(3), "and"), "does not exist for dtype float64"),
        (lambda c: c.all_reduce(np.array([object()])), "Python objects cannot be sent"),
        (lambda c: c.all_reduce(np.ones(3), algorithm="tree"), "algorithm for all_reduce must be one of"),
        (lambda c: c.all_reduce(np.ones(3), timeout=float("inf")), "finite number of seconds"),
        (lambda c: c.reduce_scatter(np.ones(7)), "no 3 equal parts"),
        (lambda c: c.reduce_scatter(np.ones(7), counts=[1, 2, 3]), "add up to 7"),
        (lambda c: c.all_to_all(np.ones(4)), "one entry a rank"),
        (lambda c: c.send(np.ones(4), c.rank), "is this rank itself"),
        (lambda c: c.all_reduce(np.ones(3), out=np.ones(4)), "out must be an array"),
    ],
)
def test_bad_arguments_are_an_error_of_the_caller_and_nobody_waits_for_it(wrong, message: str) -> None:
    def work(communicator: Communicator) -> None:
        if communicator.rank == 1:
            communicator.barrier()
            with pytest.raises((TypeError, ValueError), match=message):
                wrong(communicator)
            with pytest.raises(AbortedError, match=message):
                communicator.barrier()
        else:
            with pytest.raises(AbortedError, match=message):
                meet_twice(communicator)

    run_threads(work, 3, transport="tcp", options=JoinOptions(timeout=10))


def test_a_function_of_the_caller_that_fails_ends_the_session() -> None:
    def fail(left: object, right: object) -> np.ndarray:
        raise ZeroDivisionError("in the reducer")

    def work(communicator: Communicator) -> None:
        communicator.all_reduce(np.ones(3), Reducer("failing", fail))

    with pytest.raises(ZeroDivisionError):
        run_threads(work, 3, transport="tcp")


def test_a_closed_communicator_says_so() -> None:
    def work(communicator: Communicator) -> None:
        communicator.barrier()
        communicator.close()
        communicator.close()
        with pytest.raises(ClosedError):
            communicator.barrier()
        with pytest.raises(ClosedError):
            communicator.start(communicator.barrier)

    run_threads(work, 2, transport="tcp")


def test_a_failed_call_that_was_started_raises_when_waited_for() -> None:
    def work(communicator: Communicator) -> None:
        handles = [communicator.start(communicator.all_reduce, np.ones(k + communicator.rank)) for k in range(3)]
        for handle in handles:
            with pytest.raises(MismatchError):
                handle.wait(5)

    run_threads(work, 2, transport="tcp")


@pytest.mark.processes
def test_a_process_that_fails_is_reported_with_its_rank() -> None:
    with pytest.raises(Exception, match="rank 1 ended with") as caught:
        run_processes(ranks.fail_on, 2, (1,))
    assert "on purpose" in str(caught.value)


def test_closing_waits_for_started_calls_and_not_for_itself() -> None:
    def work(communicator: Communicator) -> int:
        def late() -> int:
            time.sleep(0.3)
            return int(communicator.all_reduce(np.ones(1, np.int64))[0])

        handle = communicator.start(late)
        communicator.close()
        return handle.wait(60.0)

    assert run_threads(work, 2) == [2, 2]


def broadcast_then_answer(communicator: Communicator) -> float:
    """The root is late; what the others wait for lies before their answers on its connections."""
    if communicator.rank == 0:
        time.sleep(2 * PROBE_SECONDS)
    told = communicator.broadcast(np.full(3, 7.0), 0)
    if communicator.rank:
        communicator.send(told, 0)
        return float(told[0])
    return float(sum(communicator.recv(np.empty(3), peer)[0] for peer in range(1, communicator.world_size)))


def swap_with_late_neighbour(communicator: Communicator) -> float:
    """Messages between two ranks while a third is late for a collective."""
    rank, other = communicator.rank, communicator.rank ^ 1
    if rank == 2:
        time.sleep(2 * PROBE_SECONDS)
    total = communicator.reduce(np.ones(3), root=3)
    assert (total is None) == (rank != 3)
    found = communicator.send_recv(np.full(2, float(rank)), other, np.empty(2), other)
    return float(communicator.all_reduce(found)[0])


@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_a_late_rank_may_receive_messages_after_a_collective(transport: str) -> None:
    assert run_threads(broadcast_then_answer, 3, transport=transport) == [14.0, 7.0, 7.0]
    assert run_threads(swap_with_late_neighbour, 4, transport=transport) == [6.0] * 4


@pytest.mark.parametrize("n_before", [0, 2])
@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_a_message_and_a_collective_that_wait_for_each_other_are_told_at_once(transport: str, n_before: int) -> None:
    def work(communicator: Communicator) -> None:
        for _ in range(n_before):
            communicator.barrier()
        if communicator.rank == 0:
            communicator.recv(np.empty(3), 1)
        else:
            communicator.broadcast(np.empty(3), 0)

    with pytest.raises(MismatchError, match=r"rank 0 is in send .*rank 1 in broadcast"):
        run_threads(work, 2, transport=transport, options=JoinOptions(timeout=20))
