"""Naive oracles for the objectives: losses, gradients and first scores one row or pair at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tests.reference.further_losses import FURTHER_DERIVATIVES, FURTHER_LOSSES

FloatArray = npt.NDArray[np.float64]
_MEDIANS = ("regression_l1", "logcosh", "mape")
Derivatives = tuple[FloatArray, FloatArray]


def softmax(scores: Sequence[float]) -> list[float]:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def loss(name: str, target: float, scores: Sequence[float], alpha: float) -> float:
    """The loss of one row, without its weight."""
    score = scores[0]
    if name == "binary":
        return math.log1p(math.exp(-score)) if target == 1.0 else math.log1p(math.exp(score))
    if name == "multiclass":
        return -math.log(softmax(scores)[int(target)])
    if name == "multiclassova":
        own = [1.0 if number == target else 0.0 for number in range(len(scores))]
        return sum(loss("binary", hit, [each], alpha) for hit, each in zip(own, scores, strict=True))
    if name in FURTHER_LOSSES:
        return FURTHER_LOSSES[name](target, score, alpha)
    if name == "regression":
        return 0.5 * (score - target) ** 2
    if name == "regression_l1":
        return abs(score - target)
    if name == "quantile":
        return (1.0 - alpha) * (score - target) if score >= target else alpha * (target - score)
    return math.exp(score) - target * score


def derivatives(name: str, target: float, scores: Sequence[float], alpha: float) -> tuple[list[float], list[float]]:
    """The gradient and hessian of one row for each output, as LightGBM defines them where it has the loss."""
    score = scores[0]
    if name in FURTHER_DERIVATIVES:
        gradient, hessian = FURTHER_DERIVATIVES[name](target, score, alpha)
        return [gradient], [hessian]
    if name == "multiclassova":
        own = [1.0 if number == target else 0.0 for number in range(len(scores))]
        pairs = [derivatives("binary", hit, [each], alpha) for hit, each in zip(own, scores, strict=True)]
        return [gradient[0] for gradient, _ in pairs], [hessian[0] for _, hessian in pairs]
    if name == "binary":
        probability = 1.0 / (1.0 + math.exp(-score))
        return [probability - target], [probability * (1.0 - probability)]
    if name == "multiclass":
        shares = softmax(scores)
        factor = len(scores) / (len(scores) - 1)
        gradient = [share - (number == target) for number, share in enumerate(shares)]
        return gradient, [factor * share * (1.0 - share) for share in shares]
    if name == "regression":
        return [score - target], [1.0]
    if name == "regression_l1":
        return [float(np.sign(score - target))], [1.0]
    if name == "quantile":
        return [1.0 - alpha if score >= target else -alpha], [1.0]
    return [math.exp(score) - target], [math.exp(score + 0.7)]


def expectile(target: Sequence[float], weight: Sequence[float] | None, level: float) -> float:
    """By halving the range of the targets."""
    pairs = list(zip(target, weight or [1.0] * len(target), strict=True))
    low, high = min(target), max(target)
    for _ in range(200):
        middle = 0.5 * (low + high)
        pull = sum(w * (level if y > middle else 1.0 - level) * (y - middle) for y, w in pairs)
        low, high = (middle, high) if pull > 0.0 else (low, middle)
    return low


def percentile(target: Sequence[float], weight: Sequence[float] | None, level: float) -> float:
    if weight is None:
        return float(np.quantile(target, level))
    pairs = sorted(zip(target, weight, strict=True))
    passed = 0.0
    for value, row_weight in pairs:
        passed += row_weight
        if passed > level * sum(weight):
            return value
    return pairs[-1][0]


def base_scores(name: str, target: FloatArray, weight: FloatArray | None, n_classes: int, alpha: float) -> list[float]:
    if name == "mape":
        weight = (np.ones(len(target)) if weight is None else weight) / np.maximum(np.abs(target), 1.0)
    if name in (*_MEDIANS, "quantile"):
        return [percentile(list(target), None if weight is None else list(weight), 0.5 if name in _MEDIANS else alpha)]
    if name == "expectile":
        return [expectile(list(target), None if weight is None else list(weight), alpha)]
    if name == "multiclassova":
        shares = [float(np.average(target == number, weights=weight)) for number in range(n_classes)]
        return [math.log(share / (1.0 - share)) for share in shares]
    if name == "multiclass":
        return [math.log(np.average(target == number, weights=weight)) for number in range(n_classes)]
    mean = float(np.average(target, weights=weight))
    if name in ("binary", "focal", "cross_entropy"):
        return [math.log(mean / (1.0 - mean))]
    return [math.log(mean)] if name in ("poisson", "gamma", "tweedie") else [mean]


def lambdarank_of_query(label: Sequence[int], score: Sequence[float], truncation_level: int) -> Derivatives:
    """LightGBM's lambdas of one query, over all pairs."""
    size = len(label)
    order = sorted(range(size), key=lambda row: -score[row])
    position_of = {row: position for position, row in enumerate(order)}
    best_labels = sorted(label, reverse=True)[:truncation_level]
    ideal = sum((2.0**value - 1.0) / math.log2(position + 2.0) for position, value in enumerate(best_labels))
    gradient, hessian = np.zeros(size), np.zeros(size)
    total = 0.0
    for high in range(size):
        for low in range(size):
            if label[high] <= label[low] or min(position_of[high], position_of[low]) >= truncation_level:
                continue
            discounts = [1.0 / math.log2(position_of[row] + 2.0) for row in (high, low)]
            change = (2.0 ** label[high] - 2.0 ** label[low]) * abs(discounts[0] - discounts[1]) / ideal
            difference = score[high] - score[low]
            if max(score) != min(score):
                change /= 0.01 + abs(difference)
            wrong = 1.0 / (1.0 + math.exp(difference))
            gradient[high] -= wrong * change
            gradient[low] += wrong * change
            hessian[[high, low]] += wrong * (1.0 - wrong) * change
            total += 2.0 * wrong * change
    factor = math.log2(1.0 + total) / total if total > 0.0 else 1.0
    return gradient * factor, hessian * factor
