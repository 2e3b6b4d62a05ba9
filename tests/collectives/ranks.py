"""Functions of a communicator that tests run on every rank, importable by new processes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from dmlgbm.collectives import CollectiveError, Communicator, Reducer
from dmlgbm.collectives.frames import Operation
from dmlgbm.collectives.schedules.choice import ALGORITHMS
from tests.collectives import oracle
from tests.reference.faults import Fault, inject

# Until all processes of a test have imported what they need, on a busy machine.
STARTING_SECONDS = 60.0

BETTER_SPLIT = Reducer("better split", oracle.better_split)


def sizes_around(world_size: int) -> list[int]:
    return sorted({0, 1, world_size - 1, world_size, 4097})


def check_reductions(communicator: Communicator, dtypes: list[Any], sizes: list[int]) -> None:
    """Every operation, type, size and algorithm gives the bits of the reference."""
    rank, world_size = communicator.rank, communicator.world_size
    for dtype in dtypes:
        for size in sizes:
            arrays = [oracle.values_of(each, size, dtype) for each in range(world_size)]
            for operation in oracle.operations_for(dtype):
                expected = oracle.reduced(arrays, operation)
                for algorithm in (None, *ALGORITHMS[Operation.ALL_REDUCE]):
                    found = communicator.all_reduce(arrays[rank], operation, algorithm=algorithm)
                    assert oracle.same_bits(found, expected), (dtype, size, operation, algorithm)
                for algorithm in (None, *ALGORITHMS[Operation.REDUCE]):
                    at_root = communicator.reduce(arrays[rank], operation, world_size - 1, algorithm=algorithm)
                    if rank == world_size - 1:
                        assert at_root is not None
                        assert oracle.same_bits(at_root, expected), (dtype, size, operation, algorithm)
                    else:
                        assert at_root is None
                check_reduce_scatter(communicator, arrays[rank], operation, expected)


def check_reduce_scatter(communicator: Communicator, array: Any, operation: str, expected: Any) -> None:
    world_size = communicator.world_size
    bounds = sorted([0, len(array), *(len(array) * (k * k) // (world_size * world_size) for k in range(1, world_size))])
    counts = np.diff(bounds)
    part = slice(bounds[communicator.rank], bounds[communicator.rank + 1])
    for algorithm in ALGORITHMS[Operation.REDUCE_SCATTER]:
        found = communicator.reduce_scatter(array, operation, counts.tolist(), algorithm=algorithm)
        assert oracle.same_bits(found, expected[part]), (operation, algorithm)


def check_movements(communicator: Communicator, dtypes: list[Any], sizes: list[int]) -> None:
    """Everything that only moves arrays moves every type unchanged."""
    rank, world_size = communicator.rank, communicator.world_size
    for dtype in dtypes:
        for size in sizes:
            arrays = [oracle.values_of(each, size, dtype) for each in range(world_size)]
            own = arrays[rank].copy()
            own.flags.writeable = False
            stacked = np.stack(arrays).astype(dtype)
            for algorithm in ALGORITHMS[Operation.ALL_GATHER]:
                assert oracle.same_bits(communicator.all_gather(own, algorithm=algorithm), stacked)
            for root in {0, world_size - 1}:
                for algorithm in ALGORITHMS[Operation.BROADCAST]:
                    assert oracle.same_bits(communicator.broadcast(own, root, algorithm=algorithm), arrays[root])
                gathered = communicator.gather(own, root)
                assert (gathered is None) == (rank != root)
                assert gathered is None or oracle.same_bits(gathered, stacked)
                scattered = communicator.scatter(stacked if rank == root else None, np.empty(size, dtype), root)
                assert oracle.same_bits(scattered, own)
            swapped = communicator.all_to_all(np.stack([np.roll(own, peer) for peer in range(world_size)]))
            assert oracle.same_bits(swapped, np.stack([np.roll(array, rank) for array in arrays]))
            check_unequal(communicator, arrays)


def check_unequal(communicator: Communicator, arrays: list[Any]) -> None:
    rank, world_size = communicator.rank, communicator.world_size
    parts = [array[: len(array) * each // world_size] for each, array in enumerate(arrays)]
    for found, expected in zip(communicator.all_gather_unequal(parts[rank]), parts, strict=True):
        assert oracle.same_bits(found, expected)
    outgoing = [arrays[rank][: (peer + rank) % 3] for peer in range(world_size)]
    for peer, found in enumerate(communicator.all_to_all_unequal(outgoing)):
        assert oracle.same_bits(found, arrays[peer][: (rank + peer) % 3])


def check_the_rest(communicator: Communicator) -> None:
    """Point to point, user functions, handles, out, scalars and order of calls."""
    rank, world_size = communicator.rank, communicator.world_size
    splits = [oracle.values_of(each, 50, oracle.SPLIT) for each in range(world_size)]
    best = splits[0]
    for other in splits[1:]:
        best = oracle.better_split(best, other)
    assert oracle.same_bits(communicator.all_reduce(splits[rank], BETTER_SPLIT), best)
    for algorithm in ALGORITHMS[Operation.BARRIER]:
        communicator.barrier(algorithm=algorithm)
    handles = [communicator.start(communicator.all_reduce, np.full(3, k + rank)) for k in range(20)]
    total = communicator.all_reduce(np.float64(rank))  # after the started ones, although called before they ended
    assert total.shape == ()
    assert total == world_size * (world_size - 1) / 2
    for k, handle in enumerate(handles):
        assert handle.done()
        assert (handle.wait() == world_size * k + world_size * (world_size - 1) // 2).all()
    array = np.arange(5000.0).reshape(50, 100) + rank
    assert communicator.all_reduce(array, out=array) is array
    assert (array == world_size * np.arange(5000.0).reshape(50, 100) + world_size * (world_size - 1) / 2).all()
    assert (communicator.all_reduce(np.arange(12).reshape(3, 4).T) == world_size * np.arange(12).reshape(3, 4).T).all()
    if world_size > 1:
        after, before = (rank + 1) % world_size, (rank - 1) % world_size
        found = communicator.send_recv(np.full(70_000, rank, "i4"), after, np.empty(70_000, "i4"), before, tag=7)
        assert (found == before).all()
        if rank == 0:
            communicator.send(np.arange(9.0), world_size - 1)
        if rank == world_size - 1:
            assert (communicator.recv(np.empty(9), 0) == np.arange(9.0)).all()
    communicator.barrier()


def check_groups(communicator: Communicator) -> None:
    """Groups count their ranks by key, and work side by side with each other and with the whole."""
    rank, world_size = communicator.rank, communicator.world_size
    group = communicator.split(rank % 2, key=-rank)
    assert group is not None
    members = [other for other in reversed(range(world_size)) if other % 2 == rank % 2]
    with group:
        assert (group.rank, group.world_size) == (members.index(rank), len(members))
        assert (group.all_gather(np.array([rank]))[:, 0] == members).all()
        assert communicator.all_reduce(np.array([1]))[0] == world_size
        assert group.all_reduce(np.array([rank]))[0] == sum(members)
    alone = communicator.split(0 if rank == 0 else None)
    assert (alone is None) == (rank != 0)
    if alone is not None:
        with alone:
            assert alone.world_size == 1
    communicator.barrier()


def check_everything(communicator: Communicator, dtypes: list[Any], big: bool = False) -> None:
    sizes = sizes_around(communicator.world_size) + [4095, 4096] * big
    check_reductions(communicator, dtypes, sizes)
    check_movements(communicator, dtypes, sizes)
    check_the_rest(communicator)
    check_groups(communicator)
    if big:
        check_reductions(communicator, [np.dtype("d")], [(1 << 20) // 8])
        check_movements(communicator, [np.dtype("u1")], [1 << 20])


# Faults. Each returns how the rank experienced it.


def experience(communicator: Communicator, seconds: float = 30.0) -> tuple[str, str]:
    """Reduce until an error comes; its class and its text."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            communicator.all_reduce(np.ones(8192))
        except CollectiveError as error:
            return type(error).__name__, str(error)
    raise AssertionError("no error came")


