"""Ranks as threads that meet at a barrier: the plainest communicator, for tests of what is computed with one.

Sums are made in rank order. Every byte a rank hands over is counted, and `tamper` may change what rank 0 sends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class ThreadedRank:
    def __init__(self, rank: int, boxes: list[Array], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.world_size = len(boxes)
        self.bytes_sent = 0
        self.tamper: Callable[[Array], Array] | None = None
        self._boxes = boxes
        self._barrier = barrier

    def all_gather(self, array: Array) -> list[Array]:
        self.bytes_sent += array.nbytes
        self._boxes[self.rank] = array.copy() if self.tamper is None else self.tamper(array.copy())
        self._barrier.wait(timeout=60)
        arrays = list(self._boxes)
        self._barrier.wait(timeout=60)
        return arrays

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        assert op == "sum"
        with np.errstate(over="ignore"):
            return reduce(np.add, self.all_gather(array)).copy()


def ranks_of(world_size: int) -> list[ThreadedRank]:
    boxes = [np.empty(0)] * world_size
    barrier = threading.Barrier(world_size)
    return [ThreadedRank(rank, boxes, barrier) for rank in range(world_size)]


def run_on_ranks(world_size: int, work: Callable[[ThreadedRank], Any]) -> list[Any]:
    """What `work` returns or raises on each rank; an exception is returned, so that tests can look at all of them."""

    def outcome(rank: ThreadedRank) -> Any:
        try:
            return work(rank)
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(outcome, ranks_of(world_size)))
