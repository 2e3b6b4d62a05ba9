"""Metrics that are the loss of an objective of the same name, on the scale of the target.

Logarithms and powers are made of the engine's own log and exp, so that values have the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.gradients import write_exponential
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.metrics.exact_mean import ExactMean
from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.metrics.metric import Metric, Needs
from dmlgbm.gbdt.metrics.row_losses import RowLoss, RowMean

FloatArray = npt.NDArray[np.float64]

# LightGBM's limits, where a logarithm would be infinite.
_SMALLEST_MEAN = 1e-10
_SMALLEST_PROBABILITY = 1e-12
_LOG_TWO = 0.6931471805599453


def huber_loss(target: FloatArray, prediction: FloatArray, *, threshold: float) -> FloatArray:
    """Half the squared difference up to the threshold, a straight line beyond it."""
    distance = np.abs(target - prediction)
    return np.where(distance <= threshold, 0.5 * distance * distance, threshold * (distance - 0.5 * threshold))


def fair_loss(target: FloatArray, prediction: FloatArray, *, scale: float) -> FloatArray:
    """Fair's loss; never below zero, to which small differences may be rounded."""
    distance = np.abs(target - prediction)
    return np.maximum(scale * distance - scale * scale * logarithm(1.0 + distance / scale), 0.0)


def log_cosh_loss(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """The logarithm of the hyperbolic cosine of the difference."""
    distance = np.abs(target - prediction)
    return np.maximum(distance + logarithm(1.0 + _exponential(-2.0 * distance)) - _LOG_TWO, 0.0)


def expectile_loss(target: FloatArray, prediction: FloatArray, *, level: float) -> FloatArray:
    """The squared difference, times the level where the prediction is too low and 1 - level where it is too high."""
    difference = target - prediction
    return np.where(difference > 0.0, level, 1.0 - level) * difference * difference


def absolute_percentage_error(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """The absolute difference over the magnitude of the target, which counts as 1 at least."""
    return np.abs(target - prediction) / np.maximum(np.abs(target), 1.0)


def cross_entropy(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """Log loss for targets from 0 to 1."""
    yes = logarithm(np.maximum(prediction, _SMALLEST_PROBABILITY))
    no = logarithm(np.maximum(1.0 - prediction, _SMALLEST_PROBABILITY))
    # Above one by a rounding error, a probability would have a positive logarithm.
    return np.maximum(-target * yes - (1.0 - target) * no, 0.0)


def focal_loss(target: FloatArray, prediction: FloatArray, *, exponent: float, share: float) -> FloatArray:
    """Log loss times a power of the probability of the wrong class, and the share of the class."""
    wrong = np.abs(target - prediction)
    log_right = logarithm(np.clip(1.0 - wrong, _SMALLEST_PROBABILITY, 1.0))
    factor = _power(np.maximum(wrong, _SMALLEST_PROBABILITY), exponent) * np.where(target > 0.0, share, 1.0 - share)
    return np.maximum(-factor * log_right, 0.0)


def gamma_loss(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """Negative log-likelihood of a gamma distribution of shape 1; of either sign."""
    mean = np.maximum(prediction, _SMALLEST_MEAN)
    return target / mean + logarithm(mean)


def gamma_deviance(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """Twice the log-likelihood lost against a perfect prediction, never negative."""
    ratio = np.maximum(target, _SMALLEST_MEAN) / np.maximum(prediction, _SMALLEST_MEAN)
    return np.maximum(2.0 * (ratio - logarithm(ratio) - 1.0), 0.0)


def tweedie_loss(target: FloatArray, prediction: FloatArray, *, power: float) -> FloatArray:
    """Negative log-likelihood but for what the target alone decides; for power 1, that of Poisson, of either sign."""
    mean = np.maximum(prediction, _SMALLEST_MEAN)
    if power == 1.0:
        return mean - target * logarithm(mean)
    return _power(mean, 2.0 - power) / (2.0 - power) - target * _power(mean, 1.0 - power) / (1.0 - power)


@dataclass(frozen=True)
class SignedRowMean(RowMean):
    """The weighted mean over rows of a loss that may be negative."""

    def add_losses(self, mean: ExactMean, losses: FloatArray, weight: FloatArray | None) -> None:
        mean.add_signed(losses, weight)


_METRICS: dict[str, Callable[[str, float, LossConstants], RowMean]] = {
    "huber": lambda name, alpha, _: RowMean(name, partial(huber_loss, threshold=alpha)),
    "fair": lambda name, _, constants: RowMean(name, partial(fair_loss, scale=constants.fair_c)),
    "logcosh": lambda name, *_: RowMean(name, log_cosh_loss),
    "expectile": lambda name, alpha, _: RowMean(name, partial(expectile_loss, level=alpha)),
    "mape": lambda name, *_: RowMean(name, absolute_percentage_error),
    "gamma": lambda name, *_: SignedRowMean(name, gamma_loss),
    "gamma_deviance": lambda name, *_: RowMean(name, gamma_deviance),
    "tweedie": lambda name, _, constants: SignedRowMean(name, _tweedie(constants)),
    "cross_entropy": lambda name, *_: RowMean(name, cross_entropy),
    "focal": lambda name, _, constants: RowMean(name, _focal(constants)),
}
LOSS_METRICS = tuple(_METRICS)


def loss_metric(name: str, alpha: float, constants: LossConstants) -> Metric:
    """The metric of that name; `alpha` is the threshold of "huber" and the level of "expectile"."""
    return Metric(
        name,
        _METRICS[name](name, alpha, constants),
        higher_is_better=False,
        needs=Needs.TWO_CLASSES if name == "focal" else Needs.ONE_PREDICTION,
        targets_above=0.0 if name in ("gamma", "gamma_deviance") else None,
        instead="binary_logloss or multi_logloss" if name == "focal" else "",
    )


def _tweedie(constants: LossConstants) -> RowLoss:
    return partial(tweedie_loss, power=constants.tweedie_variance_power)


def _focal(constants: LossConstants) -> RowLoss:
    return partial(focal_loss, exponent=constants.focal_gamma, share=constants.focal_alpha)


def _exponential(values: FloatArray) -> FloatArray:
    powers = np.empty_like(values)
    write_exponential(values, powers)
    return np.where(np.isnan(values), values, powers)


def _power(values: FloatArray, exponent: float) -> FloatArray:
    return _exponential(exponent * logarithm(values))
