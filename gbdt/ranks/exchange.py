"""One rank's side of everything that ranks tell each other while they train, counted.

Implements the engine's `Exchange` over a communicator. Every rank makes the same calls in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives import Communicator, all_reduce_bytes

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass
class Traffic:
    """What this rank has sent so far, and how long it has been in calls."""

    bytes_sent: int = 0
    calls: int = 0
    wait_seconds: float = 0.0


class RankExchange:
    """The rows of all ranks together, seen from one of them."""

    def __init__(self, communicator: Communicator) -> None:
        self.rank = communicator.rank
        self.n_ranks = communicator.world_size
        self.alone = self.n_ranks == 1
        self.leads = self.rank == 0
        self.traffic = Traffic()
        self.tree_traffic: list[Traffic] = []
        self._before = Traffic()
        self._communicator = communicator

    def begin_trees(self) -> None:
        """Count for new trees, which are grown together."""
        self._before = replace(self.traffic)

    def end_trees(self, n_trees: int) -> None:
        """What was sent since `begin_trees` is the new trees', each one's an equal part of it."""
        now, before = self.traffic, self._before
        share = Traffic(
            (now.bytes_sent - before.bytes_sent) // n_trees,
            (now.calls - before.calls) // n_trees,
            (now.wait_seconds - before.wait_seconds) / n_trees,
        )
        self.tree_traffic.extend([share] * n_trees)

    def reduce_sum(self, values: IntArray) -> IntArray:
        """The sums over all ranks, element by element."""
        return self._reduced(values, "sum")

    def reduce_max(self, values: Array) -> Array:
        """The largest over all ranks, element by element."""
        return self._reduced(values, "max")

    def reduce_or(self, bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The bits that any rank has set."""
        return self._reduced(bits, "or")

    def gather(self, values: Array) -> Sequence[Array] | None:
        """The arrays of all ranks, which may differ in the length of their last axis, on the rank that leads."""
        rows_first = np.ascontiguousarray(values.T)
        n_rows = self.all_gather(np.array([len(rows_first)], np.int64))[:, 0]
        padded = np.zeros((int(n_rows.max()), *rows_first.shape[1:]), values.dtype)
        padded[: len(rows_first)] = rows_first
        everybody = self._counted(0 if self.leads else padded.nbytes, self._communicator.gather, padded)
        if everybody is None:
            return None
        return [part[:n].T for part, n in zip(everybody, n_rows, strict=True)]

    def broadcast(self, values: Array) -> Array:
        """The values of the rank that leads."""
        n_bytes = values.nbytes * (self.n_ranks - 1) if self.leads else 0
        return self._counted(n_bytes, self._communicator.broadcast, values)

    def broadcast_text(self, text: str | None) -> str | None:
        """The text of the rank that leads: its length first, -1 for none, because arrays must be equally long."""
        letters = np.frombuffer((text or "").encode(), np.uint8)
        length = int(self.broadcast(np.array([-1 if text is None else len(letters)], np.int64))[0])
        if length < 0:
            return None
        return bytes(self.broadcast(np.resize(letters, length))).decode() if length else ""

    def all_gather(self, values: Array) -> Array:
        """The arrays of all ranks, stacked."""
        return self._counted(values.nbytes * (self.n_ranks - 1), self._communicator.all_gather, values)

    def all_gather_unequal(self, values: Array) -> list[Array]:
        """The arrays of all ranks, which may differ in the length of their first axis."""
        return self._counted(values.nbytes * (self.n_ranks - 1), self._communicator.all_gather_unequal, values)

    def all_to_all(self, parts: Array, out: Array) -> Array:
        """`out` filled with what every rank had for this one; parts[p] goes to rank p."""
        n_bytes = parts.nbytes // self.n_ranks * (self.n_ranks - 1)
        return self._counted(n_bytes, self._communicator.all_to_all, parts, out=out)

    def all_to_all_unequal(self, parts: Sequence[Array]) -> list[Array]:
        """What every rank had for this one; parts[p] goes to rank p."""
        n_bytes = sum(part.nbytes for rank, part in enumerate(parts) if rank != self.rank)
        return self._counted(n_bytes, self._communicator.all_to_all_unequal, parts)

    def _reduced(self, values: Array, operation: str) -> Array:
        n_bytes = all_reduce_bytes(values.nbytes, self.n_ranks)
        return self._counted(n_bytes, self._communicator.all_reduce, values, operation)

    def _counted(self, n_bytes: int, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        result = call(*arguments, **options)
        self.traffic.wait_seconds += time.perf_counter() - began
        self.traffic.bytes_sent += n_bytes
        self.traffic.calls += 1
        return result
