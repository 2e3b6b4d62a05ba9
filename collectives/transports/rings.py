"""Rings in memory: between threads of one process, and between processes of one host.

The area is private memory for threads. For processes it is an anonymous file (memfd) that the others open through
the process that made it, so there is no name that could be left behind. Processes keep their authenticated sockets,
on which nothing is sent any more: their end shows that a process has died.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.errors import CollectiveError
from dmlgbm.collectives.kernels import ring_loop
from dmlgbm.collectives.kernels.compiler import for_types_of
from dmlgbm.collectives.kernels.program_loop import run_over_rings
from dmlgbm.collectives.spinning import close_scratch, scratch_of_rank
from dmlgbm.collectives.transports.contract import Transport, Words, Work

_LARGEST_RING = 256 << 10
_SMALLEST_RING = 16 << 10
_MEMORY_FOR_RINGS = 32 << 20


def ring_capacity(world_size: int) -> int:
    """Bytes of one ring: large enough to stream, small enough that all rings of many ranks stay modest."""
    return max(_SMALLEST_RING, min(_LARGEST_RING, _MEMORY_FOR_RINGS // world_size**2 // 4096 * 4096))


@dataclass(frozen=True)
class RingArea:
    """Memory that all ranks see: words first, then the rings. A fresh area is all zero."""

    words: Words
    rings: npt.NDArray[np.uint8]
    capacity: int

    @classmethod
    def size(cls, world_size: int, capacity: int) -> int:
        return 8 * ring_loop.count_words(world_size) + capacity * world_size**2

    @classmethod
    def over(cls, memory: Any, world_size: int, capacity: int) -> RingArea:
        data = np.frombuffer(memory, np.uint8)
        n_words = ring_loop.count_words(world_size)
        return cls(data[: 8 * n_words].view(np.int64), data[8 * n_words :], capacity)

    @classmethod
    def private(cls, world_size: int, capacity: int | None = None) -> RingArea:
        """For the threads of this process."""
        capacity = ring_capacity(world_size) if capacity is None else capacity
        # A mapping starts on a page, so that the words lie on cache lines.
        return cls.over(mmap.mmap(-1, cls.size(world_size, capacity)), world_size, capacity)


class RingTransport(Transport):
    """One rank's view of an area. `connections` are the sockets whose end means that a process has died."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        area: RingArea,
        connections: dict[int, socket.socket] | None = None,
        spin_microseconds: int = 0,
    ) -> None:
        if not ring_loop.AVAILABLE:
            raise CollectiveError("rings in memory need Linux on x86_64 or aarch64; use the unix or tcp transport")
        self.rank = rank
        self.world_size = world_size
        self._connections = {} if connections is None else connections
        self._area: RingArea | None = area
        descriptors = np.full(world_size, -1, np.int64)
        for peer, connection in self._connections.items():
            descriptors[peer] = connection.fileno()
        self._run: dict[np.dtype[Any], Callable[..., int]] = {}
        self._kernel_area = (area.words, area.rings.ctypes.data, area.capacity, world_size)
        self._watched = np.ones(world_size, np.int64)
        self._watched[rank] = 0
        self._scratch = scratch_of_rank(spin_microseconds)
        self._wires = (
            self._kernel_area,
            rank,
            descriptors,
            self._watched,
            np.zeros(1, np.int64),
            1000 * spin_microseconds,
            self._scratch,
        )

    @property
    def wires(self) -> tuple[Any, ...]:
        return self._wires

    def exchange(self, first: int, last: int, work: Work, until: int) -> int:
        return ring_loop.exchange_over_rings(
            first, last, work.kernel_view, work.addresses, self._wires, until, work.control
        )

    def run(self, work: Work, until: int) -> int:
        if not work.fused:
            return super().run(work, until)
        arguments = (work.kernel_view, work.addresses, self._wires, work.operation or 0, work.like, until, work.control)
        # All arrays but `like` are of the same types in every call.
        run = self._run.get(work.like.dtype)
        if run is None:
            run = self._run[work.like.dtype] = for_types_of(run_over_rings, *arguments)
        return run(*arguments)

    def send_now(self, peer: int, data: bytes) -> bool:
        copy = np.frombuffer(data, np.uint8)
        moved = ring_loop.write_ring(self._kernel_area, self.rank, peer, copy.ctypes.data, len(copy))
        ring_loop.ring_bell(self._kernel_area[0], peer)
        return moved == len(data)

    def receive_now(self, peer: int, size: int) -> bytes | None:
        data = np.empty(size, np.uint8)
        moved = ring_loop.read_ring(self._kernel_area, peer, self.rank, data.ctypes.data, size)
        return None if moved < 0 else data[:moved].tobytes()

    def look_ahead(self, peer: int, size: int) -> bytes:
        data = np.empty(size, np.uint8)
        moved = ring_loop.look_into_ring(self._kernel_area, peer, self.rank, data.ctypes.data, size)
        return data[:moved].tobytes()

    def stop_watching(self, peer: int) -> None:
        self._watched[peer] = 0

    def wake(self) -> None:
        if self._area is not None:
            ring_loop.stop(self._area.words, self.rank)

    def close(self) -> None:
        if self._area is None:
            return
        ring_loop.leave(self._area.words, self.world_size, self.rank)
        # The memory goes when the last array that shows it does.
        self._area = None
        del self._kernel_area, self._wires
        close_scratch(self._scratch)
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.close()


def create_shared_area(world_size: int, capacity: int | None = None) -> tuple[mmap.mmap, int, int]:
    """New memory for the processes of a host: the mapping, the descriptor others open it by, and the ring size."""
    capacity = ring_capacity(world_size) if capacity is None else capacity
    descriptor = os.memfd_create("dmlgbm-collectives", os.MFD_CLOEXEC)
    try:
        size = RingArea.size(world_size, capacity)
        os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size), descriptor, capacity
    except BaseException:
        os.close(descriptor)
        raise


def open_shared_area(process: int, descriptor: int, size: int) -> mmap.mmap:
    """The memory that another process of this host and user made."""
    path = f"/proc/{process}/fd/{descriptor}"
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise CollectiveError(
            f"cannot open the memory of process {process} ({error.strerror}): shared memory needs ranks of one user in "
            f"one container; use the unix or tcp transport"
        ) from error
    try:
        if os.fstat(opened).st_size != size:
            raise CollectiveError(f"the memory of process {process} does not have the expected size")
        return mmap.mmap(opened, size)
    finally:
        os.close(opened)
