"""Naive oracles for the objectives: losses, gradients and first scores one row or pair at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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


def lambdarank_of_query(
    label: Sequence[int],
    score: Sequence[float],
    truncation_level: int,
    *,
    normalised: bool = True,
    gains: Sequence[float] | None = None,
    all_alike: bool = False,
) -> Derivatives:
    """LightGBM's lambdas of one query, over all pairs; of pairs that are all alike, RankNet's."""
    size = len(label)
    if gains is None:
        gains = [2.0**value - 1.0 for value in range(max(label) + 1)]
    order = sorted(range(size), key=lambda row: -score[row])
    position_of = {row: position for position, row in enumerate(order)}
    best_labels = sorted(label, reverse=True)[:truncation_level]
    ideal = sum(gains[value] / math.log2(position + 2.0) for position, value in enumerate(best_labels))
    gradient, hessian = np.zeros(size), np.zeros(size)
    total = 0.0
    for high in range(size):
        for low in range(size):
            if label[high] <= label[low] or min(position_of[high], position_of[low]) >= truncation_level:
                continue
            discounts = [1.0 / math.log2(position_of[row] + 2.0) for row in (high, low)]
            change = 1.0
            if not all_alike:
                change = (gains[label[high]] - gains[label[low]]) * abs(discounts[0] - discounts[1]) / ideal
            difference = score[high] - score[low]
            if normalised and not all_alike and max(score) != min(score):
                change /= 0.01 + abs(difference)
            wrong = 1.0 / (1.0 + math.exp(difference))
            gradient[high] -= wrong * change
            gradient[low] += wrong * change
            hessian[[high, low]] += wrong * (1.0 - wrong) * change
            total += 2.0 * wrong * change
    factor = math.log2(1.0 + total) / total if normalised and total > 0.0 else 1.0
    return gradient * factor, hessian * factor


def position_biases_after(
    biases: FloatArray,
    position: Sequence[int],
    gradient: FloatArray,
    hessian: FloatArray,
    learning_rate: float,
    regularization: float,
) -> FloatArray:
    """LightGBM's Newton step, one position at a time."""
    after = biases.copy()
    for place in range(len(biases)):
        rows = [row for row in range(len(position)) if position[row] == place]
        first = -sum(float(gradient[row]) for row in rows) - biases[place] * regularization * len(rows)
        second = -sum(float(hessian[row]) for row in rows) - regularization * len(rows)
        after[place] += learning_rate * first / (abs(second) + 0.001)
    return after


_MASK = (1 << 64) - 1


def drawn(key: int, number: int) -> float:
    """splitmix64's output for this counter as a number from 0 to below 1."""
    z = (key + number * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 12) / 2.0**52


def cross_entropy_of_query(label: Sequence[int], score: Sequence[float], draws: Sequence[float]) -> Derivatives:
    """LightGBM's derivatives of XE-NDCG, from the formulas of three orders."""
    rows = range(len(label))
    if len(label) == 1:
        return np.zeros(1), np.zeros(1)
    share = softmax(score)
    relevance = [2.0 ** label[row] - draws[row] for row in rows]
    first = [share[row] - relevance[row] / sum(relevance) for row in rows]
    over_rest = [first[row] / (1.0 - share[row]) for row in rows]
    second = [share[row] * (sum(over_rest) - over_rest[row]) for row in rows]
    again = [second[row] / (1.0 - share[row]) for row in rows]
    third = [share[row] * (sum(again) - again[row]) for row in rows]
    gradient = np.array([first[row] + second[row] + third[row] for row in rows])
    return gradient, np.array([share[row] * (1.0 - share[row]) for row in rows])


def failure_time_loss(distribution: str, time: float, score: float, scale: float) -> float:
    """Minus the log-likelihood of one row with an accelerated failure time; a censored time is negative."""
    from scipy import stats

    noise: Any = {"normal": stats.norm, "logistic": stats.logistic, "extreme": stats.gumbel_l}[distribution]
    z = (math.log(abs(time)) - score) / scale
    return float(-noise.logpdf(z) + math.log(scale * time) if time > 0 else -noise.logsf(z))


def partial_likelihood(
    times: FloatArray, scores: FloatArray, weight: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Cox's negative partial log-likelihood with Breslow's ties, and its first and second derivatives."""
    total, gradient, hessian = 0.0, np.zeros(len(times)), np.zeros(len(times))
    for row in range(len(times)):
        if times[row] <= 0:
            continue
        risk = [weight[k] * math.exp(scores[k]) if abs(times[k]) >= times[row] else 0.0 for k in range(len(times))]
        share = np.array(risk) / sum(risk)
        total += weight[row] * (math.log(sum(risk)) - scores[row])
        gradient += weight[row] * share
        gradient[row] -= weight[row]
        hessian += weight[row] * share * (1.0 - share)
    return total, gradient, hessian


def concordance(times: FloatArray, risk: FloatArray) -> float:
    """Harrell's index over all pairs of which it is known who lived longer."""
    right = known = 0.0
    for one in range(len(times)):
        for other in range(len(times)):
            later = abs(times[other]) > times[one] or (abs(times[other]) == times[one] and times[other] < 0)
            if times[one] > 0 and later:
                known += 1.0
                right += 1.0 if risk[one] > risk[other] else 0.5 if risk[one] == risk[other] else 0.0
    return right / known if known else 0.5
