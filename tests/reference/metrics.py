"""Naive oracles for the metrics: one row, pair or query at a time, straight from the definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

SMALLEST_PREDICTION = 2.0**-52


def log_loss(class_number: int, probabilities: Sequence[float]) -> float:
    return -math.log(max(probabilities[class_number], SMALLEST_PREDICTION))


def error(class_number: int, probabilities: Sequence[float]) -> float:
    return float(list(probabilities).index(max(probabilities)) != class_number)


def quantile_loss(target: float, prediction: float, alpha: float) -> float:
    return alpha * (target - prediction) if target >= prediction else (1.0 - alpha) * (prediction - target)


def poisson_deviance(target: float, prediction: float) -> float:
    logarithm = math.log(target / prediction) if target > 0.0 else 0.0
    return 2.0 * (target * logarithm - target + prediction)


def mean(values: Sequence[float], weight: Sequence[float] | None) -> float:
    """The weighted mean in rational arithmetic, rounded once."""
    weights = [Fraction(w) for w in weight] if weight is not None else [Fraction(1)] * len(values)
    return float(sum(Fraction(v) * w for v, w in zip(values, weights, strict=True)) / sum(weights))


def area_under_curve(target: Sequence[float], score: Sequence[float], weight: Sequence[float] | None) -> float:
    """The weighted share of (positive, negative) pairs in the right order, a tie counting half."""
    weights = [Fraction(w) for w in weight] if weight is not None else [Fraction(1)] * len(target)
    concordant = Fraction(0)
    total = Fraction(0)
    for positive in range(len(target)):
        for negative in range(len(target)):
            if target[positive] > target[negative]:
                pair = weights[positive] * weights[negative]
                total += pair
                if score[positive] > score[negative]:
                    concordant += pair
                elif score[positive] == score[negative]:
                    concordant += pair / 2
    return float(concordant / total) if total > 0 else 1.0


def ndcg(labels: Sequence[int], score: Sequence[float], n_positions: int) -> float:
    """NDCG of one query."""
    ranked = sorted(range(len(labels)), key=lambda row: (-score[row], row))
    reached = _discounted_gain([labels[row] for row in ranked[:n_positions]])
    ideal = _discounted_gain(sorted(labels, reverse=True)[:n_positions])
    return reached / ideal if ideal > 0.0 else 1.0


def _discounted_gain(labels: Sequence[int]) -> float:
    return sum((2.0**label - 1.0) / math.log2(position + 2) for position, label in enumerate(labels))


def average_precision(labels: Sequence[int], score: Sequence[float], n_positions: int) -> float:
    """Average precision of one query."""
    ranked = sorted(range(len(labels)), key=lambda row: (-score[row], row))[:n_positions]
    n_relevant = sum(label > 0 for label in labels)
    if n_relevant == 0:
        return 1.0
    relevant = [labels[row] > 0 for row in ranked]
    precisions = [
        sum(relevant[: position + 1]) / (position + 1) for position in range(len(ranked)) if relevant[position]
    ]
    return sum(precisions) / min(n_relevant, len(ranked))


def reciprocal_rank(labels: Sequence[int], score: Sequence[float], n_positions: int) -> float:
    """One over the position of the first relevant row of one query, 0 if it is not among the first ones."""
    ranked = sorted(range(len(labels)), key=lambda row: (-score[row], row))
    for position, row in enumerate(ranked[:n_positions], 1):
        if labels[row] > 0:
            return 1.0 / position
    return 0.0


def expected_reciprocal_rank(labels: Sequence[int], score: Sequence[float], n_positions: int, largest: int) -> float:
    """The expectation over where a reader of one query stops, in rational arithmetic."""
    ranked = sorted(range(len(labels)), key=lambda row: (-score[row], row))
    expected, reads_on = Fraction(0), Fraction(1)
    for position, row in enumerate(ranked[:n_positions], 1):
        satisfied = Fraction(2 ** labels[row] - 1, 2**largest)
        expected += reads_on * satisfied / position
        reads_on *= 1 - satisfied
    return float(expected)


def calibration_error(
    probability: Sequence[float], came_true: Sequence[float], weight: Sequence[float] | None, n_bins: int
) -> float:
    """Row by row into bins, in rational arithmetic."""
    weights = [Fraction(w) for w in weight] if weight is not None else [Fraction(1)] * len(probability)
    distance = [Fraction(0)] * n_bins
    for p, y, w in zip(probability, came_true, weights, strict=True):
        k = 0
        while k < n_bins - 1 and p > (k + 1) / n_bins:
            k += 1
        distance[k] += w * (Fraction(p) - Fraction(y))
    return float(sum(map(abs, distance), Fraction(0)) / sum(weights))
