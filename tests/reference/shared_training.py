"""Slow and obvious versions of what strategies do: one process, all models side by side, plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dmlgbm.neural.model import Model, Pass


def gradient(model: Model, X: np.ndarray, y: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The gradient of the mean loss of some rows, at some weights."""
    model.parameters[...] = weights
    model.compute_gradients(X[rows], y[rows], Pass(0, rows, len(rows)))
    return model.gradients.copy()


def descend(
    model: Model, X: np.ndarray, y: np.ndarray, batches: Sequence[np.ndarray], weights: np.ndarray, rate: float
) -> np.ndarray:
    """Plain gradient descent over batches."""
    for rows in batches:
        weights = weights - rate * gradient(model, X, y, rows, weights)
    return weights


def krum(updates: np.ndarray, n_hostile: int) -> np.ndarray:
    """The update with the smallest sum of squared distances to its n - f - 2 nearest others."""
    n = len(updates)
    scores = []
    for i in range(n):
        distances = sorted(float(np.sum((updates[i] - updates[j]) ** 2)) for j in range(n) if j != i)
        scores.append(sum(distances[: n - n_hostile - 2]))
    return updates[scores.index(min(scores))]


def trimmed_mean(updates: np.ndarray, n_hostile: int) -> np.ndarray:
    """Value by value, without the smallest and largest ones."""
    result = []
    for column in updates.T:
        kept = sorted(column.tolist())[n_hostile : len(column) - n_hostile]
        result.append(sum(kept) / len(kept))
    return np.array(result)


def renyi_by_integration(order: int, rate: float, noise: float) -> float:
    """log E_{x ~ N(0, s^2)} [((1 - q) + q exp((2x - 1) / (2 s^2)))^order] / (order - 1), on a fine grid."""
    x = np.linspace(-12 * noise - order, 12 * noise + order, 400_001)
    density = np.exp(-(x**2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
    ratio = (1 - rate) + rate * np.exp((2 * x - 1) / (2 * noise**2))
    return math.log(float(np.sum(density * ratio**order) * (x[1] - x[0]))) / (order - 1)


def smallest_largest_stage(costs: Sequence[int], n_stages: int) -> int:
    """The largest stage of the best cut, over all cuts."""
    best = sum(costs)
    for cuts in itertools.combinations(range(1, len(costs)), n_stages - 1):
        bounds = [0, *cuts, len(costs)]
        best = min(best, max(sum(costs[a:b]) for a, b in itertools.pairwise(bounds)))
    return best
