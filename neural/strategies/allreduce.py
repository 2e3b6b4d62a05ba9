"""Synchronous training: every step, the gradients of all ranks are added up and every rank takes the same step.

Gradients travel in buckets: stretches of the flat vector that end at layer borders, filled from the last layer to
the first. A bucket is sent as soon as the backward pass has filled it, while the layers before it are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dmlgbm.neural.batches import Batch
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray, Model
from dmlgbm.neural.strategies.base import SteppedStrategy

if TYPE_CHECKING:
    from dmlgbm.collectives import Handle


@dataclass(frozen=True)
class Bucket:
    """A stretch of the gradients; it is full once `first_layer`, the last of its layers to come, is ready.

    `shape` is that of the one array in it, None where there may be several.
    """

    first_layer: int
    start: int
    stop: int
    shape: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        return f"gradients from {self.start}"

    def of(self, gradients: FloatArray) -> FloatArray:
        """The stretch itself, as a view."""
        stretch = gradients[self.start : self.stop]
        return stretch if self.shape is None else stretch.reshape(self.shape)


@dataclass
class AllReduce(SteppedStrategy):
    """`bucket_bytes` bounds the gradients sent together; `overlap` sends them during the backward pass.

    With `compression` every array is sent by itself, whatever `bucket_bytes` is.

    With `accumulate` = k, every batch is worked on in k pieces whose gradients are added up before ranks exchange
    them: the same step in a k-th of the memory (batch normalisation then takes the moments of each piece).
    """

    name = "allreduce"
    bucket_bytes: int = 1 << 18
    overlap: bool = True
    accumulate: int = 1
    _buckets: list[Bucket] = field(init=False, default_factory=list)
    _total: FloatArray = field(init=False, default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.bucket_bytes < 1:
            raise ValueError(f"bucket_bytes must be at least 1, got {self.bucket_bytes}")
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {self.accumulate}")

    def begin(self, context: RankContext) -> None:
        # A codec gets array by array, because a low-rank one needs matrices.
        coded = context.channel.compressor is not None
        self._buckets = buckets_of_parts(context.model) if coded else make_buckets(context.model, self.bucket_bytes)
        if self.accumulate > 1:
            self._total = np.zeros_like(context.model.gradients)

    def step(self, context: RankContext, batch: Batch) -> float:
        if context.world_size == 1:
            loss = self._accumulated(context, batch)
        elif self.accumulate > 1 or not self.overlap:
            loss = self._accumulated(context, batch)
            self._sum_buckets(context)
        else:
            loss = self._overlapped(context, batch)
        context.update()
        return loss

    def _accumulated(self, context: RankContext, batch: Batch) -> float:
        """Gradients of the whole batch, piece by piece; every rank works on the same number of pieces."""
        if self.accumulate == 1:
            return context.compute_gradients(batch, together=True)
        loss = 0.0
        self._total[...] = 0
        for piece in self._pieces(context, batch):
            share = piece.n_rows / batch.n_rows
            loss += share * context.compute_gradients(piece, together=True)
            self._total += context.model.gradients * self._total.dtype.type(share)
        context.model.gradients[...] = self._total
        return loss

    def _pieces(self, context: RankContext, batch: Batch) -> Iterator[Batch]:
        bounds = [len(batch.positions) * k // self.accumulate for k in range(self.accumulate + 1)]
        parts = [batch.positions[first:last] for first, last in pairwise(bounds)]
        sizes = np.array([len(part) for part in parts], np.float64)
        if context.world_size > 1:
            sizes = context.communicator.all_reduce(sizes)
        for part, n_rows in zip(parts, sizes, strict=True):
            if n_rows:
                yield Batch(part, int(n_rows))

    def _overlapped(self, context: RankContext, batch: Batch) -> float:
        gradients = context.model.gradients
        sums: list[Handle[FloatArray]] = []

        def send(layer: int) -> None:
            for bucket in self._buckets:
                if bucket.first_layer == layer:
                    part = bucket.of(gradients)
                    sums.append(context.channel.start_all_reduce(bucket.key, part, part))

        loss = context.compute_gradients(batch, together=True, on_layer_ready=send)
        for handle in sums:
            context.channel.wait(handle)
        return loss

    def _sum_buckets(self, context: RankContext) -> None:
        for bucket in self._buckets:
            part = bucket.of(context.model.gradients)
            context.channel.all_reduce(bucket.key, part, out=part)


def make_buckets(model: Model, bucket_bytes: int) -> list[Bucket]:
    """Layers from the last to the first, put together up to `bucket_bytes`; a larger layer has its own bucket."""
    buckets: list[Bucket] = []
    item = model.gradients.itemsize
    for layer in range(model.n_layers - 1, -1, -1):
        start, stop = model.layer_range(layer)
        if buckets and (buckets[-1].stop - start) * item <= bucket_bytes:
            buckets[-1] = Bucket(layer, start, buckets[-1].stop)
        else:
            buckets.append(Bucket(layer, start, stop))
    return buckets


def buckets_of_parts(model: Model) -> list[Bucket]:
    """One bucket for each array of the model, from the last to the first."""
    return [Bucket(part.layer, part.start, part.stop, part.shape) for part in reversed(model.parts)]
