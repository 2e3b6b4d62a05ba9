"""Kernels of the caller run prepared collectives by themselves: same bits, same errors, and no need of the GIL."""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives import (
    AbortedError,
    CollectiveError,
    CollectiveTimeout,
    Communicator,
    JoinOptions,
    MismatchError,
)
from dmlgbm.collectives.joining.launch import run_processes, run_threads
from dmlgbm.collectives.kernel_calls import KernelCalls, PreparedCall
from dmlgbm.collectives.kernels.layout import DONE
from dmlgbm.collectives.kernels.program_loop import run_again_over_sockets
from dmlgbm.collectives.kernels.system_calls import new_scratch
from tests.collectives import kernel_rounds, ranks
from tests.collectives.kernel_rounds import many_after

HOLD_SECONDS = 1.0


ROUNDS = {"tcp": kernel_rounds.rounds_over_sockets, "memory": kernel_rounds.rounds_over_rings}


def soon(seconds: float = 20.0) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


def run_rounds(communicator: Communicator, transport: str, n_rounds: int) -> Any:
    rank, world_size = communicator.rank, communicator.world_size
    values = np.arange(7 * world_size) + rank
    part = np.zeros(7, np.int64)
    calls = communicator.kernel_calls()
    sums = calls.reduce_scatter(values)
    everybody = calls.all_gather(part, out=np.empty((world_size, 7), np.int64))
    for _ in range(2):  # calls from Python and from kernels take turns
        with calls:
            arguments = (sums.arguments, sums.result, part, everybody.arguments, n_rounds)
            calls.finish(ROUNDS[transport](*arguments, soon()))
            values += everybody.result.reshape(-1)
        assert communicator.all_reduce(np.array([1]))[0] == world_size
    return values


@pytest.mark.medium
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("transport", ROUNDS)
def test_kernels_run_several_prepared_collectives_in_turns(transport: str, world_size: int) -> None:
    expected = [np.arange(7 * world_size) + rank for rank in range(world_size)]
    for _ in range(2):
        total = np.sum(expected, axis=0) % 1000
        expected = [values + total for values in expected]
    found = run_threads(run_rounds, world_size, (transport, 5), transport=transport)
    assert (np.array(found) == expected).all()


def test_a_prepared_all_reduce_gives_the_bits_of_the_call() -> None:
    def work(communicator: Communicator) -> None:
        array = np.random.default_rng(communicator.rank).normal(size=5000)
        calls = communicator.kernel_calls()
        prepared = calls.all_reduce(array, "sum", out=np.empty(5000))
        with calls:
            calls.finish(run_again_over_sockets(prepared.arguments, soon()))
        assert prepared.result.tobytes() == communicator.all_reduce(array).tobytes()

    run_threads(work, 3, transport="tcp")


def run_twice(calls: KernelCalls, prepared: PreparedCall) -> None:
    for _ in range(2):
        calls.finish(run_again_over_sockets(prepared.arguments, soon()))


def test_an_abort_frees_a_kernel_and_every_other_rank() -> None:
    def work(communicator: Communicator) -> None:
        calls = communicator.kernel_calls()
        prepared = calls.all_reduce(np.ones(10))
        if communicator.rank == 0:
            threading.Timer(0.3, communicator.abort, ["the disk is full"]).start()
        if communicator.rank == 2:
            time.sleep(0.6)
        began = time.monotonic()
        with pytest.raises(AbortedError, match="the disk is full"), calls:
            run_twice(calls, prepared)  # the first may succeed on rank 2: what it needs had been sent before the end
        assert time.monotonic() - began < 5

    run_threads(work, 3, transport="tcp", options=JoinOptions(timeout=30))


def run_after_an_abort(communicator: Communicator, calls: KernelCalls, prepared: PreparedCall) -> None:
    communicator.abort("by its own thread")
    # Descriptors opened now get the numbers of the closed connections.
    pairs = [socket.socketpair() for _ in range(4)]
    status = run_again_over_sockets(prepared.arguments, soon(0.5))
    ends = [end for pair in pairs for end in pair]
    for end in ends:
        end.setblocking(False)
        with pytest.raises(BlockingIOError):
            end.recv(1)
    for end in ends:
        end.close()
    calls.finish(status)


