"""Averages for first scores: weighted means, class shares and percentiles that do not depend on the order of rows.

Sums are of integers, exact or in fixed point; sorting does the rest.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.kernels.metric_loops import N_BUCKETS, add_exactly, logarithm
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, exact_integer
from dmlgbm.gbdt.objectives.protocol import ClassArray, FloatArray, IntArray
from dmlgbm.gbdt.objectives.shared_percentiles import between, percentiles_of_groups, position_among

# LightGBM keeps class shares this far from 0 and 1, where logarithms and log-odds are infinite.
SMALLEST_SHARE = 1e-15

# An expectile is found in about ten.
_MOST_EXPECTILE_STEPS = 100

# Fixed-point sums of weights stay below 2^62.
_WEIGHT_SUM_BITS = 62


def weighted_mean(values: FloatArray, weight: FloatArray | None, exchange: Exchange = ALONE) -> float:
    """The mean of values of either sign."""
    positive, negative = ExactMean(), ExactMean()
    positive.add(np.maximum(values, 0.0), weight)
    negative.add(np.maximum(-values, 0.0), weight)
    above, below = exchange.reduce_sum(np.stack((positive.sums, negative.sums)))
    return ExactMean(above).value() - ExactMean(below).value()


def shared_expectile(values: FloatArray, weight: FloatArray | None, level: float, exchange: Exchange = ALONE) -> float:
    """The number at which the values above, times the level, pull as much as those below, times 1 - level.

    Newton's method: the pull is a straight line between two values, so that it arrives after a few steps.
    """
    found = weighted_mean(values, weight, exchange)
    for _ in range(_MOST_EXPECTILE_STEPS):
        pull, counted = Fraction(0), Fraction(0)
        for chosen, share in ((values > found, Fraction(level)), (values <= found, 1 - Fraction(level))):
            total, total_weight = _exact_sums(values[chosen], None if weight is None else weight[chosen], exchange)
            pull, counted = pull + share * total, counted + share * total_weight
        before, found = found, float(pull / counted)
        if found == before:
            break
    return found


def _exact_sums(values: FloatArray, weight: FloatArray | None, exchange: Exchange) -> tuple[Fraction, Fraction]:
    """The weighted sum of values of either sign, and that of the weights."""
    sums = ExactMean()
    sums.add_signed(values, weight)
    total, total_weight = (_finite(exact_integer(own)) for own in exchange.reduce_sum(sums.sums))
    return Fraction(total), Fraction(total_weight)


def class_shares(
    label: ClassArray, weight: FloatArray | None, n_classes: int, exchange: Exchange = ALONE
) -> FloatArray:
    """The share of each class in the total weight."""
    if weight is None:
        counts = exchange.reduce_sum(np.bincount(label, minlength=n_classes).astype(np.int64))
        return counts / counts.sum()
    buckets = np.zeros((n_classes, N_BUCKETS, 2), np.int64)
    for number in range(n_classes):
        add_exactly(weight[label == number], buckets[number])
    totals = [_finite(exact_integer(own)) for own in exchange.reduce_sum(buckets)]
    return np.array([total / sum(totals) for total in totals])


def shared_percentile(
    values: FloatArray, weight: FloatArray | IntArray | None, level: float, exchange: Exchange
) -> float:
    """As `percentile`, over the values of all processes."""
    if exchange.alone:
        return percentile(values, weight, level)
    only_group = np.zeros(len(values), np.int64)
    return float(percentiles_of_groups(values, weight, only_group, 1, level, exchange)[0])


def percentile(values: FloatArray, weight: FloatArray | IntArray | None, level: float) -> float:
    """The value at a level between 0 and 1.

    Without weights it is interpolated between two neighbours, as LightGBM does it, and with integers that say how often
    each value counts as well. With other weights it is the lowest value at which the weight of all rows up to there
    exceeds that share of the total: LightGBM interpolates here only where weights are at least 1, so that its result
    depends on their unit and on the order of equal values.
    """
    if weight is None:
        # Adding zero turns -0.0 into 0.0: which of the two a sort finds first depends on the order of rows.
        return float(np.quantile(values, level)) + 0.0
    order = np.argsort(values)
    if weight.dtype.kind == "i":
        cumulated = np.cumsum(weight[order])
        position, lower = position_among(int(cumulated[-1]), level)
        neighbours = np.minimum((lower, lower + 1), cumulated[-1] - 1)
        low, high = values[order[np.searchsorted(cumulated, neighbours, side="right")]].tolist()
        return between(low, high, position - lower)
    cumulated = np.cumsum(_fixed_point(weight)[order])
    total = int(cumulated[-1])
    threshold = min(math.floor(level * total), total - 1)
    return float(values[order[np.searchsorted(cumulated, threshold, side="right")]]) + 0.0


def log_of(value: float) -> float:
    """The engine's natural logarithm of a positive number."""
    return float(logarithm(np.array([value]))[0])


def _finite(total: int | None) -> int:
    if total is None:
        raise ValueError("A sample weight is not finite: weights must be finite numbers of at least 0.")
    return total


def _fixed_point(weight: FloatArray | IntArray) -> IntArray:
    """Weights as integers in a unit that is a power of two, so small that only the last bits of a weight are lost."""
    _, exponent = math.frexp(float(weight.max()))
    shift = _WEIGHT_SUM_BITS - len(weight).bit_length() - exponent
    return np.rint(np.ldexp(weight, shift)).astype(np.int64)
