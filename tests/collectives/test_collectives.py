"""Every collective on every transport gives the bits of the plain reference, on worlds of one to nine ranks."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import JoinOptions
from collectives.launch import run_processes, run_threads
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


@pytest.mark.parametrize(
    ("path", "world_size"),
    [*((path, 3) for path in PATHS), ("memory", 1), ("memory", 2), ("memory", 5), ("tcp", 1), ("tcp", 2), ("tcp", 5)],
)
def test_every_collective_gives_the_bits_of_the_reference(path: str, world_size: int) -> None:
    transport, options = PATHS[path]
    run_threads(ranks.check_everything, world_size, (FEW_TYPES,), transport=transport, options=options)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("world_size", range(1, 10))
def test_every_collective_type_and_size_on_worlds_of_one_to_nine(path: str, world_size: int) -> None:
    transport, options = PATHS[path]
    run_threads(ranks.check_everything, world_size, (oracle.EVERY_TYPE, True), transport=transport, options=options)


@pytest.mark.parametrize("shared_memory", [False, True])
def test_processes_give_the_bits_of_the_reference(shared_memory: bool) -> None:
    options = JoinOptions(shared_memory=shared_memory)
    run_processes(ranks.check_everything, 3, (FEW_TYPES, True), transport="unix", options=options)
