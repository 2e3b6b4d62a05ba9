"""Loops over rows for the losses of numbers beside squared, absolute, quantile and Poisson loss.

The conventions are those of `dmlgbm.gbdt.kernels.gradients`. Where a loss flattens out, a Newton step would go far
beyond the target. A parabola that touches the loss and has its minimum at the target lies above the loss; half of its
curvature is the least that these loops write, so that no learning rate up to one makes the loss of a row grow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import kernel
from dmlgbm.gbdt.kernels.elementwise_math import exp, single

FloatArray = npt.NDArray[np.float64]
SingleArray = npt.NDArray[np.float32]


@kernel
def huber_gradients(
    target: FloatArray,
    weight: FloatArray,
    threshold: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Half the squared difference up to the threshold, a straight line beyond it; every hessian is 1."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        slope = min(max(score[row] - target[row], -threshold), threshold)
        gradients[row] = single(row_weight * slope)
    if hessians.size > 0:
        for row in range(score.size):
            hessians[row] = single(weight[row])


@kernel
def expectile_gradients(
    target: FloatArray,
    weight: FloatArray,
    level: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """The squared difference times the level where the score is too low, times 1 - level where it is too high."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        difference = score[row] - target[row]
        curvature = 2.0 * (1.0 - level) if difference > 0.0 else 2.0 * level
        gradients[row] = single(row_weight * curvature * difference)
        hessians[row] = single(row_weight * curvature)


@kernel
def fair_gradients(
    target: FloatArray,
    weight: FloatArray,
    scale: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """A difference x costs scale^2 (|x| / scale - log(1 + |x| / scale))."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        difference = score[row] - target[row]
        # The curvature of the parabola; the loss's own is its square.
        share = scale / (abs(difference) + scale)
        gradients[row] = single(row_weight * share * difference)
        hessians[row] = single(row_weight * share * max(share, 0.5))


@kernel
def log_cosh_gradients(
    target: FloatArray, weight: FloatArray, score: FloatArray, gradients: SingleArray, hessians: SingleArray
) -> None:
    """The logarithm of the hyperbolic cosine of the difference."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        difference = score[row] - target[row]
        distance = abs(difference)
        decay = exp(-2.0 * distance)
        slope = (1.0 - decay) / (1.0 + decay)
        curvature = 4.0 * decay / ((1.0 + decay) * (1.0 + decay))
        # Up to 1 from the target the loss curves more than half the parabola anyway.
        half_parabola = 0.5 * slope / max(distance, 1.0)
        gradients[row] = single(row_weight * (slope if difference > 0.0 else -slope))
        hessians[row] = single(row_weight * max(curvature, half_parabola))


@kernel
def tweedie_gradients(
    target: FloatArray,
    weight: FloatArray,
    power: float,
    least_curvature: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Negative log-likelihood of a Tweedie distribution of this power with mean exp(score); the power 2 is gamma's."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        observed = target[row] * exp((1.0 - power) * score[row])
        expected = exp((2.0 - power) * score[row])
        slope = expected - observed
        curvature = (2.0 - power) * expected + (power - 1.0) * observed
        gradients[row] = single(row_weight * slope)
        hessians[row] = single(row_weight * max(curvature, least_curvature * abs(slope)))


@kernel
def relative_gradients(
    target: FloatArray, weight: FloatArray, score: FloatArray, gradients: SingleArray, hessians: SingleArray
) -> None:
    """The absolute difference over the magnitude of the target, which counts as 1 at least; every hessian is 1."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        difference = score[row] - target[row]
        sign = 1.0 if difference > 0.0 else (-1.0 if difference < 0.0 else 0.0)
        gradients[row] = single(row_weight * sign / max(1.0, abs(target[row])))
    if hessians.size > 0:
        for row in range(score.size):
            hessians[row] = single(weight[row])
