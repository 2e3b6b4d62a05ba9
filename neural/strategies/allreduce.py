"""Synchronous training: every step, the gradients of all ranks are added up and every rank takes the same step.

Gradients travel in buckets: stretches of the flat vector that end at layer borders, filled from the last layer to
the first. A bucket is sent as soon as the backward pass has filled it, while the layers before it are computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from collectives import Handle

from neural.batches import Batch
from neural.context import RankContext
from neural.model import FloatArray, Model
from neural.strategies.base import Strategy


@dataclass
class AllReduce(Strategy):
    """`bucket_bytes` bounds the gradients sent together; `overlap` sends them during the backward pass.

    With `accumulate` = k, gradients of k batches are added up before ranks exchange them and take one step.
    """

    name = "allreduce"
    bucket_bytes: int = 1 << 20
    overlap: bool = True
    accumulate: int = 1
    _buckets: list[tuple[int, int]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.bucket_bytes < 1:
            raise ValueError(f"bucket_bytes must be at least 1, got {self.bucket_bytes}")
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {self.accumulate}")

    def step(self, context: RankContext, batch: Batch) -> float:
        loss = context.compute_gradients(batch, together=True)
        if context.world_size > 1:
            context.exchange.sum("gradients", context.model.gradients, out=context.model.gradients)
        context.update()
        return loss