def test_a_kernel_that_is_run_after_an_abort_touches_no_descriptor() -> None:
    def work(communicator: Communicator) -> None:
        calls = communicator.kernel_calls()
        prepared = calls.all_reduce(np.ones(10))
        communicator.barrier()
        with pytest.raises(AbortedError, match="own thread"), calls:
            run_after_an_abort(communicator, calls, prepared)

    run_threads(work, 2, transport="tcp", options=JoinOptions(timeout=10))


def test_a_kernel_whose_peers_do_not_come_ends_at_the_deadline() -> None:
    over = threading.Event()

    def work(communicator: Communicator) -> None:
        calls = communicator.kernel_calls()
        prepared = calls.all_reduce(np.ones(10))
        if communicator.rank == 1:
            over.wait(20)
            return
        try:
            with pytest.raises(CollectiveTimeout, match=r"all_reduce \(sequence 0\).*\[1\]"), calls:
                calls.finish(run_again_over_sockets(prepared.arguments, soon(0.2)), timeout=0.3)
        finally:
            over.set()

    run_threads(work, 2, transport="tcp")


def test_ranks_whose_kernels_do_not_do_the_same_are_told() -> None:
    def work(communicator: Communicator) -> None:
        calls = communicator.kernel_calls()
        prepared = calls.all_reduce(np.ones(10 + communicator.rank))
        with calls:
            calls.finish(run_again_over_sockets(prepared.arguments, soon()))

    with pytest.raises(MismatchError, match=r"rank \d and rank \d"):
        run_threads(work, 2, transport="tcp")


def test_a_kernel_that_is_left_half_way_ends_the_session() -> None:
    def work(communicator: Communicator) -> None:
        calls = communicator.kernel_calls()
        prepared = calls.all_reduce(np.ones(10))
        if communicator.rank == 1:
            with pytest.raises(CollectiveError):
                communicator.recv(np.empty(3), 0)
            return
        with pytest.raises(AbortedError, match="did not finish a collective"), calls:
            assert run_again_over_sockets(prepared.arguments, soon(0.1)) != DONE

    run_threads(work, 2, transport="tcp", options=JoinOptions(timeout=10))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda calls: calls.all_reduce(np.ones((4, 4))[:, ::2]), "must be a contiguous array"),
        (lambda calls: calls.all_reduce([1, 2]), "must be a contiguous array"),
        (lambda calls: calls.all_reduce(np.ones(3), ranks.BETTER_SPLIT), "no kernel combines"),
        (lambda calls: calls.reduce_scatter(np.ones(3)), "no 2 equal parts"),
    ],
)
def test_what_a_kernel_cannot_run_is_refused_and_nobody_waits(wrong: Any, message: str) -> None:
    def work(communicator: Communicator) -> None:
        calls = communicator.kernel_calls()
        if communicator.rank == 1:
            with pytest.raises((TypeError, ValueError), match=message):
                wrong(calls)
        with pytest.raises(AbortedError, match=message):
            communicator.recv(np.empty(3), 1 - communicator.rank)

    run_threads(work, 2, transport="tcp", options=JoinOptions(timeout=10))


def test_a_transport_without_kernels_says_so() -> None:
    def work(communicator: Communicator) -> None:
        communicator.kernel_calls()

    with pytest.raises(TypeError, match="has no kernels"):
        run_threads(work, 2, transport="tcp", options=JoinOptions(native=False))


def run_beside_a_holder(communicator: Communicator) -> float:
    """Seconds between the last of many collectives and the moment at which another thread gives the GIL back."""
    array, scratch = np.ones(8192), new_scratch()
    calls = communicator.kernel_calls()
    prepared = calls.all_reduce(array)
    with calls:
        calls.finish(many_after(prepared.arguments, 0, soon(), scratch)[0])  # compiles
    released: list[int] = []

    def hold() -> None:
        time.sleep(0.05)
        ctypes.PyDLL(None).usleep(int(HOLD_SECONDS * 1e6))  # called with the GIL held
        released.append(time.monotonic_ns())

    thread = threading.Thread(target=hold)
    communicator.barrier()
    thread.start()
    with calls:
        status, done = many_after(prepared.arguments, time.monotonic_ns() + 150_000_000, soon(), scratch)
        thread.join()
        calls.finish(status)
    assert status == DONE
    return (released[0] - done) / 1e9


@pytest.mark.processes
def test_collectives_go_on_while_another_thread_of_every_rank_holds_the_gil() -> None:
    assert min(run_processes(run_beside_a_holder, 2)) > 0
