"""Objectives with one score a row, whose loss is a sum over rows: what they share, and the plainest of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import LOSS, SQUARED_ERROR, loss_gradients, slope_gradients
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.objectives.averages import shared_percentile, weighted_mean
from dmlgbm.gbdt.objectives.protocol import (
    NO_LARGEST_STEP,
    FloatArray,
    IntArray,
    LeafPercentile,
    RareClassLimits,
    RowLoss,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.targets import require_real
from dmlgbm.gbdt.threads import Workers


class Pointwise(ABC):
    """One output, and a loop over rows that may run in any ranges."""

    name: str
    n_outputs = 1
    constant_hessian = False
    leaf_percentile: LeafPercentile | None = None
    largest_step = NO_LARGEST_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        self._target = target
        self.weights = weights
        self._exchange = exchange
        self._kernel_weight = weights.in_derivatives

    def rare_class_limits(self) -> RareClassLimits:
        return no_limits(self.n_outputs)

    def base_scores(self) -> FloatArray:
        return np.array([self._base_score()])

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        def write_rows(start: int, stop: int) -> None:
            rows = slice(start, stop)
            self._write(
                self._target[rows], self._kernel_weight[rows], score[0, rows], gradients[0, rows], hessians[0, rows]
            )

        workers.run_ranges(write_rows, len(self._target))

    @abstractmethod
    def row_loss(self) -> RowLoss | None: ...

    @abstractmethod
    def _base_score(self) -> float: ...

    @abstractmethod
    def _write(
        self,
        target: FloatArray,
        weight: FloatArray,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        """Write the derivatives of a range of rows; an empty array of weights or hessians is empty in any range."""


class Smooth(Pointwise):
    """A loss that a LOSS names."""

    def row_loss(self) -> RowLoss:
        return RowLoss(self._loss(), self._target, self._kernel_weight)

    @abstractmethod
    def _loss(self) -> RecordArray: ...

    def _write(
        self,
        target: FloatArray,
        weight: FloatArray,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        loss_gradients(self._loss(), target, weight, score, gradients, hessians)


class SquaredError(Smooth):
    """Half the squared error; the score is the mean."""

    name = "regression"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange)
        self.constant_hessian = weights.given is None or weights.repeats is not None
        require_real(self.name, target)

    def _base_score(self) -> float:
        return weighted_mean(self._target, self.weights.given, self._exchange)

    def _loss(self) -> RecordArray:
        return np.array([(SQUARED_ERROR, 1.0, 0.0)], LOSS)


class OfPercentiles(Pointwise):
    """A loss whose slope depends only on the side of the target; scores and leaf values are percentiles."""

    leaf_percentile: LeafPercentile

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, level: float) -> None:
        super().__init__(target, weights, exchange)
        self.constant_hessian = weights.given is None or weights.repeats is not None
        require_real(self.name, target)
        self.leaf_percentile = LeafPercentile(level, self._weight_of_residuals())

    def row_loss(self) -> None:
        return None

    def _weight_of_residuals(self) -> FloatArray | IntArray | None:
        return self.weights.of_percentiles

    def _base_score(self) -> float:
        percentile = self.leaf_percentile
        return shared_percentile(self._target, percentile.weight, percentile.level, self._exchange)


class _Kinked(OfPercentiles):
    """Constant slopes on both sides of the target."""

    _slopes: FloatArray  # for scores below, at and above the target

    def _write(
        self,
        target: FloatArray,
        weight: FloatArray,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        slope_gradients(target, weight, self._slopes, score, gradients, hessians)


class AbsoluteError(_Kinked):
    """The absolute error; the score is the median."""

    name = "regression_l1"
    _slopes = np.array((-1.0, 0.0, 1.0))

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange, 0.5)


class Quantile(_Kinked):
    """The pinball loss; the score is the quantile at level alpha."""

    name = "quantile"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, alpha: float) -> None:
        self._slopes = np.array((-alpha, 1.0 - alpha, 1.0 - alpha))
        super().__init__(target, weights, exchange, alpha)
