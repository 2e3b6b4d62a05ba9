"""Every collective on every transport gives the bits of the plain reference, on worlds of one to nine ranks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dmlgbm.collectives import CollectiveError, Communicator, JoinOptions, Listener, Rendezvous, join
from dmlgbm.collectives.joining.launch import run_processes, run_threads
from dmlgbm.collectives.spinning import spin_for
from dmlgbm.gbdt.system.cores import usable_cores
from tests.collectives import oracle, ranks

FEW_TYPES = [np.dtype("l"), np.dtype("d"), oracle.SPLIT]
SMALL_BUFFERS = 4096
PATHS = {
    "memory": ("memory", JoinOptions()),
    "tcp": ("tcp", JoinOptions()),
    "tcp in python": ("tcp", JoinOptions(native=False)),
    "unix": ("unix", JoinOptions()),
    "ipv6": ("tcp6", JoinOptions()),
    "small buffers": ("tcp", JoinOptions(buffer_bytes=SMALL_BUFFERS)),
    "small buffers in python": ("tcp", JoinOptions(buffer_bytes=SMALL_BUFFERS, native=False)),
    "small unix buffers": ("unix", JoinOptions(buffer_bytes=SMALL_BUFFERS)),
}
# Where a rank looks for messages for a while before it sleeps; worlds that fit the cores do so by themselves.
SPINNING = {
    "memory": JoinOptions(spin_microseconds=100),
    "tcp": JoinOptions(spin_microseconds=100),
    "unix": JoinOptions(spin_microseconds=100, buffer_bytes=SMALL_BUFFERS),
}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("path", "world_size"),
    [*((path, 3) for path in PATHS), ("memory", 1), ("memory", 2), ("memory", 5), ("tcp", 1), ("tcp", 2), ("tcp", 5)],
)
def test_every_collective_gives_the_bits_of_the_reference(path: str, world_size: int) -> None:
    transport, options = PATHS[path]
    run_threads(ranks.check_everything, world_size, (FEW_TYPES,), transport=transport, options=options)


@pytest.mark.parametrize("transport", SPINNING)
def test_ranks_that_spin_give_the_same_bits(transport: str) -> None:
    run_threads(ranks.check_everything, 3, (FEW_TYPES,), transport=transport, options=SPINNING[transport])


def test_ranks_spin_only_where_each_has_a_core() -> None:
    cores = usable_cores()
    assert [spin_for(n) > 0 for n in (0, 1, cores + 1)] == [False, False, False]
    assert spin_for(cores) > 0 or cores == 1


@pytest.mark.parametrize("microseconds", [-1, 10_001])
def test_a_time_to_spin_that_makes_no_sense_is_refused(microseconds: int) -> None:
    with pytest.raises(ValueError, match="spin_microseconds must be from 0 to 10000"):
        JoinOptions(spin_microseconds=microseconds)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("world_size", range(1, 10))
def test_every_collective_type_and_size_on_worlds_of_one_to_nine(path: str, world_size: int) -> None:
    transport, options = PATHS[path]
    # All types over nine ranks take minutes, and no schedule looks at both: larger worlds meet a type of each kind.
    types = FEW_TYPES if world_size > 5 else oracle.EVERY_TYPE
    run_threads(ranks.check_everything, world_size, (types, True), transport=transport, options=options)


@pytest.mark.processes
@pytest.mark.parametrize("shared_memory", [False, True])
def test_processes_give_the_bits_of_the_reference(shared_memory: bool) -> None:
    options = JoinOptions(shared_memory=shared_memory)
    run_processes(ranks.check_everything, 3, (FEW_TYPES, True), transport="unix", options=options)


@pytest.mark.medium
@pytest.mark.parametrize("hosts", ["aabb", "abab", "aab", "abc", "a"])
def test_ranks_of_several_hosts_work_in_two_levels(hosts: str) -> None:
    listeners = [Listener.tcp() for _ in hosts]
    record = Rendezvous.create([str(listener.address) for listener in listeners], hosts)
    options = JoinOptions(shared_memory=True)

    def work(rank: int) -> None:
        with join(record, rank, listeners[rank], options) as communicator:
            ranks.check_everything(communicator, [np.dtype("l"), np.dtype("d")])

    with ThreadPoolExecutor(len(hosts)) as pool:
        list(pool.map(work, range(len(hosts))))


def reduce_and_meet(communicator: Communicator, size: int) -> None:
    communicator.all_reduce(np.ones(size, int))
    communicator.barrier()


def test_an_error_on_one_host_reaches_all_hosts() -> None:
    hosts = "aabb"
    listeners = [Listener.tcp() for _ in hosts]
    record = Rendezvous.create([str(listener.address) for listener in listeners], hosts)
    options = JoinOptions(shared_memory=True, timeout=20)

    def work(rank: int) -> None:
        with join(record, rank, listeners[rank], options) as communicator, pytest.raises(CollectiveError):
            reduce_and_meet(communicator, 10 + (rank == 3))

    with ThreadPoolExecutor(len(hosts)) as pool:
        began = time.monotonic()
        list(pool.map(work, range(len(hosts))))
        assert time.monotonic() - began < 10