def signal_self(communicator: Communicator, victim: int, number: int, moment: Path) -> Any:
    """How long after the signal an error came, and which."""
    processes = communicator.all_gather(np.array(os.getpid()), timeout=STARTING_SECONDS)
    communicator.all_reduce(np.ones(8192), timeout=STARTING_SECONDS)  # loads or compiles its kernels
    communicator.barrier(timeout=STARTING_SECONDS)
    if communicator.rank == victim:
        time.sleep(0.3)
        moment.write_text(repr(time.monotonic()))  # of a clock that all processes of the machine share
        os.kill(os.getpid(), number)
    name, text = experience(communicator)
    seconds = time.monotonic() - float(moment.read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(processes[victim], signal.SIGKILL)  # a stopped one would never end
    return name, text, seconds


def fault_at(communicator: Communicator, fault: Fault) -> Any:
    inject(communicator, fault)
    communicator.barrier()
    try:
        for _ in range(3):
            communicator.all_reduce(np.ones(100_000))
            communicator.broadcast(np.ones(100_000), 1)
            communicator.all_gather(np.ones(1000))
    except CollectiveError as error:
        return type(error).__name__, str(error)
    return None


def abort_from_thread(communicator: Communicator) -> Any:
    communicator.barrier()
    if communicator.rank == 1:
        threading.Timer(0.3, communicator.abort, ["the disk is full"]).start()
    began = time.monotonic()
    try:
        if communicator.rank == 2:
            time.sleep(0.6)
            communicator.barrier()  # may still succeed: everybody had come before the end
        communicator.barrier()
    except CollectiveError as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return None


def nothing(communicator: Communicator) -> None:
    communicator.barrier()


def fail_on(communicator: Communicator, rank: int) -> None:
    if communicator.rank == rank:
        raise OSError("failed on purpose")
    communicator.barrier()
