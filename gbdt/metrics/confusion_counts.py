"""Metrics of which class is predicted and which is true: F1, Matthews correlation, balanced accuracy.

For each class three weights are summed, exactly: of the rows that are right, of those predicted to be of the class, and
of those that are. Every metric here is a function of these sums, which are Python's integers by then, so that nothing
is rounded before the last division. A class without any weight counts as absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import N_BUCKETS, add_exactly
from dmlgbm.gbdt.metrics.exact_mean import exact_integer
from dmlgbm.gbdt.metrics.row_losses import most_probable_class
from dmlgbm.gbdt.metrics.summed_metric import SummedMetric

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassWeights:
    """The summed weight of rows by class, in units that cancel out."""

    right: list[int]
    predicted: list[int]
    true: list[int]


def f1(weights: ClassWeights) -> float:
    """The F1 score of the second class."""
    return _f1_of_class(weights, 1)


def f1_macro(weights: ClassWeights) -> float:
    """The mean F1 score of the classes that are true or predicted somewhere."""
    return _mean(
        [_f1_of_class(weights, k) for k in range(len(weights.true)) if weights.true[k] or weights.predicted[k]]
    )


def f1_micro(weights: ClassWeights) -> float:
    """The F1 score of all classes' counts together, which is the accuracy."""
    return sum(weights.right) / sum(weights.true)


def f1_weighted(weights: ClassWeights) -> float:
    """The mean F1 score of the classes, each by the weight of its rows."""
    total = sum(weights.true)
    return math.fsum(weight / total * _f1_of_class(weights, k) for k, weight in enumerate(weights.true))


def balanced_accuracy(weights: ClassWeights) -> float:
    """The mean share of a class's rows that are right, over the classes that have rows."""
    return _mean([right / true for right, true in zip(weights.right, weights.true, strict=True) if true])


def matthews_correlation(weights: ClassWeights) -> float:
    """The correlation of true and predicted classes; 0 where one of the two never changes."""
    total = sum(weights.true)
    covariance = total * sum(weights.right) - _product(weights.true, weights.predicted)
    variances = (total**2 - _product(weights.true, weights.true)) * (
        total**2 - _product(weights.predicted, weights.predicted)
    )
    size = math.sqrt(covariance**2 / variances) if variances else 0.0
    return size if covariance >= 0 else -size


def _f1_of_class(weights: ClassWeights, k: int) -> float:
    both = weights.predicted[k] + weights.true[k]
    return 2 * weights.right[k] / both if both else 0.0


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _product(one: list[int], other: list[int]) -> int:
    return sum(own * others for own, others in zip(one, other, strict=True))


@dataclass(frozen=True)
class ConfusionMetric(SummedMetric):
    """A function of the weights of classes."""

    of_weights: Callable[[ClassWeights], float]

    @property
    def summed(self) -> Hashable:
        return ConfusionMetric

    def no_sums(self, n_outputs: int) -> IntArray:
        return np.zeros((3, max(2, n_outputs), N_BUCKETS, 2), np.int64)

    def add(
        self,
        sums: IntArray,
        target: FloatArray,
        prediction: FloatArray,
        weight: FloatArray | None,
        group_starts: IntArray | None,
    ) -> None:
        true, predicted = target.astype(np.int64), most_probable_class(prediction).astype(np.int64)
        right = np.flatnonzero(true == predicted)
        _add_by_class(sums[0], true[right], None if weight is None else weight[right])
        _add_by_class(sums[1], predicted, weight)
        _add_by_class(sums[2], true, weight)

    def value(self, sums: IntArray) -> float:
        # Weights are finite, so every sum is known.
        weights = ClassWeights(*([exact_integer(buckets) or 0 for buckets in own] for own in sums))
        return self.of_weights(weights) if any(weights.true) else math.nan


def _add_by_class(sums: IntArray, classes: IntArray, weight: FloatArray | None) -> None:
    """Add the weights of rows to the buckets of their classes."""
    n_rows = np.bincount(classes, minlength=len(sums))
    stops = n_rows.cumsum()
    # Numbers of 8 or 16 bits are sorted ten times as fast.
    small = classes.astype(np.min_scalar_type(len(sums)))
    ordered = None if weight is None else weight[small.argsort(kind="stable")]
    for k in np.flatnonzero(n_rows):
        count = np.array([n_rows[k]], np.float64)
        add_exactly(count if ordered is None else ordered[stops[k] - n_rows[k] : stops[k]], sums[k])
