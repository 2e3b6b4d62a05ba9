"""What a place at which rows are shown adds to their grades: rows that were shown first are clicked more often.

LightGBM's position-unbiased LambdaRank: each place has a number, which is added to the scores of its rows before pairs
are compared, and takes a Newton step after every iteration. Trees then explain what places do not. Derivatives of a
place's rows are added up as integers, so that the numbers do not depend on where rows are.
"""

from __future__ import annotations

import math

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.objectives.protocol import FloatArray, IntArray, SingleArray

# LightGBM's, for places whose rows have no curvature.
_SMALLEST_CURVATURE = 0.001
# numpy counts with weights in float64, which adds whole numbers of so many bits without rounding.
_SUM_BITS = 53


class PositionBiases:
    """The numbers of all places, learnt from the rows of all processes."""

    def __init__(
        self,
        position: IntArray,
        weights: RowWeights,
        learning_rate: float,
        regularization: float,
        exchange: Exchange,
    ) -> None:
        self._position = position
        self._repeats = weights.repeats
        self._learning_rate = learning_rate
        self._exchange = exchange
        n_places = 1 + int(exchange.reduce_max(np.array([position.max(initial=0)], np.float64))[0])
        counts = exchange.reduce_sum(np.bincount(position, minlength=n_places).astype(np.int64))
        self._penalty = regularization * counts
        n_rows = int(counts.sum()) if self._repeats is None else self._repeats.total
        self._unit_bits = _SUM_BITS - n_rows.bit_length()
        self.values: FloatArray = np.zeros(n_places)

    def added_to(self, score: FloatArray) -> FloatArray:
        """The scores [1, row] that pairs are compared by."""
        return score + self.values[self._position]

    def learn(self, gradients: SingleArray, hessians: SingleArray) -> None:
        """Take a step by the derivatives at those scores."""
        slope = -self._sums(gradients) - self._penalty * self.values
        curvature = self._sums(hessians) + self._penalty
        self.values = self.values + self._learning_rate * slope / (curvature + _SMALLEST_CURVATURE)

    def _sums(self, derivatives: SingleArray) -> FloatArray:
        """Over the rows of each place, in a unit that a power of two of the largest derivative decides."""
        largest = float(self._exchange.reduce_max(np.array([np.abs(derivatives).max(initial=0.0)], np.float64))[0])
        shift = self._unit_bits - math.frexp(largest)[1]
        units = np.rint(np.ldexp(derivatives.astype(np.float64), shift))
        if self._repeats is not None:
            units *= self._repeats.counts
        sums = np.bincount(self._position, units, len(self.values)).astype(np.int64)
        return np.ldexp(self._exchange.reduce_sum(sums).astype(np.float64), -shift)
