"""Naive oracles for the optimisers: the formulas of their papers, one element at a time, in double precision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dmlgbm.neural.model import ParameterPart


def momentum_steps(
    start: Sequence[float], gradients: Iterable[Sequence[float]], rate: float, momentum: float, nesterov: bool
) -> list[float]:
    result = [float(w) for w in start]
    for position, slopes in enumerate(zip(*gradients, strict=True)):
        velocity = 0.0
        for slope in slopes:
            velocity = momentum * velocity - rate * slope
            result[position] += momentum * velocity - rate * slope if nesterov else velocity
    return result


def moment_ratios(slopes: Iterable[float], epsilon: float) -> list[float]:
    """What Adam moves one element by in each step, for a learning rate of 1 and the usual decays of the moments."""
    m = v = 0.0
    ratios = []
    for t, slope in enumerate(slopes, start=1):
        m = 0.9 * m + (1 - 0.9) * slope
        v = 0.999 * v + (1 - 0.999) * slope**2
        ratios.append((m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + epsilon))
    return ratios


def adam_steps(
    start: Sequence[float],
    gradients: Iterable[Sequence[float]],
    rate: float,
    parts: Sequence[ParameterPart],
    weight_decay: float = 0.0,
) -> list[float]:
    result = [float(w) for w in start]
    for position, slopes in enumerate(zip(*gradients, strict=True)):
        decays = any(part.decays for part in parts if part.start <= position < part.stop)
        for ratio in moment_ratios(slopes, epsilon=1e-8):
            decay = weight_decay * result[position] if decays else 0.0
            result[position] -= rate * (ratio + decay)
    return result


def lamb_steps(
    start: Sequence[float],
    gradients: Iterable[Sequence[float]],
    rate: float,
    parts: Sequence[ParameterPart],
    weight_decay: float,
) -> list[float]:
    values = [float(w) for w in start]
    moves = [moment_ratios(slopes, epsilon=1e-6) for slopes in zip(*gradients, strict=True)]
    for step in range(len(moves[0])):
        for part in parts:
            positions = range(part.start, part.stop)
            move = {k: moves[k][step] + (weight_decay * values[k] if part.decays else 0.0) for k in positions}
            ratio = 1.0
            if part.decays:
                ratio = float(np.linalg.norm([values[k] for k in positions]) / np.linalg.norm(list(move.values())))
            for k in positions:
                values[k] -= rate * ratio * move[k]
    return values
