"""Pipeline parallelism: every rank has some consecutive layers, and pieces of a batch pass through the ranks.

While a rank works on one piece, the rank before it works on the next (GPipe): all pieces go forward, then all come back
in the opposite order, and the gradients of the pieces are added up before ranks take their step. A layer remembers
one pass, so every piece has its own copy of the layers, all over the same parameters. With a codec, neighbours tell
each other what is new of the rows of a piece (`row_memory`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from dmlgbm.neural.batches import Batch, BatchSource
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.errors import NonFiniteLossError
from dmlgbm.neural.gradient_channel import single_payload_codec
from dmlgbm.neural.layers import BatchNorm, Layer
from dmlgbm.neural.model import FloatArray, Inputs, Pass
from dmlgbm.neural.network import Network
from dmlgbm.neural.strategies.base import SteppedStrategy
from dmlgbm.neural.strategies.parts.owned_parameters import OwnedParameters, check_whole_rows, consecutive, positions_of
from dmlgbm.neural.strategies.parts.row_memory import RowMemory


@dataclass
class Pipeline(SteppedStrategy):
    """Layers spread over ranks so that the largest share of parameters is smallest; `micro_batches` pieces a batch."""

    name = "pipeline"
    micro_batches: int = 4
    _stages: list[list[Layer]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be at least 1, got {self.micro_batches}")

    def check(self, context: RankContext) -> None:
        super().check(context)
        check_whole_rows(context, self.name)
        if context.channel.compressor is not None:
            single_payload_codec(context.channel.compressor, self.name)
        model = context.model
        if not isinstance(model, Network):
            raise ValueError("strategy 'pipeline' needs a network of this library, not a torch module")
        n_blocks = len(_block_starts(model))
        if context.world_size > n_blocks:
            raise ValueError(f"strategy 'pipeline' spreads {n_blocks} layers over at most {n_blocks} ranks")
        if self.micro_batches > 1 and _has_batch_norm(model.layers):
            raise ValueError("batch normalisation needs the moments of the whole batch: set micro_batches=1")

    def begin(self, context: RankContext) -> None:
        model = context.model
        assert isinstance(model, Network)
        bounds = stage_bounds(model, context.world_size)
        first, last = bounds[context.rank], bounds[context.rank + 1]
        self._is_first, self._is_last = context.rank == 0, context.rank == context.world_size - 1
        n_before = sum(len(layer.parameters) for layer in model.layers[:first])
        n_own = sum(len(layer.parameters) for layer in model.layers[first:last])
        parts = model.parts[n_before : n_before + n_own]
        n_buffers_before, n_buffers = (
            sum(buffer.size for layer in layers for buffer in layer.buffers)
            for layers in (model.layers[:first], model.layers[first:last])
        )
        buffer_positions = np.arange(n_buffers_before, n_buffers_before + n_buffers, dtype=np.int64)
        self._owned = OwnedParameters(positions_of(parts), consecutive(parts), buffer_positions)
        self._owned.begin(context)
        self._total = np.zeros_like(self._owned.gradients)
        # Gradients come back to the first layer of a stage, so it must hand them on, but for the first of all.
        self._stages = [_bound_copy(model.layers[first:last], self._owned) for _ in range(self.micro_batches)]
        self._width_before = _width_before(model, context.shard.inputs[:1], first)
        self._width_after = _width_before(model, context.shard.inputs[:1], last)
        self._begin_traffic(context)
        settings = context.settings
        self._source = BatchSource(context.shard, settings.batch_size, settings.sampling, settings.seed, 0, 1)

    def _begin_traffic(self, context: RankContext) -> None:
        """What this rank and its neighbours remember of rows, for all four ways that values go."""

        def memory(width: int) -> RowMemory | None:
            if context.channel.compressor is None:
                return None
            codec = single_payload_codec(context.channel.compressor, self.name)
            return RowMemory(codec, len(context.shard.numbers), width, self._owned.parameters.dtype)

        self._from_before, self._to_before = (None if self._is_first else memory(self._width_before) for _ in range(2))
        self._from_after, self._to_after = (None if self._is_last else memory(self._width_after) for _ in range(2))

    def begin_epoch(self, context: RankContext) -> None:
        self._owned.take(context)

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        """Whole batches on every rank; each rank needs inputs, targets or neither of them."""
        return self._source.global_epoch(epoch)

    def step(self, context: RankContext, batch: Batch) -> float:
        count = len(batch.positions)
        bounds = [count * k // self.micro_batches for k in range(self.micro_batches + 1)]
        pieces = [batch.positions[a:b] for a, b in pairwise(bounds) if b > a]
        outputs = [
            self._forward(context, stage, piece, batch) for stage, piece in zip(self._stages, pieces, strict=False)
        ]
        loss = 0.0
        self._total[...] = 0
        for stage, piece, output in reversed(list(zip(self._stages, pieces, outputs, strict=False))):
            loss += self._backward(context, stage, piece, output, batch.n_rows)
            self._total += self._owned.gradients
        self._owned.gradients[...] = self._total
        self._owned.update(context)
        return loss

    def _forward(self, context: RankContext, stage: list[Layer], piece: Any, batch: Batch) -> FloatArray:
        pass_ = Pass(context.step, context.shard.numbers[piece], batch.n_rows)
        values: Any
        if self._is_first:
            values = context.shard.inputs[piece]
        else:
            values = self._received(context, self._from_before, piece, self._width_before, context.rank - 1)
        for layer in stage:
            values = layer.forward(values, pass_)
        if not self._is_last:
            self._send(context, self._to_after, piece, values, context.rank + 1)
        return values

    def _backward(self, context: RankContext, stage: list[Layer], piece: Any, output: FloatArray, n_rows: int) -> float:
        loss = 0.0
        slope: FloatArray | None
        if self._is_last:
            loss, slope = self._loss(context, output, piece, n_rows)
        else:
            slope = self._received(context, self._from_after, piece, self._width_after, context.rank + 1)
        for layer in reversed(stage):
            assert slope is not None
            slope = layer.backward(slope)
        if not self._is_first:
            assert slope is not None
            self._send(context, self._to_before, piece, slope, context.rank - 1)
        return loss

    def _loss(self, context: RankContext, output: FloatArray, piece: Any, n_rows: int) -> tuple[float, FloatArray]:
        model = context.model
        assert isinstance(model, Network)
        loss, slope = model.loss.value_and_gradient(
            output, context.shard.targets[piece], context.shard.weights_of(piece)
        )
        if not math.isfinite(loss):
            raise NonFiniteLossError(loss, context.rank, context.epoch, context.step, model.layers[-1].name)
        slope *= 1.0 / n_rows
        return loss / n_rows, slope

    def _send(
        self, context: RankContext, memory: RowMemory | None, piece: Any, values: FloatArray, destination: int
    ) -> None:
        message: Any = values if memory is None else memory.outgoing(piece, values)[0]
        with context.history.waiting():
            context.communicator.send(message, destination)

    def _received(
        self, context: RankContext, memory: RowMemory | None, piece: Any, width: int, source: int
    ) -> FloatArray:
        with context.history.waiting():
            if memory is None:
                return context.communicator.recv(np.empty((len(piece), width), self._owned.parameters.dtype), source)
            message = context.communicator.recv(memory.room(piece), source)
        return memory.incoming(piece, message)

    def finish_epoch(self, context: RankContext) -> None:
        self._owned.give(context)


def stage_bounds(model: Network, n_stages: int) -> list[int]:
    """Positions of layers where stages begin, and the end: cuts that make the largest stage as small as they can."""
    starts = [*_block_starts(model), len(model.layers)]
    starts[0] = 0
    costs = [sum(array.size for layer in model.layers[a:b] for array in layer.parameters) for a, b in pairwise(starts)]

    @cache
    def best(first: int, n_left: int) -> tuple[int, tuple[int, ...]]:
        if n_left == 1:
            return sum(costs[first:]), (first,)
        options = []
        for cut in range(first + 1, len(costs) - n_left + 2):
            largest, cuts = best(cut, n_left - 1)
            options.append((max(sum(costs[first:cut]), largest), (first, *cuts)))
        return min(options)

    return [*(starts[block] for block in best(0, n_stages)[1]), len(model.layers)]


def _block_starts(model: Network) -> list[int]:
    """Where a stage may begin: at layers with weights; normalisation stays with the layer before it."""
    return [
        position
        for position, layer in enumerate(model.layers)
        if len(layer.parameters) and not isinstance(layer, BatchNorm)
    ]


def _has_batch_norm(layers: Sequence[Layer]) -> bool:
    return any(isinstance(layer, BatchNorm) or _has_batch_norm(getattr(layer, "layers", ())) for layer in layers)


def _bound_copy(layers: Sequence[Layer], owned: OwnedParameters) -> list[Layer]:
    """Copies of layers over owned vectors: everything is copied but the views, which are exchanged."""
    exchanged: dict[int, Any] = {}
    start = buffer_start = 0
    for layer in layers:
        for value, slope in zip(layer.parameters, layer.gradients, strict=True):
            stop = start + value.size
            exchanged[id(value)] = owned.parameters[start:stop].reshape(value.shape)
            exchanged[id(slope)] = owned.gradients[start:stop].reshape(value.shape)
            start = stop
        for buffer in layer.buffers:
            exchanged[id(buffer)] = owned.buffers[buffer_start : buffer_start + buffer.size].reshape(buffer.shape)
            buffer_start += buffer.size
    return copy.deepcopy(list(layers), exchanged)


def _width_before(model: Network, row: Inputs, position: int) -> int:
    """How many numbers a row has when it comes to a layer."""
    values = row
    for layer in model.layers[:position]:
        values = layer.forward(values, None)
    return int(values.shape[1])
