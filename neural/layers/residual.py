"""A residual block: the inner layers' output added to the input, projected where their widths differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlgbm.neural.layers.base import Layer, LayerBlueprint
from dmlgbm.neural.layers.dense import Dense
from dmlgbm.neural.model import FloatArray, Inputs, Pass


class Residual(Layer):
    """The first inner layer must be one that leaves its input alone, such as `Dense`."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = list(layers)
        self.projection: Dense | None = None

    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        width, self._blueprints = n_inputs, []
        for layer in self.layers:
            self._blueprints.append(layer.blueprint(width))
            width = self._blueprints[-1].n_outputs
        if width != n_inputs:
            self.projection = Dense(width, bias=False)
            self._blueprints.append(self.projection.blueprint(n_inputs))
        parameters = [array for blueprint in self._blueprints for array in blueprint.parameters]
        return LayerBlueprint(
            width, parameters, [array for blueprint in self._blueprints for array in blueprint.buffers]
        )

    def bind(
        self, parameters: Sequence[FloatArray], gradients: Sequence[FloatArray], buffers: Sequence[FloatArray]
    ) -> None:
        super().bind(parameters, gradients, buffers)
        first, first_buffer, previous = 0, 0, None
        inner = [*self.layers, *([] if self.projection is None else [self.projection])]
        for index, (layer, blueprint) in enumerate(zip(inner, self._blueprints, strict=True)):
            layer.name, layer.seed = f"{self.name}.{index}", self.seed
            layer.may_overwrite = previous is not None and not previous.needs_output
            layer.passes_gradient = self.passes_gradient or (index > 0 and layer is not self.projection)
            last, last_buffer = first + len(blueprint.parameters), first_buffer + len(blueprint.buffers)
            layer.bind(parameters[first:last], gradients[first:last], buffers[first_buffer:last_buffer])
            first, first_buffer, previous = last, last_buffer, layer

    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        values = inputs
        for layer in self.layers:
            values = layer.forward(values, pass_)
        skipped = inputs if self.projection is None else self.projection.forward(inputs, pass_)
        return values + skipped

    def backward(self, gradient: FloatArray) -> FloatArray | None:
        skipped = gradient.copy() if self.projection is None else self.projection.backward(gradient)
        inner: FloatArray | None = gradient
        for layer in reversed(self.layers):
            assert inner is not None
            inner = layer.backward(inner)
        if inner is None or skipped is None:
            return None
        return np.add(inner, skipped, out=inner)
