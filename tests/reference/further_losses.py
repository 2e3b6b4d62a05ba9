"""Naive oracles for further losses of one score: (target, score, alpha) to loss, gradient and hessian."""

from __future__ import annotations

import math
from collections.abc import Callable

from dmlgbm.gbdt.metrics.loss_constants import LossConstants

CONSTANTS = LossConstants(fair_c=1.7, tweedie_variance_power=1.3, focal_gamma=1.5, focal_alpha=0.3)
C, POWER = CONSTANTS.fair_c, CONSTANTS.tweedie_variance_power


def sigmoid(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-score))


def huber(target: float, score: float, alpha: float) -> float:
    distance = abs(score - target)
    return 0.5 * distance**2 if distance <= alpha else alpha * (distance - 0.5 * alpha)


def focal_of_probability(target: float, right: float) -> tuple[float, float, float]:
    """Focal loss as a function of the probability of the class that came true, and its first two derivatives."""
    gamma = CONSTANTS.focal_gamma
    share = CONSTANTS.focal_alpha if target == 1.0 else 1.0 - CONSTANTS.focal_alpha
    wrong, log = 1.0 - right, math.log(right)
    slope = gamma * wrong ** (gamma - 1.0) * log - wrong**gamma / right
    bend = -gamma * (gamma - 1.0) * wrong ** (gamma - 2.0) * log
    bend += 2.0 * gamma * wrong ** (gamma - 1.0) / right + wrong**gamma / right**2
    return -share * wrong**gamma * log, share * slope, share * bend


def focal(target: float, score: float, alpha: float) -> float:
    return focal_of_probability(target, sigmoid(score if target == 1.0 else -score))[0]


def focal_derivatives(target: float, score: float, alpha: float) -> tuple[float, float]:
    sign = 1.0 if target == 1.0 else -1.0
    right, wrong = sigmoid(sign * score), sigmoid(-sign * score)
    _, slope, bend = focal_of_probability(target, right)
    first, second = right * wrong, right * wrong * (wrong - right)
    return sign * slope * first, max(bend * first**2 + slope * second, 0.0)


def fair_derivatives(target: float, score: float, alpha: float) -> tuple[float, float]:
    """LightGBM's, but the hessian is at least half the curvature of the parabola around the target."""
    parabola = C / (abs(score - target) + C)
    return parabola * (score - target), max(parabola**2, 0.5 * parabola)


def log_cosh_derivatives(target: float, score: float, alpha: float) -> tuple[float, float]:
    difference = score - target
    parabola = math.tanh(difference) / difference if difference else 1.0
    return math.tanh(difference), max(1.0 / math.cosh(difference) ** 2, 0.5 * parabola)


def expectile_derivatives(target: float, score: float, alpha: float) -> tuple[float, float]:
    factor = 2.0 * (1.0 - alpha) if score > target else 2.0 * alpha
    return factor * (score - target), factor


def tweedie_derivatives(target: float, score: float, alpha: float) -> tuple[float, float]:
    observed, expected = target * math.exp(score) ** (1.0 - POWER), math.exp(score) ** (2.0 - POWER)
    return expected - observed, (2.0 - POWER) * expected - (1.0 - POWER) * observed


FURTHER_LOSSES: dict[str, Callable[[float, float, float], float]] = {
    "focal": focal,
    "cross_entropy": lambda y, s, _: math.log1p(math.exp(s)) - y * s,
    "huber": huber,
    "fair": lambda y, s, _: C**2 * (abs(s - y) / C - math.log1p(abs(s - y) / C)),
    "logcosh": lambda y, s, _: math.log(math.cosh(s - y)),
    "expectile": lambda y, s, alpha: (alpha if y > s else 1.0 - alpha) * (y - s) ** 2,
    "mape": lambda y, s, _: abs(s - y) / max(1.0, abs(y)),
    "gamma": lambda y, s, _: y * math.exp(-s) + s,
    "tweedie": lambda y, s, _: math.exp(s) ** (2 - POWER) / (2 - POWER) - y * math.exp(s) ** (1 - POWER) / (1 - POWER),
}
FURTHER_DERIVATIVES: dict[str, Callable[[float, float, float], tuple[float, float]]] = {
    "focal": focal_derivatives,
    "cross_entropy": lambda y, s, _: (sigmoid(s) - y, sigmoid(s) * (1.0 - sigmoid(s))),
    "huber": lambda y, s, alpha: (min(max(s - y, -alpha), alpha), 1.0),
    "fair": fair_derivatives,
    "logcosh": log_cosh_derivatives,
    "expectile": expectile_derivatives,
    "mape": lambda y, s, _: ((float(s > y) - float(s < y)) / max(1.0, abs(y)), 1.0),
    "gamma": lambda y, s, _: (1.0 - y * math.exp(-s), y * math.exp(-s)),
    "tweedie": tweedie_derivatives,
}
