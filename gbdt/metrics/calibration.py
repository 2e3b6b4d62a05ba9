"""The expected calibration error: how far probabilities are from the shares that come true.

Rows are put into bins of equal width by the probability: of the second of two classes, or of the most probable of more.
The error is the mean over rows of the distance between the mean probability of their bin and the share that is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import N_BUCKETS, add_exactly
from dmlgbm.gbdt.metrics.exact_mean import add_products, exact_integer
from dmlgbm.gbdt.metrics.row_losses import most_probable_class
from dmlgbm.gbdt.metrics.summed_metric import SummedMetric

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

N_BINS = 15
# A probability on the border of two bins belongs to the lower one, as in scikit-learn's calibration_curve.
_BORDERS = np.linspace(0.0, 1.0, N_BINS + 1)[1:-1]


@dataclass(frozen=True)
class CalibrationError(SummedMetric):
    """Sums for each bin, of probabilities and of what came true, and the weight of all rows."""

    def no_sums(self, n_outputs: int) -> IntArray:
        return np.zeros((2 * N_BINS + 1, N_BUCKETS, 2), np.int64)

    def add(
        self,
        sums: IntArray,
        target: FloatArray,
        prediction: FloatArray,
        weight: FloatArray | None,
        group_starts: IntArray | None,
    ) -> None:
        if prediction.ndim == 1:
            probability, came_true = prediction, target
        else:
            predicted = most_probable_class(prediction)
            probability = prediction[predicted.astype(np.intp), np.arange(len(target))]
            came_true = (predicted == target).astype(np.float64)
        bins = np.searchsorted(_BORDERS, probability)
        for k in range(N_BINS):
            rows = np.flatnonzero(bins == k)
            own_weight = None if weight is None else weight[rows]
            add_products(probability[rows], own_weight, sums[2 * k])
            add_products(came_true[rows], own_weight, sums[2 * k + 1])
        add_exactly(np.array([len(target)], np.float64) if weight is None else weight, sums[-1])

    def value(self, sums: IntArray) -> float:
        *summed, total_weight = map(exact_integer, sums)
        distance = 0
        for expected, found in zip(summed[::2], summed[1::2], strict=True):
            if expected is None or found is None:
                return math.nan
            distance += abs(expected - found)
        return distance / total_weight if total_weight else math.nan
