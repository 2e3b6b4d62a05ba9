"""Dropout that does not depend on ranks: what a row loses is a hash of (seed, layer, step, row number, unit)."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.system.counter_random import hash_of, random_bits
from dmlgbm.neural.layers.base import Layer, LayerBlueprint, Room
from dmlgbm.neural.model import FloatArray, Inputs, Pass


class Dropout(Layer):
    """Sets a share `rate` of the values to 0 in training and scales the others up, so that predictions need nothing."""

    def __init__(self, rate: float) -> None:
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, got {rate}")
        self.rate = rate
        self._mask: FloatArray = np.empty((0, 0), np.float32)
        self._output = Room()

    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        return LayerBlueprint(n_inputs)

    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        if pass_ is None:
            return inputs
        self._mask = self._draw(inputs.shape[1], inputs.dtype, pass_)
        output = self._output.rows(len(inputs), inputs.shape[1], inputs.dtype)
        return np.multiply(inputs, self._mask, out=output)

    def backward(self, gradient: FloatArray) -> FloatArray:
        gradient *= self._mask
        return gradient

    def _draw(self, width: int, dtype: np.dtype[np.floating], pass_: Pass) -> FloatArray:
        # One hash gives four draws of 16 bits: a rate is met to 1 / 65536.
        words = -(-width // 4)
        key = hash_of(self.seed, "dropout", self.name, pass_.step)
        numbers = np.add.outer(pass_.row_numbers * words, np.arange(words)).astype(np.uint64)
        draws = random_bits(key, numbers).view(np.uint16)[:, :width]
        kept = draws >= np.uint16(min(65535, round(self.rate * 65536)))
        return kept.astype(dtype) * dtype.type(1.0 / (1.0 - self.rate))
