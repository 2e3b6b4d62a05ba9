"""Loops over rows with survival times: a time is negative where the event had not come when the row was last seen.

Accelerated failure times: the logarithm of a time is the score plus `scale` times noise of a known distribution. z is
that noise. The loss of a row with an event is minus the logarithm of the density of its time, of a censored row minus
that of the probability of a longer time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import exp, log

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SingleArray = npt.NDArray[np.float32]

NORMAL, LOGISTIC, EXTREME = range(3)

_SQRT_HALF = 0.7071067811865476
_SQRT_TWO_OVER_PI = 0.7978845608028654
_LOG_SQRT_TWO_PI = 0.9189385332046727
# Beyond it the curvature of a censored row is 1 but for rounding.
_FAR = 50.0
# XGBoost's limits of a row's derivatives.
_LARGEST_DERIVATIVE = 15.0
_SMALLEST_HESSIAN = 1e-16


@inlined
def _scaled_complement(x: float) -> float:
    """exp(x^2) erfc(x) for x of at least 0, to 7 digits (the Chebyshev fit of Numerical Recipes' erfcc)."""
    t = 1.0 / (1.0 + 0.5 * x)
    series = -0.82215223 + t * 0.17087277
    series = 1.48851587 + t * series
    series = -1.13520398 + t * series
    series = 0.27886807 + t * series
    series = -0.18628806 + t * series
    series = 0.09678418 + t * series
    series = 0.37409196 + t * series
    series = 1.00002368 + t * series
    return t * exp(-1.26551223 + t * series)


@inlined
def _normal_hazard(z: float) -> float:
    """The density at z over the probability of more."""
    scaled = _scaled_complement(abs(z) * _SQRT_HALF)
    if z >= 0.0:
        return _SQRT_TWO_OVER_PI / scaled
    peak = exp(-0.5 * z * z)
    return 0.5 * _SQRT_TWO_OVER_PI * peak / (1.0 - 0.5 * peak * scaled)


@inlined
def _slope_and_curvature(kind: int, z: float, event: bool) -> tuple[float, float]:
    """Of the loss as a function of z."""
    if kind == NORMAL:
        if event:
            return z, 1.0
        hazard = _normal_hazard(z)
        return hazard, max(hazard * (hazard - z), 0.0) if z < _FAR else 1.0
    if kind == LOGISTIC:
        share = 1.0 / (1.0 + exp(-z))
        factor = 2.0 if event else 1.0
        return factor * share - (1.0 if event else 0.0), factor * share * (1.0 - share)
    power = exp(z)
    return power - (1.0 if event else 0.0), power


@inlined
def _loss(kind: int, z: float, event: bool) -> float:
    """Without the logarithm of the unit of time."""
    if kind == NORMAL:
        if event:
            return 0.5 * z * z + _LOG_SQRT_TWO_PI
        scaled = _scaled_complement(abs(z) * _SQRT_HALF)
        if z >= 0.0:
            return 0.5 * z * z - log(0.5 * scaled)
        return -log(1.0 - 0.5 * exp(-0.5 * z * z) * scaled)
    if kind == LOGISTIC:
        longer = max(z, 0.0) + log(1.0 + exp(-abs(z)))
        return 2.0 * longer - z if event else longer
    return exp(z) - z if event else exp(z)


@kernel
def failure_time_gradients(
    target: FloatArray,
    weight: FloatArray,
    kind: int,
    scale: float,
    least_curvature: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """The derivatives by the scores, which are logarithms of times."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        slope, curvature = _slope_and_curvature(kind, (log(abs(target[row])) - score[row]) / scale, target[row] > 0.0)
        gradient = min(max(-slope / scale, -_LARGEST_DERIVATIVE), _LARGEST_DERIVATIVE)
        hessian = min(max(curvature / (scale * scale), _SMALLEST_HESSIAN), _LARGEST_DERIVATIVE)
        gradients[row] = np.float32(row_weight * gradient)
        hessians[row] = np.float32(row_weight * max(hessian, least_curvature * abs(gradient)))


@kernel
def failure_time_losses(
    target: FloatArray, prediction: FloatArray, kind: int, scale: float, losses: FloatArray
) -> None:
    """The loss of each row, for predicted times."""
    for row in range(target.size):
        event = target[row] > 0.0
        time = log(abs(target[row]))
        losses[row] = _loss(kind, (time - log(prediction[row])) / scale, event)
        if event:
            losses[row] += log(scale) + time


@inlined
def _count(counts: IntArray, rank: int) -> None:
    place = rank + 1
    while place < counts.size:
        counts[place] += 1
        place += place & -place


@inlined
def _n_below(counts: IntArray, rank: int) -> int:
    """How many were counted with a lower rank."""
    found = 0
    place = rank
    while place > 0:
        found += counts[place]
        place -= place & -place
    return found


@kernel
def concordant_pairs(
    time_rank: IntArray, risk_rank: IntArray, event: npt.NDArray[np.uint8], counts: IntArray, pairs: IntArray
) -> None:
    """Count pairs of which it is known who lived longer: those in the right order, those of equal risk, and all.

    Rows are in the order of their times; ranks count from 0, and equal values share one. `counts`, zeros, has a place
    for each rank of risk and one more: it is a Fenwick tree of those that lived longer.
    """
    n_longer = 0
    stop = time_rank.size
    while stop > 0:
        start = stop - 1
        while start > 0 and time_rank[start - 1] == time_rank[stop - 1]:
            start -= 1
        # Censored rows of this time outlive its events.
        for row in range(stop - 1, start - 1, -1):
            if event[row] == 0:
                _count(counts, risk_rank[row])
                n_longer += 1
        for row in range(start, stop):
            if event[row] != 0:
                below = _n_below(counts, risk_rank[row])
                pairs[0] += below
                pairs[1] += _n_below(counts, risk_rank[row] + 1) - below
                pairs[2] += n_longer
        for row in range(start, stop):
            if event[row] != 0:
                _count(counts, risk_rank[row])
                n_longer += 1
        stop = start
