"""Differential privacy: clip what each participant sends, add noise to the sum, and account for what was revealed.

The accountant follows the Renyi divergence of the sampled Gaussian mechanism (Mironov, Talwar, Zhang 2019) at whole
orders: each round multiplies nothing and adds one number for each order, and the best order gives epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.random_numbers import normal

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)


def clipped(update: FloatArray, length: float) -> FloatArray:
    """The update, shortened to at most this Euclidean length."""
    norm = float(np.linalg.norm(update.astype(np.float64)))
    return update if norm <= length else update * update.dtype.type(length / norm)


def gaussian_noise(key: int, count: int, deviation: float) -> FloatArray:
    """Noise for a sum. It is a function of `key`: whoever knows the seed of a run can take it away again."""
    return deviation * normal(key, count)


def renyi_divergence(order: int, sampling_rate: float, noise_multiplier: float) -> float:
    """Of one round in which every participant takes part with probability `sampling_rate`, at a whole order."""
    if sampling_rate == 0:
        return 0.0
    if sampling_rate == 1:
        return order / (2.0 * noise_multiplier**2)
    terms = [
        _log_binomial(order, k)
        + k * math.log(sampling_rate)
        + (order - k) * math.log1p(-sampling_rate)
        + (k * k - k) / (2.0 * noise_multiplier**2)
        for k in range(order + 1)
    ]
    return _log_sum(terms) / (order - 1)


def spent_epsilon(noise_multiplier: float, sampling_rate: float, n_rounds: int, delta: float) -> float:
    """The epsilon of (epsilon, delta) differential privacy after so many rounds; infinite without noise."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}")
    if noise_multiplier == 0:
        return math.inf if n_rounds else 0.0
    if n_rounds == 0:
        return 0.0
    return min(
        n_rounds * renyi_divergence(order, sampling_rate, noise_multiplier) + _epsilon_of_order(order, delta)
        for order in ORDERS
    )


def rounds_within(noise_multiplier: float, sampling_rate: float, epsilon: float, delta: float) -> int:
    """How many rounds may be run without spending more than `epsilon`."""
    fits = [
        (epsilon - _epsilon_of_order(order, delta)) / renyi_divergence(order, sampling_rate, noise_multiplier)
        for order in ORDERS
    ]
    return max(0, math.floor(max(fits)))


def _epsilon_of_order(order: int, delta: float) -> float:
    """What turning a Renyi divergence into (epsilon, delta) costs (Canonne, Kamath, Steinke 2020, proposition 12)."""
    return math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_sum(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(each - top) for each in logs))
