"""Loops over rows that turn scores into gradients and hessians, and into probabilities or rates.

The one idea: a row's numbers depend on that row alone and are computed in float64 with the engine's own exp, so any
split of the rows over threads gives the same bits. Loops count from zero over slices, because the compiler makes
vector code only of loops that cannot meet a negative index. An empty `weight` means that every row weighs one; an empty
`hessians` that every hessian is one and need not be written. A row's hessian is at least `least_curvature` times its
gradient's magnitude: then so is every leaf's, and no leaf's Newton step exceeds 1 / `least_curvature`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import exp, log, single
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.kernels.regression_gradients import (
    expectile_gradients,
    fair_gradients,
    huber_gradients,
    log_cosh_gradients,
    tweedie_gradients,
)

FloatArray = npt.NDArray[np.float64]
SingleArray = npt.NDArray[np.float32]

# Losses that target, weight and score of a row and two constants decide; OTHER_LOSS is any other.
OTHER_LOSS, SQUARED_ERROR, BINARY, POISSON, HUBER, EXPECTILE, FAIR, LOG_COSH, TWEEDIE, FOCAL = range(10)

LOSS = np.dtype(
    [
        ("kind", np.int64),
        # The loss's own number: Poisson's factor on hessians, Huber's threshold, Fair's scale, an expectile's level,
        # Tweedie's power, the exponent of focal loss.
        ("constant", np.float64),
        ("least_curvature", np.float64),
    ]
)
"""A loss as `loss_gradients` takes it."""

# exp knows no larger scores.
_LARGEST_SCORE = 708.0
# Rows handled together by softmax: its intermediate values for a few classes stay in the nearest cache.
_BLOCK_ROWS = 256


@inlined
def _sigmoid(score: float) -> float:
    return 1.0 / (1.0 + exp(-score))


@kernel
def binary_gradients(
    target: FloatArray,
    weight: FloatArray,
    least_curvature: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Log loss of the sigmoid of the score, for targets 0 and 1."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        probability = _sigmoid(score[row])
        slope = probability - target[row]
        gradients[row] = single(row_weight * slope)
        hessians[row] = single(row_weight * max(probability * (1.0 - probability), least_curvature * abs(slope)))


@kernel
def focal_gradients(
    target: FloatArray,
    weight: FloatArray,
    exponent: float,
    least_curvature: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Log loss times the probability of the wrong class to the exponent; it curves down where that is almost 1."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        sign = 2.0 * target[row] - 1.0
        # From here on all is about the class that came true.
        log_odds = min(max(sign * score[row], -_LARGEST_SCORE), _LARGEST_SCORE)
        odds = exp(log_odds)
        wrong = 1.0 / (1.0 + odds)
        right = odds * wrong
        log_wrong = -log(1.0 + odds)
        log_right = log_odds + log_wrong
        factor = exp(exponent * log_wrong)
        slope = factor * (exponent * right * log_right - wrong)
        bend = (2.0 * exponent + 1.0) * wrong + exponent * log_right * (wrong - exponent * right)
        gradients[row] = single(row_weight * sign * slope)
        hessians[row] = single(row_weight * max(factor * right * bend, least_curvature * abs(slope)))


@kernel
def squared_error_gradients(
    target: FloatArray,
    weight: FloatArray,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Half the squared difference of score and target."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        gradients[row] = single(row_weight * (score[row] - target[row]))
    if hessians.size > 0:
        for row in range(score.size):
            hessians[row] = single(weight[row])


@kernel
def slope_gradients(
    target: FloatArray,
    weight: FloatArray,
    slopes: FloatArray,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """A loss with a kink at the target; its slopes are those for scores below, at and above the target."""
    weighted = weight.size > 0
    below, at, above = slopes[0], slopes[1], slopes[2]
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        difference = score[row] - target[row]
        slope = above if difference > 0.0 else (below if difference < 0.0 else at)
        gradients[row] = single(row_weight * slope)
    if hessians.size > 0:
        for row in range(score.size):
            hessians[row] = single(weight[row])


@kernel
def poisson_gradients(
    target: FloatArray,
    weight: FloatArray,
    hessian_factor: float,
    least_curvature: float,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Negative log-likelihood of a Poisson distribution whose rate is exp(score)."""
    weighted = weight.size > 0
    for row in range(score.size):
        row_weight = weight[row] if weighted else 1.0
        rate = exp(score[row])
        slope = rate - target[row]
        gradients[row] = single(row_weight * slope)
        hessians[row] = single(row_weight * max(rate * hessian_factor, least_curvature * abs(slope)))


