"""Objectives for numbers with outliers, relative errors and expectiles; the score is the prediction."""

from __future__ import annotations

import math

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import EXPECTILE, FAIR, HUBER, LOG_COSH, LOSS
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.regression_gradients import relative_gradients
from dmlgbm.gbdt.objectives.averages import shared_expectile, shared_percentile, weighted_mean
from dmlgbm.gbdt.objectives.pointwise import OfPercentiles, Smooth
from dmlgbm.gbdt.objectives.protocol import FloatArray, IntArray, SingleArray
from dmlgbm.gbdt.objectives.targets import require_real

# Bits of the largest weight that a target of "mape" gives its residual, and of the sum over all rows.
_MOST_UNIT_BITS = 30
_SUM_BITS = 61


class _OfDifferences(Smooth):
    """A loss of the difference of score and target, with a number of its own."""

    _kind: int
    _constant = 0.0

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange)
        require_real(self.name, target)

    def _base_score(self) -> float:
        return weighted_mean(self._target, self.weights.given, self._exchange)

    def _loss(self) -> RecordArray:
        return np.array([(self._kind, self._constant, 0.0)], LOSS)


class Huber(_OfDifferences):
    """Squared error up to a threshold and absolute error beyond; hessians are constant, as in LightGBM."""

    name = "huber"
    _kind = HUBER

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, threshold: float) -> None:
        super().__init__(target, weights, exchange)
        self.constant_hessian = weights.given is None or weights.repeats is not None
        self._constant = threshold


class Fair(_OfDifferences):
    """Squared error near the target that grows into the absolute one far from it."""

    name = "fair"
    _kind = FAIR

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, scale: float) -> None:
        super().__init__(target, weights, exchange)
        self._constant = scale


class LogCosh(_OfDifferences):
    """log(cosh(score - target)): half the squared error near the target, the absolute one far from it."""

    name = "logcosh"
    _kind = LOG_COSH

    def _base_score(self) -> float:
        return shared_percentile(self._target, self.weights.of_percentiles, 0.5, self._exchange)


class Expectile(_OfDifferences):
    """Squared errors of which those of too low scores count as the level says; at 0.5 the score is the mean."""

    name = "expectile"
    _kind = EXPECTILE

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, level: float) -> None:
        super().__init__(target, weights, exchange)
        self._constant = level

    def _base_score(self) -> float:
        return shared_expectile(self._target, self.weights.given, self._constant, self._exchange)


class AbsolutePercentageError(OfPercentiles):
    """The absolute error over the magnitude of the target; the score is a median weighted by the inverse of that."""

    name = "mape"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange, 0.5)

    def _weight_of_residuals(self) -> FloatArray | IntArray:
        inverse: FloatArray = 1.0 / np.maximum(np.abs(self._target), 1.0)
        weights = self.weights
        if weights.given is not None and weights.repeats is None:
            return inverse * weights.given
        # Whole numbers of a unit that does not depend on whether rows are repeated or weigh more.
        if weights.repeats is None:
            counts = np.ones(len(inverse), np.int64)
            total = int(self._exchange.reduce_sum(np.array([len(inverse)], np.int64))[0])
        else:
            counts, total = weights.repeats.counts, weights.repeats.total
        heaviest = float(self._exchange.reduce_max(np.array([inverse[counts > 0].max(initial=0.0)]))[0])
        bits = min(_MOST_UNIT_BITS, _SUM_BITS - total.bit_length())
        units = np.rint(np.ldexp(inverse, bits - math.frexp(heaviest)[1])).astype(np.int64)
        return np.maximum(units, 1) * counts

    def _write(
        self,
        target: FloatArray,
        weight: FloatArray,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        relative_gradients(target, weight, score, gradients, hessians)
