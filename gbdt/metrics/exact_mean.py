"""Weighted means that are rounded once, at the very end.

An `ExactMean` holds the sum of values and the sum of weights as integer buckets (see `kernels/metric_loops.py`).
Parts of a mean, from blocks of rows or from several workers, are merged by adding their `sums`; no scale has to be
agreed on first. Other metrics than means add such buckets, too.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import EXPONENT_BITS_PER_BUCKET, HALF_BITS, N_BUCKETS, add_exactly
from dmlgbm.gbdt.metrics.summed_metric import SummedMetric

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Integer sums count units of 2^-1076, half the smallest float64.
UNIT_BITS = 1076
# Without the last 27 bits of the fraction.
_UPPER_HALF = np.int64(-1 << 27)


def exact_integer(buckets: IntArray) -> int | None:
    """What the buckets add up to, in units of 2^-UNIT_BITS; None if a value was infinite or NaN."""
    if buckets[-1].any():
        return None
    total = 0
    for bucket in np.flatnonzero(buckets.any(axis=1)):
        low, high = buckets[bucket].tolist()
        total += (low + (high << HALF_BITS)) << (int(bucket) << EXPONENT_BITS_PER_BUCKET)
    return total


def halves(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two numbers of 26 and 27 bits, and of one sign, that add up to each value: products of halves are exact."""
    upper = (values.view(np.int64) & _UPPER_HALF).view(np.float64)
    return upper, values - upper


def add_products(values: FloatArray, weight: FloatArray | None, buckets: IntArray) -> None:
    """Add values that are not negative, each times its weight, without rounding the products."""
    if weight is None:
        add_exactly(values, buckets)
    else:
        for half, half_of_weight in product(halves(values), halves(weight)):
            add_exactly(half * half_of_weight, buckets)


def _no_sums() -> IntArray:
    return np.zeros((2, N_BUCKETS, 2), np.int64)


@dataclass(frozen=True)
class ExactMean:
    """A weighted mean in the making, mostly of non-negative values: `sums[0]` adds values, `sums[1]` their weights."""

    sums: IntArray = field(default_factory=_no_sums)

    def add(self, values: FloatArray, weight: FloatArray | None) -> None:
        """Add values, each with its weight or all with weight one."""
        if weight is None:
            add_exactly(values, self.sums[0])
            add_exactly(np.array([len(values)], np.float64), self.sums[1])
        else:
            # Products with half a value are exact for weights of up to 26 bits: weight 3 adds as much as three rows.
            for half in halves(values):
                add_exactly(half * weight, self.sums[0])
            add_exactly(weight, self.sums[1])

    def add_signed(self, values: FloatArray, weight: FloatArray | None) -> None:
        """Add values of either sign: negative ones are taken away from the buckets."""
        self.add(np.maximum(values, 0.0), weight)
        negative = ExactMean()
        negative.add(np.maximum(-values, 0.0), weight)
        self.sums[0, :-1] -= negative.sums[0, :-1]
        # What is not finite must not cancel out.
        self.sums[0, -1] += negative.sums[0, -1]

    def value(self) -> float:
        """The mean, correctly rounded; NaN if a value was not finite or nothing had any weight."""
        total = exact_integer(self.sums[0])
        total_weight = exact_integer(self.sums[1])
        if total is None or not total_weight:
            return math.nan
        return total / total_weight


class MeanMetric(SummedMetric):
    """A metric that is a mean over rows or queries."""

    @abstractmethod
    def partial_mean(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> ExactMean:
        """The mean over these rows, ready to be merged with others."""

    def finish(self, mean: ExactMean) -> float:
        """The metric's value for the mean over all rows."""
        return mean.value()

    def no_sums(self, n_outputs: int) -> IntArray:
        return _no_sums()

    def add(
        self,
        sums: IntArray,
        target: FloatArray,
        prediction: FloatArray,
        weight: FloatArray | None,
        group_starts: IntArray | None,
    ) -> None:
        sums += self.partial_mean(target, prediction, weight, group_starts).sums

    def value(self, sums: IntArray) -> float:
        return self.finish(ExactMean(sums))