@kernel
def loss_gradients(
    loss: RecordArray,
    target: FloatArray,
    weight: FloatArray,
    score: FloatArray,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """The derivatives of the loss that a LOSS names."""
    kind, constant, least_curvature = loss[0].kind, loss[0].constant, loss[0].least_curvature
    if kind == SQUARED_ERROR:
        squared_error_gradients(target, weight, score, gradients, hessians)
    elif kind == BINARY:
        binary_gradients(target, weight, least_curvature, score, gradients, hessians)
    elif kind == POISSON:
        poisson_gradients(target, weight, constant, least_curvature, score, gradients, hessians)
    elif kind == HUBER:
        huber_gradients(target, weight, constant, score, gradients, hessians)
    elif kind == EXPECTILE:
        expectile_gradients(target, weight, constant, score, gradients, hessians)
    elif kind == FAIR:
        fair_gradients(target, weight, constant, score, gradients, hessians)
    elif kind == LOG_COSH:
        log_cosh_gradients(target, weight, score, gradients, hessians)
    elif kind == TWEEDIE:
        tweedie_gradients(target, weight, constant, least_curvature, score, gradients, hessians)
    elif kind == FOCAL:
        focal_gradients(target, weight, constant, least_curvature, score, gradients, hessians)


@kernel
def _softmax_of_block(score: FloatArray, start: int, stop: int, probabilities: FloatArray) -> None:
    """Write the class probabilities of rows start..stop, at most a block, to the first columns."""
    highest = np.empty(_BLOCK_ROWS)
    total = np.empty(_BLOCK_ROWS)
    for position in range(_BLOCK_ROWS):
        highest[position] = -np.inf
        total[position] = 0.0
    for number in range(score.shape[0]):
        block = score[number, start:stop]
        for position in range(block.size):
            highest[position] = max(highest[position], block[position])
    for number in range(score.shape[0]):
        block, probability = score[number, start:stop], probabilities[number]
        for position in range(block.size):
            power = exp(block[position] - highest[position])
            probability[position] = power
            total[position] += power
    for position in range(_BLOCK_ROWS):
        total[position] = 1.0 / total[position]
    for number in range(score.shape[0]):
        probability = probabilities[number]
        for position in range(stop - start):
            probability[position] *= total[position]


@kernel
def softmax_gradients(
    target: FloatArray,
    weight: FloatArray,
    hessian_factor: float,
    least_curvature: float,
    score: FloatArray,
    start: int,
    stop: int,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Log loss of the softmax of the scores [class, row], for targets that are class numbers."""
    probabilities = np.empty((score.shape[0], _BLOCK_ROWS))
    row_weight = np.empty(_BLOCK_ROWS)
    for position in range(_BLOCK_ROWS):
        row_weight[position] = 1.0
    for first in range(start, stop, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, stop)
        _softmax_of_block(score, first, last, probabilities)
        label = target[first:last]
        if weight.size > 0:
            row_weight = weight[first:last]
        for number in range(score.shape[0]):
            probability = probabilities[number]
            gradient, hessian = gradients[number, first:last], hessians[number, first:last]
            for position in range(label.size):
                share = probability[position]
                hit = 1.0 if label[position] == number else 0.0
                slope = share - hit
                curvature = max(hessian_factor * share * (1.0 - share), least_curvature * abs(slope))
                gradient[position] = single(row_weight[position] * slope)
                hessian[position] = single(row_weight[position] * curvature)


@kernel
def one_vs_all_gradients(
    target: FloatArray,
    weight: FloatArray,
    class_weight: FloatArray,
    least_curvature: float,
    score: FloatArray,
    start: int,
    stop: int,
    gradients: SingleArray,
    hessians: SingleArray,
) -> None:
    """Log loss of the sigmoid of each class's score, for targets that are class numbers.

    `class_weight` [class, 2] is the weight of the rows of all other classes and of the class's own.
    """
    weighted = weight.size > 0
    label, row_weight = target[start:stop], weight[start:stop]
    for number in range(score.shape[0]):
        others, own = class_weight[number, 0], class_weight[number, 1]
        class_score = score[number, start:stop]
        gradient, hessian = gradients[number, start:stop], hessians[number, start:stop]
        for position in range(label.size):
            is_own = label[position] == number
            factor = (own if is_own else others) * (row_weight[position] if weighted else 1.0)
            probability = _sigmoid(class_score[position])
            slope = probability - (1.0 if is_own else 0.0)
            gradient[position] = single(factor * slope)
            hessian[position] = single(factor * max(probability * (1.0 - probability), least_curvature * abs(slope)))


@kernel
def write_sigmoid(score: FloatArray, probability: FloatArray) -> None:
    """The probability of class 1 for each score."""
    for row in range(score.size):
        probability[row] = _sigmoid(score[row])


@kernel
def write_exponential(score: FloatArray, rate: FloatArray) -> None:
    """The exponential of each score."""
    for row in range(score.size):
        rate[row] = exp(score[row])


@kernel
def write_softmax(score: FloatArray, probability: FloatArray) -> None:
    """The probabilities [class, row] for scores [class, row]."""
    n_classes, n_rows = score.shape
    block = np.empty((n_classes, _BLOCK_ROWS))
    for first in range(0, n_rows, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, n_rows)
        _softmax_of_block(score, first, last, block)
        for number in range(n_classes):
            source, destination = block[number], probability[number, first:last]
            for position in range(destination.size):
                destination[position] = source[position]


@kernel
def write_shares_of_sigmoids(score: FloatArray, probability: FloatArray) -> None:
    """The sigmoids of the scores [class, row], divided by their sum over the classes."""
    n_classes, n_rows = score.shape
    total = np.zeros(n_rows)
    for number in range(n_classes):
        own_score, own = score[number], probability[number]
        for row in range(total.size):
            own[row] = _sigmoid(own_score[row])
            total[row] += own[row]
    for number in range(n_classes):
        own = probability[number]
        for row in range(total.size):
            own[row] /= total[row]
