"""A dense layer: inputs times weights plus biases; inputs may be a scipy sparse matrix in the first layer."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.layers.base import ArrayBlueprint, Layer, LayerBlueprint, Room, zeros
from dmlgbm.neural.model import FloatArray, Inputs, Pass
from dmlgbm.neural.random_numbers import uniform


class Dense(Layer):
    """`gain` is 2 before rectifiers (He) and 1 elsewhere (Glorot); `initial="zeros"` is for linear models."""

    def __init__(self, n_units: int, gain: float = 1.0, initial: str = "uniform", bias: bool = True) -> None:
        self.n_units = n_units
        self.gain = gain
        self.initial = initial
        self.bias = bias
        self._inputs: Inputs = None
        self._output, self._gradient = Room(), Room()

    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        fan = n_inputs if self.gain > 1.0 else (n_inputs + self.n_units) / 2
        bound = float(np.sqrt(3.0 * self.gain / max(1.0, fan)))
        initialise = zeros if self.initial == "zeros" else partial(uniform_between, bound)
        weights = ArrayBlueprint("weights", (n_inputs, self.n_units), initialise, decays=True)
        return LayerBlueprint(
            self.n_units, (weights, ArrayBlueprint("biases", (self.n_units,), zeros)) if self.bias else (weights,)
        )

    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        weights = self.parameters[0]
        if isinstance(inputs, np.ndarray):
            # Predictions may run in several threads at once, so only training uses room again.
            room = None if pass_ is None else self._output.rows(len(inputs), self.n_units, weights.dtype)
            output = np.matmul(inputs, weights, out=room)
        else:
            output = np.asarray(inputs @ weights)
        if self.bias:
            output += self.parameters[1]
        if pass_ is not None:
            self._inputs = inputs
        return output

    def backward(self, gradient: FloatArray) -> FloatArray | None:
        weights, inputs = self.parameters[0], self._inputs
        if isinstance(inputs, np.ndarray):
            np.matmul(inputs.T, gradient, out=self.gradients[0])
        else:
            self.gradients[0][...] = inputs.T @ gradient
        if self.bias:
            np.sum(gradient, axis=0, out=self.gradients[1])
        if not self.passes_gradient:
            return None
        result = self._gradient.rows(len(gradient), weights.shape[0], weights.dtype)
        return np.matmul(gradient, weights.T, out=result)


def uniform_between(bound: float, key: int, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Values spread evenly over [-bound, bound)."""
    return (bound * (2.0 * uniform(key, int(np.prod(shape))) - 1.0)).reshape(shape)
