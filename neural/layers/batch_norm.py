"""Batch normalisation over the rows of a batch on all ranks, not of each rank apart.

Forward needs the sums of values and squares, backward those of the gradient and of gradient times value: one small
sum over ranks each. Sums are taken in double precision, so that their order hardly matters.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.neural.layers.base import ArrayBlueprint, Layer, LayerBlueprint, ones, zeros
from dmlgbm.neural.model import FloatArray, Inputs, Pass


class BatchNorm(Layer):
    """`momentum` is what the running mean and variance, used for predictions, keep of themselves in each step."""

    def __init__(self, momentum: float = 0.9, epsilon: float = 1e-5) -> None:
        self.momentum = momentum
        self.epsilon = epsilon
        self._pass: Pass | None = None

    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        shape = (n_inputs,)
        return LayerBlueprint(
            n_inputs,
            (ArrayBlueprint("scale", shape, ones), ArrayBlueprint("shift", shape, zeros)),
            (ArrayBlueprint("running_mean", shape, zeros), ArrayBlueprint("running_variance", shape, ones)),
        )

    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        scale, shift = self.parameters
        if pass_ is None:
            mean, variance = self.buffers
            factor = scale / np.sqrt(variance + self.epsilon)
            return inputs * factor + (shift - mean * factor)
        values = inputs.astype(np.float64)
        sums = self._sum_over_ranks(np.stack([values.sum(axis=0), np.square(values).sum(axis=0)]), pass_)
        mean64 = sums[0] / pass_.n_rows
        variance64 = np.maximum(sums[1] / pass_.n_rows - mean64 * mean64, 0.0)
        self._pass = pass_
        self._inverse = (1.0 / np.sqrt(variance64 + self.epsilon)).astype(inputs.dtype)
        self._normal = (inputs - mean64.astype(inputs.dtype)) * self._inverse
        for running, fresh in zip(self.buffers, (mean64, variance64), strict=True):
            running[...] = self.momentum * running + (1.0 - self.momentum) * fresh
        return self._normal * scale + shift

    def backward(self, gradient: FloatArray) -> FloatArray:
        assert self._pass is not None
        weighted = gradient * self._normal
        local = np.stack([gradient.sum(axis=0, dtype=np.float64), weighted.sum(axis=0, dtype=np.float64)])
        self.gradients[1][...] = local[0]
        self.gradients[0][...] = local[1]
        means = (self._sum_over_ranks(local, self._pass) / self._pass.n_rows).astype(gradient.dtype)
        gradient -= means[0]
        gradient -= self._normal * means[1]
        gradient *= self._inverse * self.parameters[0]
        return gradient

    def _sum_over_ranks(self, sums: FloatArray, pass_: Pass) -> FloatArray:
        return sums if pass_.sum_over_ranks is None else pass_.sum_over_ranks(sums)
