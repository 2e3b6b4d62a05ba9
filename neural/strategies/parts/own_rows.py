"""Steps of ranks that each work on the rows they own: the same number of batches on every rank, and its weight.

A rank's weight is its share of all rows, so that a weighted mean over ranks is a mean over rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext


def weight_of_rank(context: RankContext) -> float:
    """The share of all rows that this rank owns."""
    return len(context.shard.owned) / context.shard.n_rows


def equal_batches(context: RankContext, epoch: int) -> Iterator[Batch]:
    """Batches of owned rows, as many on every rank as an epoch has in one process; the last ones may be empty."""
    n_steps = context.batches.steps_per_epoch
    size = max(1, -(-len(context.shard.owned) // n_steps))
    n_given = 0
    for batch in context.batches.own_epoch(epoch, size):
        n_given += 1
        yield batch
    for _ in range(n_given, n_steps):
        yield Batch(np.empty(0, np.int64), 1)


def own_step(context: RankContext, batch: Batch) -> float:
    """Move this rank's model by its own gradient alone; its share of the loss. Without rows nothing moves."""
    if not len(batch.positions):
        context.step += 1
        return 0.0
    loss = context.compute_gradients(batch, together=False)
    context.update()
    return loss * weight_of_rank(context)
