"""Local SGD: every rank trains on its own rows, and models are averaged every few steps instead of gradients always.

What travels is the change since the last average, so codecs with error feedback apply to it. Post-local SGD begins
with epochs in which gradients are averaged in every step, while the model still moves fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.strategies.base import SteppedStrategy
from dmlgbm.neural.strategies.parts.own_rows import equal_batches, own_step, weight_of_rank
from dmlgbm.neural.strategies.parts.updates import UpdateSum


@dataclass
class LocalSGD(SteppedStrategy):
    """Averages every `interval` steps, weighted by rows; in the first `synchronous_epochs` gradients in every step.

    `send_above` sends only values that changed enough (see `UpdateSum`).
    """

    name = "local_sgd"
    synchronous = False
    own_optimisers = True
    interval: int = 8
    synchronous_epochs: int = 0
    send_above: float = 0.0
    _sum: UpdateSum = field(init=False)
    _common: FloatArray = field(init=False, default_factory=lambda: np.empty(0))
    _n_apart: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise ValueError(f"interval must be at least 1, got {self.interval}")
        if self.synchronous_epochs < 0:
            raise ValueError(f"synchronous_epochs must be at least 0, got {self.synchronous_epochs}")
        self._sum = UpdateSum(self.send_above)

    def check(self, context: RankContext) -> None:
        super().check(context)
        self._sum.check(context)

    def begin_epoch(self, context: RankContext) -> None:
        self._common = context.model.parameters.copy()
        self._n_apart = 0

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        return equal_batches(context, epoch)

    def step(self, context: RankContext, batch: Batch) -> float:
        if context.epoch < self.synchronous_epochs:
            return self._step_together(context, batch)
        loss = own_step(context, batch)
        self._n_apart += 1
        if self._n_apart == self.interval:
            self._average(context)
        return loss

    def _step_together(self, context: RankContext, batch: Batch) -> float:
        gradients, weight = context.model.gradients, weight_of_rank(context)
        loss = context.compute_gradients(batch, together=False) * weight
        gradients *= gradients.dtype.type(weight)
        gradients[...] = self._sum(context, "gradients", gradients)
        context.update()
        return loss

    def _average(self, context: RankContext) -> None:
        parameters = context.model.parameters
        change = (parameters - self._common) * parameters.dtype.type(weight_of_rank(context))
        self._common += self._sum(context, "changes", change)
        parameters[...] = self._common
        self._n_apart = 0

    def finish_epoch(self, context: RankContext) -> None:
        if self._n_apart:
            self._average(context)
        average_buffers(context)

    def rank_state(self) -> dict[str, Any]:
        return self._sum.state()

    def restore_rank(self, state: dict[str, Any]) -> None:
        self._sum.restore(state)


def average_buffers(context: RankContext) -> None:
    """Running moments of all ranks, weighted by rows."""
    buffers = context.model.buffers
    if len(buffers) and context.world_size > 1:
        buffers[...] = context.communicator.all_reduce(buffers * buffers.dtype.type(weight_of_rank(context)))
