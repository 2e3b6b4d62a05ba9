"""Metrics that are the mean of a loss of each row: log loss, error rates, squared, absolute, quantile and Poisson loss.

A row loss is a function of a block of targets and predictions in plain numpy, whose elementwise arithmetic has the
same bits in every block. Predictions are what a user sees: probabilities, class-major for several classes, or values
on the scale of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import keep_higher, logarithm
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, MeanMetric

FloatArray = npt.NDArray[np.float64]
RowLoss = Callable[[FloatArray, FloatArray], FloatArray]

# The arrays of a block stay in the cache between one numpy operation and the next.
_BLOCK_ROWS = 16384

# As in scikit-learn's log_loss; for Poisson it keeps a prediction that underflowed from an infinite loss.
_SMALLEST_PREDICTION = float(np.finfo(np.float64).eps)
# What a prediction of -1 or below counts as, so that early stopping can compare: the limit of XGBoost's objective for
# squared logarithmic error, whose metric has no value there.
_LEAST_TO_LOG = -1.0 + 1e-6


def binary_log_loss(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """Minus the logarithm of the probability given to the class that came true."""
    # The prediction itself for class 1 and 1 - prediction for class 0, three times as fast as a selection.
    probability = np.abs((1.0 - target) - prediction)
    return -logarithm(np.clip(probability, _SMALLEST_PREDICTION, 1.0))


def binary_error(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """1 for a row on the wrong side of one half; one half itself predicts the first class."""
    return ((prediction > 0.5) != (target > 0.0)).astype(np.float64)


def multiclass_log_loss(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """Minus the logarithm of the probability given to the class that came true."""
    probability = prediction[target.astype(np.intp), np.arange(len(target))]
    return -logarithm(np.clip(probability, _SMALLEST_PREDICTION, 1.0))


def multiclass_error(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """1 for a row whose most probable class is not the true one; of equal classes the first is predicted."""
    return (most_probable_class(prediction) != target).astype(np.float64)


def most_probable_class(prediction: FloatArray) -> FloatArray:
    """The number of each row's most probable class; of equal ones the first, as a model predicts."""
    if prediction.ndim == 1:
        return (prediction > 0.5).astype(np.float64)
    highest = prediction[0].copy()
    predicted = np.zeros_like(highest)
    for class_number in range(1, len(prediction)):
        keep_higher(prediction[class_number], class_number, highest, predicted)
    return predicted


def squared_error(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """The squared difference."""
    return np.square(target - prediction)


def squared_log_error(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """The squared difference of the logarithms of one more than the numbers; these are above -1."""
    return np.square(_logarithm_of_one_more(target) - _logarithm_of_one_more(np.maximum(prediction, _LEAST_TO_LOG)))


def _logarithm_of_one_more(values: FloatArray) -> FloatArray:
    """log(1 + x), which keeps the digits of a small x: what 1 + x loses by rounding cancels out."""
    rounded = 1.0 + values
    added = rounded - 1.0
    return np.where(added == 0.0, values, logarithm(rounded) * (values / np.where(added == 0.0, 1.0, added)))


def absolute_error(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """The absolute difference."""
    return np.abs(target - prediction)


def quantile_loss(target: FloatArray, prediction: FloatArray, *, alpha: float) -> FloatArray:
    """The pinball loss: alpha for each unit predicted too low, 1 - alpha for each unit predicted too high."""
    difference = target - prediction
    return np.maximum(alpha * difference, (alpha - 1.0) * difference)


def poisson_deviance(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """Twice the log likelihood lost against a perfect prediction, never negative."""
    mean = np.maximum(prediction, _SMALLEST_PREDICTION)
    ratio = np.where(target > 0.0, target / mean, 1.0)
    return np.maximum(2.0 * (target * logarithm(ratio) - target + mean), 0.0)


@dataclass(frozen=True)
class RowMean(MeanMetric):
    """The weighted mean of a loss over rows."""

    name: str
    row_loss: RowLoss
    several_classes: bool | None = False  # None: it takes both kinds of predictions

    @property
    def summed(self) -> Hashable:
        return self.row_loss

    def partial_mean(
        self,
        target: FloatArray,
        prediction: FloatArray,
        weight: FloatArray | None,
        group_starts: npt.NDArray[np.int64] | None,
    ) -> ExactMean:
        if self.several_classes is not None and self.several_classes != (prediction.ndim == 2):
            expected = "one probability for each class" if self.several_classes else "one prediction"
            raise ValueError(
                f"metric {self.name!r} needs {expected} for each row and does not fit this objective; "
                "choose another eval_metric"
            )
        mean = ExactMean()
        for start in range(0, len(target), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            losses = self.row_loss(target[block], prediction[..., block])
            self.add_losses(mean, losses, None if weight is None else weight[block])
        return mean

    def add_losses(self, mean: ExactMean, losses: FloatArray, weight: FloatArray | None) -> None:
        """Add the losses of a block of rows, none of them negative."""
        mean.add(losses, weight)


class RootRowMean(RowMean):
    """The square root of a mean over rows."""

    def finish(self, mean: ExactMean) -> float:
        return math.sqrt(mean.value())
