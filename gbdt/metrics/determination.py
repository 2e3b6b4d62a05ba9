"""R squared, the coefficient of determination: the share of the targets' variance that predictions explain.

Its variance is the difference of two sums that may be nearly equal (squares, and the square of the sum). So squares and
weighted targets are added as exact products, in halves: whatever the targets' mean is, no digit of their variance is
lost, and one pass over the rows will do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import N_BUCKETS
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, add_products, exact_integer, halves
from dmlgbm.gbdt.metrics.summed_metric import SummedMetric

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A product of two lower halves has a bit too many, so the squares of equal targets may differ from the square of their
# sum by some 2^-107 of it. Targets that vary less than this share do not vary.
_ROUNDING_BITS = 100

# Rows of the sums: squared errors and weights (a mean), targets above and below zero, squared targets.
_ABOVE, _BELOW, _SQUARES = 2, 3, 4


@dataclass(frozen=True)
class RSquared(SummedMetric):
    """One minus the mean squared error over the targets' variance; as in scikit-learn, 0 or 1 where these are equal."""

    def no_sums(self, n_outputs: int) -> IntArray:
        return np.zeros((5, N_BUCKETS, 2), np.int64)

    def add(
        self,
        sums: IntArray,
        target: FloatArray,
        prediction: FloatArray,
        weight: FloatArray | None,
        group_starts: IntArray | None,
    ) -> None:
        ExactMean(sums[:2]).add(np.square(target - prediction), weight)
        add_products(np.maximum(target, 0.0), weight, sums[_ABOVE])
        add_products(np.maximum(-target, 0.0), weight, sums[_BELOW])
        upper, lower = halves(np.abs(target))
        for square in (upper * upper, 2.0 * upper * lower, lower * lower):
            add_products(square, weight, sums[_SQUARES])

    def value(self, sums: IntArray) -> float:
        if any(exact_integer(own) is None for own in sums):
            return math.nan
        errors, weight, above, below, squares = (exact_integer(own) or 0 for own in sums)
        if not weight:
            return math.nan
        errors_by_weight, squares_by_weight = errors * weight, squares * weight
        variance = squares_by_weight - (above - below) ** 2
        if variance <= squares_by_weight >> _ROUNDING_BITS:
            return 0.0 if errors else 1.0
        try:
            return (variance - errors_by_weight) / variance
        except OverflowError:  # predictions that are beyond all measure
            return -math.inf
