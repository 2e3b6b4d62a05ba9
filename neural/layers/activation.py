"""Activations: functions of single values whose derivative can be told from their result."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgbm.neural.layers.base import Layer, LayerBlueprint
from dmlgbm.neural.model import FloatArray, Inputs, Pass

ACTIVATIONS = ("relu", "leaky_relu", "elu", "tanh", "logistic", "identity")
_LEAK = 0.01


class Activation(Layer):
    """Works in place where its input is not needed by the layer before."""

    needs_output: ClassVar[bool] = True

    def __init__(self, function: str) -> None:
        if function not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {function!r}")
        self.function = function
        self._result: Any = None

    @property
    def gain(self) -> float:
        """What the layer before should multiply its initial variance with."""
        return 2.0 if self.function in ("relu", "leaky_relu", "elu") else 1.0

    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        return LayerBlueprint(n_inputs)

    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        out = inputs if self.may_overwrite else np.array(inputs)
        if self.function == "relu":
            np.maximum(out, 0, out=out)
        elif self.function == "leaky_relu":
            np.maximum(out, _LEAK * out, out=out)
        elif self.function == "elu":
            np.copyto(out, np.expm1(np.minimum(out, 0)), where=out < 0)
        elif self.function == "tanh":
            np.tanh(out, out=out)
        elif self.function == "logistic":
            out *= 0.5
            np.tanh(out, out=out)
            out += 1.0
            out *= 0.5
        if pass_ is not None:
            self._result = out
        return out

    def backward(self, gradient: FloatArray) -> FloatArray:
        result = self._result
        if self.function == "relu":
            gradient *= result > 0
        elif self.function == "leaky_relu":
            gradient[result < 0] *= _LEAK
        elif self.function == "elu":
            gradient *= np.where(result > 0, gradient.dtype.type(1), result + 1)
        elif self.function == "tanh":
            gradient *= 1 - result * result
        elif self.function == "logistic":
            gradient *= result * (1 - result)
        return gradient
