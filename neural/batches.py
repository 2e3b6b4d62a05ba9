"""Which rows make up each batch of each epoch.

Two scopes. *Global*: batch k of an epoch is the same set of rows however many ranks there are; every rank gets the
rows of it that it must work on (an equal cut where all ranks reach all rows, otherwise those it owns), and may get
none. *Own*: every rank draws from the rows it owns, and batches of different ranks have nothing to do with each
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.model import IntArray
from dmlgbm.neural.random_numbers import integers, permutation
from dmlgbm.neural.shards import RowShard

Sampling: TypeAlias = Literal["reshuffle", "replacement"]


@dataclass(frozen=True)
class Batch:
    """This rank's rows of a batch, as positions in its shard; `n_rows` counts the rows on all ranks in the scope."""

    positions: IntArray
    n_rows: int


@dataclass(frozen=True)
class BatchSource:
    """Makes batches of `size` rows; the last one of a reshuffled epoch takes the rest."""

    shard: RowShard
    size: int
    sampling: Sampling
    seed: int
    rank: int
    world_size: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch in the global scope; equal on all ranks."""
        return -(-self.shard.n_rows // self.size)

    def global_epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of one epoch in the global scope, without the first `skip`."""
        for step, numbers in enumerate(self._cuts(self.shard.n_rows, self.size, "global", epoch)):
            if step >= skip:
                yield Batch(self._mine(numbers), len(numbers))

    def own_epoch(self, epoch: int, size: int | None = None) -> Iterator[Batch]:
        """Batches of the rows this rank owns; `size` rows each, by default its share of a global batch."""
        if size is None:
            size = max(1, round(self.size / self.world_size))
        owned = self.shard.owned
        for cut in self._cuts(len(owned), size, f"rank {self.rank}", epoch):
            yield Batch(owned[cut], len(cut))

    def _cuts(self, count: int, size: int, purpose: str, epoch: int) -> Iterator[IntArray]:
        n_steps = -(-count // size)
        if self.sampling == "replacement":
            for step in range(n_steps):
                yield integers(hash_of(self.seed, "batch", purpose, epoch, step), size, count)
            return
        order = permutation(hash_of(self.seed, "order", purpose, epoch), count)
        for step in range(n_steps):
            yield order[step * size : (step + 1) * size]

    def _mine(self, numbers: IntArray) -> IntArray:
        shard = self.shard
        if shard.replicated:
            count = len(numbers)
            return numbers[self.rank * count // self.world_size : (self.rank + 1) * count // self.world_size]
        if not len(shard.numbers):
            return numbers[:0]
        found = np.minimum(np.searchsorted(shard.numbers, numbers), len(shard.numbers) - 1)
        return found[shard.numbers[found] == numbers]
