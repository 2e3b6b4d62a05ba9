"""Objectives with one score a row, whose loss is a sum over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import BINARY, LOSS, POISSON, SQUARED_ERROR, loss_gradients, slope_gradients
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.kernels.survival import failure_time_gradients
from dmlgbm.gbdt.metrics.survival import DISTRIBUTIONS
from dmlgbm.gbdt.objectives.averages import SMALLEST_SHARE, shared_percentile, weighted_mean
from dmlgbm.gbdt.objectives.protocol import (
    LARGEST_LOGARITHMIC_STEP,
    NO_LARGEST_STEP,
    FloatArray,
    RareClassLimits,
    RowLoss,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.rare_classes import rare_class_limits
from dmlgbm.gbdt.objectives.targets import class_numbers, require_events, require_real, require_target
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers

# exp(0.7): LightGBM's poisson_max_delta_step, which keeps steps short where the rate is close to zero.
_POISSON_HESSIAN_FACTOR = 2.0137527074704766


class _Pointwise(ABC):
    """One output, and a loop over rows that may run in any ranges."""

    name: str
    n_outputs = 1
    constant_hessian = False
    leaf_percentile: float | None = None
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


class _Smooth(_Pointwise):
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


class Binary(_Smooth):
    """Log loss of two classes, 0 and 1; the score is the log-odds of class 1."""

    name = "binary"
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange)
        self._label = class_numbers(self.name, target, 2, "classes")

    def rare_class_limits(self) -> RareClassLimits:
        if self.largest_step == NO_LARGEST_STEP:
            return no_limits(1)
        # One score tells both classes apart: the rarer one counts.
        limits = rare_class_limits(self._label, self.weights, 2, self._exchange)
        return RareClassLimits(limits.leaf_hessians.max(keepdims=True), limits.root_gains.max(keepdims=True))

    def _base_score(self) -> float:
        mean = weighted_mean(self._target, self.weights.given, self._exchange)
        share = min(max(mean, SMALLEST_SHARE), 1.0 - SMALLEST_SHARE)
        return _log(share / (1.0 - share))

    def _loss(self) -> RecordArray:
        return np.array([(BINARY, 1.0, 1.0 / self.largest_step)], LOSS)


class SquaredError(_Smooth):
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


class _Kinked(_Pointwise):
    """A loss with constant slopes on both sides of the target; the score is a percentile."""

    leaf_percentile: float

    def __init__(
        self,
        target: FloatArray,
        weights: RowWeights,
        exchange: Exchange,
        level: float,
        slopes: tuple[float, float, float],
    ) -> None:
        super().__init__(target, weights, exchange)
        self.constant_hessian = weights.given is None or weights.repeats is not None
        self.leaf_percentile = level
        self._slopes = np.array(slopes)
        require_real(self.name, target)

    def row_loss(self) -> None:
        return None

    def _base_score(self) -> float:
        return shared_percentile(self._target, self.weights.of_percentiles, self.leaf_percentile, self._exchange)

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

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange, 0.5, (-1.0, 0.0, 1.0))


class Quantile(_Kinked):
    """The pinball loss; the score is the quantile at level alpha."""

    name = "quantile"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, alpha: float) -> None:
        if not 0.0 < alpha < 1.0:
            raise ParameterError(f"alpha={alpha!r} is out of range: the quantile level must be above 0 and below 1.")
        super().__init__(target, weights, exchange, alpha, (-alpha, 1.0 - alpha, 1.0 - alpha))


class Poisson(_Smooth):
    """Counts and other rates that are never negative; the score is the logarithm of the mean."""

    name = "poisson"
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange)
        require_real(self.name, target)
        require_target(self.name, target, target >= 0.0, "targets of at least 0")
        self._mean = weighted_mean(target, weights.given, exchange)
        if self._mean == 0.0:
            raise ValueError("All targets (of rows with any weight) are 0, but objective 'poisson' needs one above 0.")

    def _base_score(self) -> float:
        return _log(self._mean)

    def _loss(self) -> RecordArray:
        return np.array([(POISSON, _POISSON_HESSIAN_FACTOR, 1.0 / self.largest_step)], LOSS)


class FailureTime(_Pointwise):
    """Accelerated failure times; the score is the logarithm of a time, and what is left has a known distribution."""

    name = "aft"
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(
        self, target: FloatArray, weights: RowWeights, exchange: Exchange, distribution: str, scale: float
    ) -> None:
        super().__init__(target, weights, exchange)
        require_events(self.name, target, exchange)
        self._kind = DISTRIBUTIONS[distribution]
        self._scale = scale

    def row_loss(self) -> None:
        return None

    def _base_score(self) -> float:
        return weighted_mean(logarithm(np.abs(self._target)), self.weights.given, self._exchange)

    def _write(
        self,
        target: FloatArray,
        weight: FloatArray,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        least_curvature = 1.0 / self.largest_step
        failure_time_gradients(target, weight, self._kind, self._scale, least_curvature, score, gradients, hessians)


def _log(value: float) -> float:
    return float(logarithm(np.array([value]))[0])
