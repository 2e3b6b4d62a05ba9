"""Rows in parts that lie on several machines: what a rank makes its shards of.

Rows are numbered over all parts. Those held out for validation are known by a hash of their number, and the others are
numbered anew without gaps, exactly as a fit of all rows in one place does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.counter_random import hash_of, random_bits
from dmlgbm.neural.model import FloatArray, Inputs, IntArray
from dmlgbm.neural.shards import RowShard


@dataclass(frozen=True)
class RowPart:
    """The rows of one partition, as numbers; all parts have weights, or none has."""

    number: int
    inputs: Inputs
    targets: FloatArray | IntArray
    weights: FloatArray | None = None


@dataclass(frozen=True)
class PartTable:
    """How many rows each part has, and which share of all rows is held out."""

    lengths: tuple[int, ...]
    seed: int
    held_out: float = 0.0

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    def n_training_rows(self) -> int:
        """Rows that are not held out."""
        return int(self.n_rows - self._held_out(0, self.n_rows).sum())

    def shards(self, parts: Sequence[RowPart]) -> tuple[RowShard, RowShard | None]:
        """The rows of one rank to learn from and, where some are held out, to watch."""
        ordered = sorted(parts, key=lambda part: part.number)
        firsts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        numbers = concatenated([np.arange(firsts[part.number], firsts[part.number + 1]) for part in ordered])
        inputs = stacked([part.inputs for part in ordered])
        targets = concatenated([part.targets for part in ordered])
        given = [part.weights for part in ordered if part.weights is not None]
        weights = concatenated(given) if given else None
        if not self.held_out:
            return RowShard.of_part(inputs, targets, numbers, self.n_rows, weights), None
        everywhere = self._held_out(0, self.n_rows)
        watched = everywhere[numbers]
        positions = np.where(everywhere, np.cumsum(everywhere), np.cumsum(~everywhere)) - 1
        n_watched = int(everywhere.sum())

        def of(chosen: npt.NDArray[np.bool_], n_rows: int) -> RowShard:
            own = None if weights is None else weights[chosen]
            return RowShard.of_part(inputs[chosen], targets[chosen], positions[numbers[chosen]], n_rows, own)

        return of(~watched, self.n_rows - n_watched), of(watched, n_watched)

    def _held_out(self, first: int, last: int) -> npt.NDArray[np.bool_]:
        return held_out_rows(np.arange(first, last, dtype=np.int64), self.held_out, self.seed)


def held_out_rows(numbers: IntArray, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows are watched instead of learnt from: a hash of the global row number decides, wherever a row lies."""
    draws = random_bits(hash_of(seed, "held out"), numbers.astype(np.uint64)) >> np.uint64(11)
    return draws.astype(np.float64) * 2.0**-53 < fraction


def concatenated(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One array of many, without a copy where there is only one."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def stacked(tables: Sequence[Inputs]) -> Inputs:
    """One table of many, dense or sparse."""
    if len(tables) == 1 or all(isinstance(table, np.ndarray) for table in tables):
        return concatenated(tables)
    from scipy.sparse import vstack

    return vstack(tables, format="csr")
