"""A program: what one rank does in one collective, as a table that any transport can run.

The columns are described in `collectives/kernels/layout.py`. Every rank numbers phases alike, also those in which it
has nothing to do, because the phase is part of every header. In one phase a rank sends at most one message to a
peer and receives at most one from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.kernels.layout import COMBINE, COPY, PROGRAM_COLUMNS, RECEIVE, SEND


@dataclass(frozen=True, eq=False)
class Program:
    """Rows in the order of their phases, and how many elements of scratch space they need."""

    rows: npt.NDArray[np.int64]
    scratch_count: int = 0


@dataclass(frozen=True)
class Blocks:
    """Consecutive parts of an array: part k has counts[k] elements from offsets[k] on."""

    counts: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, counts: Sequence[int]) -> Blocks:
        offsets = tuple(sum(counts[:k]) for k in range(len(counts)))
        return cls(tuple(counts), offsets)

    @classmethod
    def even(cls, count: int, world_size: int) -> Blocks:
        """One part a rank, as equal as possible."""
        bounds = [count * k // world_size for k in range(world_size + 1)]
        return cls.of([bounds[k + 1] - bounds[k] for k in range(world_size)])

    @property
    def total(self) -> int:
        return sum(self.counts)

    def run(self, first: int, last: int) -> tuple[int, int]:
        """Offset and count of the parts first..last together."""
        if first >= last:
            return 0, 0
        return self.offsets[first], sum(self.counts[first:last])


@dataclass
class ProgramBuilder:
    """Collects rows; `next_phase` is called alike on every rank."""

    scratch_count: int = 0
    _phase: int = 0
    _rows: list[tuple[int, ...]] = field(default_factory=list)

    def send(self, peer: int, buffer: int, offset: int, count: int) -> None:
        self._rows.append((self._phase, SEND, peer, buffer, offset, 0, 0, count))

    def receive(self, peer: int, buffer: int, offset: int, count: int) -> None:
        self._rows.append((self._phase, RECEIVE, peer, 0, 0, buffer, offset, count))

    def copy(self, source: int, source_offset: int, target: int, target_offset: int, count: int) -> None:
        self._rows.append((self._phase, COPY, 0, source, source_offset, target, target_offset, count))

    def combine(self, source: int, source_offset: int, target: int, target_offset: int, count: int) -> None:
        self._rows.append((self._phase, COMBINE, 0, source, source_offset, target, target_offset, count))

    def next_phase(self) -> None:
        self._phase += 1

    def build(self) -> Program:
        rows = np.array(self._rows, np.int64).reshape(-1, PROGRAM_COLUMNS)
        rows.flags.writeable = False
        return Program(rows, self.scratch_count)


def others(rank: int, world_size: int) -> list[int]:
    """The other ranks, each rank starting with its successor, so that not everybody begins with rank 0."""
    return [(rank + step) % world_size for step in range(1, world_size)]
