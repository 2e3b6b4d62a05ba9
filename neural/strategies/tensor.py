"""Tensor parallelism: every rank computes some of the units of each layer, for all rows of the batch.

Between layers the ranks put their columns together, so that every rank has the whole input of the next layer; on the
way back, each rank's gradient of that input is a part of a sum. Normalisation and activation work on columns alone and
happen before columns are put together, dropout after. What a rank owns it moves by itself; see `owned_parameters`.
With a codec, ranks tell each other what is new of the rows of a batch (`row_memory`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dmlgbm.neural.batches import Batch, BatchSource
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.errors import NonFiniteLossError
from dmlgbm.neural.gradient_channel import single_payload_codec
from dmlgbm.neural.layers import Activation, BatchNorm, Dense, Dropout, Layer
from dmlgbm.neural.model import FloatArray, Inputs, IntArray, ParameterPart, Pass
from dmlgbm.neural.network import Network
from dmlgbm.neural.strategies.base import SteppedStrategy
from dmlgbm.neural.strategies.parts.owned_parameters import OwnedParameters, check_whole_rows
from dmlgbm.neural.strategies.parts.row_memory import RowMemory, told_by_all


@dataclass
class Slice:
    """The units first to last of one dense layer and what works on them: the layers of this rank for it."""

    first: int
    last: int
    n_units: int
    before: list[Dropout] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    # With a codec, what each rank has told of its columns, and of its part of the gradient of the layer's inputs.
    told: list[RowMemory] = field(default_factory=list)
    told_back: list[RowMemory] = field(default_factory=list)


@dataclass
class Tensor(SteppedStrategy):
    """Units of every dense layer spread evenly over ranks; the batch is the same on all of them."""

    name = "tensor"
    _slices: list[Slice] = field(init=False, default_factory=list)

    def check(self, context: RankContext) -> None:
        super().check(context)
        check_whole_rows(context, self.name)
        if context.channel.compressor is not None:
            single_payload_codec(context.channel.compressor, self.name)
        model = context.model
        if not isinstance(model, Network):
            raise ValueError("strategy 'tensor' needs a network of this library, not a torch module")
        for layer in model.layers:
            if not isinstance(layer, Dense | BatchNorm | Activation | Dropout):
                raise ValueError(f"strategy 'tensor' cannot spread {layer.name}: use strategy='pipeline'")
        if context.settings.optimiser == "lamb":
            raise ValueError(
                "optimiser='lamb' needs the length of whole layers, which no rank has: use strategy='pipeline'"
            )

    def begin(self, context: RankContext) -> None:
        model = context.model
        assert isinstance(model, Network)
        builder = _SliceBuilder(model, context.rank, context.world_size)
        self._owned = OwnedParameters(builder.positions(), builder.parts, builder.buffer_positions())
        self._owned.begin(context)
        self._slices = builder.bound(self._owned)
        if context.channel.compressor is not None and context.world_size > 1:
            self._begin_memories(context)
        rows, settings = context.shard, context.settings
        self._source = BatchSource(rows, settings.batch_size, settings.sampling, settings.seed, 0, 1)

    def _begin_memories(self, context: RankContext) -> None:
        assert context.channel.compressor is not None
        codec = single_payload_codec(context.channel.compressor, self.name)
        n_rows, n_ranks, n_inputs = len(context.shard.numbers), context.world_size, 0
        for piece in self._slices:
            bounds = [piece.n_units * rank // n_ranks for rank in range(n_ranks + 1)]
            dtype = self._owned.parameters.dtype
            piece.told = [RowMemory(codec, n_rows, last - first, dtype) for first, last in pairwise(bounds)]
            piece.told_back = [RowMemory(codec, n_rows, n_inputs, dtype) for _ in range(n_ranks)]
            n_inputs = piece.n_units

    def begin_epoch(self, context: RankContext) -> None:
        self._owned.take(context)

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        """Whole batches on every rank."""
        return self._source.global_epoch(epoch)

    def step(self, context: RankContext, batch: Batch) -> float:
        model = context.model
        assert isinstance(model, Network)
        inputs, targets = context.shard.take(batch.positions)
        pass_ = Pass(context.step, context.shard.numbers[batch.positions], batch.n_rows)
        outputs = self._forward(context, inputs, pass_, batch.positions)
        loss, gradient = model.loss.value_and_gradient(outputs, targets, context.shard.weights_of(batch.positions))
        if not math.isfinite(loss):
            raise NonFiniteLossError(loss, context.rank, context.epoch, context.step, model.layers[-1].name)
        gradient *= 1.0 / batch.n_rows
        self._backward(context, gradient, batch.positions)
        self._owned.update(context)
        return loss / batch.n_rows / context.world_size

    def _forward(self, context: RankContext, inputs: Inputs, pass_: Pass, rows: IntArray) -> FloatArray:
        values = inputs
        for piece in self._slices:
            for dropout in piece.before:
                values = dropout.forward(values, pass_)
            for layer in piece.layers:
                values = layer.forward(values, pass_)
            if piece.told:
                values = np.concatenate(told_by_all(context, piece.told, rows, values), axis=1)
            else:
                values = _put_together(context, values, piece)
        return values

    def _backward(self, context: RankContext, gradient: FloatArray, rows: IntArray) -> None:
        for piece in reversed(self._slices):
            slope: FloatArray | None = np.ascontiguousarray(gradient[:, piece.first : piece.last])
            for layer in reversed(piece.layers):
                assert slope is not None
                slope = layer.backward(slope)
            if slope is None:  # the first layer: nobody needs the gradient of the inputs
                return
            if piece.told_back:
                gradient = np.sum(told_by_all(context, piece.told_back, rows, slope), axis=0)
            else:
                gradient = context.sum_in_step(slope)
            for dropout in reversed(piece.before):
                gradient = dropout.backward(gradient)

    def finish_epoch(self, context: RankContext) -> None:
        self._owned.give(context)


class _SliceBuilder:
    """Walks through the layers of a network and notes which of its numbers a rank owns."""

    def __init__(self, model: Network, rank: int, world_size: int) -> None:
        self._model = model
        self.parts: list[ParameterPart] = []
        self._positions: list[IntArray] = []
        self._buffer_positions: list[IntArray] = []
        self._slices: list[Slice] = []
        self._waiting: list[Dropout] = []
        self._start = self._buffer_start = 0
        numbered = iter(model.parts)
        for layer in model.layers:
            self._add(layer, [next(numbered) for _ in layer.parameters], rank, world_size)

    def positions(self) -> IntArray:
        return np.concatenate(self._positions)

    def buffer_positions(self) -> IntArray:
        return np.concatenate([np.empty(0, np.int64), *self._buffer_positions])

    def _add(self, layer: Layer, parts: list[ParameterPart], rank: int, world_size: int) -> None:
        own: Layer
        if isinstance(layer, Dropout):
            dropout = Dropout(layer.rate)
            dropout.name, dropout.seed = layer.name, layer.seed
            self._waiting.append(dropout)
            return
        if isinstance(layer, Dense):
            first, last = (layer.n_units * k // world_size for k in (rank, rank + 1))
            self._slices.append(Slice(first, last, layer.n_units, self._waiting))
            self._waiting = []
            own = Dense(last - first, bias=layer.bias)
            own.passes_gradient = layer.passes_gradient
        elif isinstance(layer, BatchNorm):
            own = BatchNorm(layer.momentum, layer.epsilon)
        else:
            assert isinstance(layer, Activation)
            own = Activation(layer.function)
            own.may_overwrite = True
        own.name = layer.name
        piece = self._slices[-1]
        piece.layers.append(own)
        for part in parts:
            self._own_columns(part, piece)
        for buffer in layer.buffers:
            self._buffer_positions.append(np.arange(piece.first, piece.last) + self._buffer_start)
            self._buffer_start += buffer.size

    def _own_columns(self, part: ParameterPart, piece: Slice) -> None:
        """The columns of a matrix, or the stretch of a vector, that belong to the units of this rank."""
        grid = np.arange(part.start, part.stop, dtype=np.int64).reshape(part.shape)[..., piece.first : piece.last]
        stop = self._start + grid.size
        self.parts.append(ParameterPart(part.name, part.layer, self._start, stop, grid.shape, part.decays))
        self._positions.append(grid.reshape(-1))
        self._start = stop

    def bound(self, owned: OwnedParameters) -> list[Slice]:
        """The layers of this rank, over the numbers it owns."""
        parts, buffer_start = iter(self.parts), 0
        for piece in self._slices:
            width = piece.last - piece.first
            for layer in piece.layers:
                mine = [next(parts) for _ in range(_n_arrays(layer))]
                values, slopes = (
                    [vector[part.start : part.stop].reshape(part.shape) for part in mine]
                    for vector in (owned.parameters, owned.gradients)
                )
                n_buffers = 2 if isinstance(layer, BatchNorm) else 0
                starts = range(buffer_start, buffer_start + n_buffers * width, width) if width else [0] * n_buffers
                buffers = [owned.buffers[start : start + width] for start in starts]
                buffer_start += n_buffers * width
                layer.bind(values, slopes, buffers)
        return self._slices


def _n_arrays(layer: Layer) -> int:
    if isinstance(layer, Dense):
        return 2 if layer.bias else 1
    return 2 if isinstance(layer, BatchNorm) else 0


def _put_together(context: RankContext, columns: FloatArray, piece: Slice) -> FloatArray:
    """The columns of all ranks next to each other."""
    if context.world_size == 1:
        return columns
    rows = np.ascontiguousarray(columns.T)
    with context.history.waiting():
        if piece.n_units % context.world_size == 0:
            everything = context.communicator.all_gather(rows).reshape(piece.n_units, -1)
        else:
            everything = np.concatenate(context.communicator.all_gather_unequal(rows))
    return np.ascontiguousarray(everything.T)
