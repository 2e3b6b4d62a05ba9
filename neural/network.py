"""A network: an ordered list of layers over one flat vector of parameters, one of gradients, one of buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.layers.base import ArrayBlueprint, Layer
from dmlgbm.neural.losses import Loss
from dmlgbm.neural.model import FloatArray, Inputs, LayerReady, Model, ParameterPart, Pass

# Predictions run in pieces of so many rows: the values between layers stay in the cache.
_ROWS_OF_A_PREDICTION = 2048


class Network(Model):
    """Binds layers to fresh vectors; initial values depend on `seed` and the positions of the layers only."""

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, n_inputs: int, *, dtype: npt.DTypeLike = np.float32, seed: int = 0
    ) -> None:
        self.layers = list(layers)
        self.loss = loss
        self.n_inputs = n_inputs
        self._trace: list[Any] = []
        blueprints, width = [], n_inputs
        for layer in self.layers:
            blueprints.append(layer.blueprint(width))
            width = blueprints[-1].n_outputs
        self.n_outputs = width
        self.parameters = _values([blueprint.parameters for blueprint in blueprints], dtype, seed)
        self.buffers = _values([blueprint.buffers for blueprint in blueprints], dtype, seed)
        self.gradients = np.zeros_like(self.parameters)
        self._bind(
            [blueprint.parameters for blueprint in blueprints], [blueprint.buffers for blueprint in blueprints], seed
        )

    def _bind(
        self, parameters: Sequence[Sequence[ArrayBlueprint]], buffers: Sequence[Sequence[ArrayBlueprint]], seed: int
    ) -> None:
        parts: list[ParameterPart] = []
        values, slopes, others = (
            _views(v, p)
            for v, p in (
                (self.parameters, parameters),
                (self.gradients, parameters),
                (self.buffers, buffers),
            )
        )
        # The number of a layer among those with parameters, by its position among all layers.
        self._number_of: list[int | None] = []
        offset = n_numbered = 0
        for position, (layer, arrays) in enumerate(zip(self.layers, parameters, strict=True)):
            layer.name = f"layer {position} ({type(layer).__name__})"
            layer.seed = seed
            layer.passes_gradient = position > 0
            layer.may_overwrite = position > 0 and not self.layers[position - 1].needs_output
            layer.bind(next(values), next(slopes), next(others))
            for array in arrays:
                parts.append(
                    ParameterPart(
                        f"{layer.name}.{array.name}", n_numbered, offset, offset + array.size, array.shape, array.decays
                    )
                )
                offset += array.size
            self._number_of.append(n_numbered if arrays else None)
            n_numbered += 1 if arrays else 0
        self.parts = tuple(parts)

    def outputs(self, inputs: Inputs) -> FloatArray:
        n_rows = inputs.shape[0]
        result = np.empty((n_rows, self.n_outputs), self.parameters.dtype)
        for first in range(0, n_rows, _ROWS_OF_A_PREDICTION):
            piece = inputs[first : first + _ROWS_OF_A_PREDICTION]
            for layer in self.layers:
                piece = layer.forward(piece, None)
            result[first : first + _ROWS_OF_A_PREDICTION] = piece
        return result

    def forward(self, inputs: Inputs, pass_: Pass) -> FloatArray:
        """The outputs in training; what the backward pass needs is kept in the layers."""
        values = inputs
        self._trace = [inputs]
        for layer in self.layers:
            values = layer.forward(values, pass_)
            self._trace.append(values)
        return values

    def backward(self, gradient: FloatArray, on_layer_ready: LayerReady | None = None) -> None:
        """Fill the gradients from that of the outputs, last layer first."""
        slope: FloatArray | None = gradient
        for position in range(len(self.layers) - 1, -1, -1):
            assert slope is not None
            slope = self.layers[position].backward(slope)
            number = self._number_of[position]
            if on_layer_ready is not None and number is not None:
                on_layer_ready(number)

    def compute_gradients(
        self, inputs: Inputs, targets: Any, pass_: Pass, on_layer_ready: LayerReady | None = None
    ) -> float:
        # Values that are not finite end training with an error that names the layer; numpy need not warn before.
        with np.errstate(over="ignore", invalid="ignore"):
            outputs = self.forward(inputs, pass_)
            loss, gradient = self.loss.value_and_gradient(outputs, targets, pass_.weights)
            gradient *= 1.0 / pass_.n_rows
            self.backward(gradient, on_layer_ready)
        return loss / pass_.n_rows

    def loss_of_outputs(self, outputs: FloatArray, targets: Any) -> float:
        return self.loss.value(outputs, targets)

    def name_of_bad_layer(self) -> str:
        for position, values in enumerate(self._trace[:1] + self._trace[1:]):
            numbers = values if isinstance(values, np.ndarray) else values.data
            if not np.isfinite(numbers).all():
                return "the inputs" if position == 0 else self.layers[position - 1].name
        return f"the loss ({self.loss.name})"


def _values(blueprints: Sequence[Sequence[ArrayBlueprint]], dtype: npt.DTypeLike, seed: int) -> FloatArray:
    arrays = [
        array.initialise(hash_of(seed, "initial", position, array.name, number), array.shape).reshape(-1)
        for position, layer in enumerate(blueprints)
        for number, array in enumerate(layer)
    ]
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)


def _views(vector: FloatArray, blueprints: Sequence[Sequence[ArrayBlueprint]]) -> Iterator[list[FloatArray]]:
    """For each layer the arrays of its blueprints as views into the vector."""
    offset = 0
    for layer in blueprints:
        views = []
        for array in layer:
            views.append(vector[offset : offset + array.size].reshape(array.shape))
            offset += array.size
        yield views
