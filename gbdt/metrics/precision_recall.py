"""Two summaries of the precision-recall curve: average precision, and the area that XGBoost interpolates.

The curve has a point for each distinct score: the weights of the positive and the negative rows that score as high or
higher. Rows with equal scores are ordered by weight before weights are summed up, so the order in which they came does
not matter; the pieces between points are added exactly. Average precision takes the precision at the lower end of a
piece for the whole of it (scikit-learn, LightGBM). The interpolated area follows the curve that mixtures of both ends
draw (Davis and Goadrich).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import N_BUCKETS, add_exactly, logarithm
from dmlgbm.gbdt.metrics.exact_mean import UNIT_BITS, exact_integer

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def average_precision(
    target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
) -> float:
    """The precision at each recall that is reached, averaged over recall; for several classes, the mean over classes.

    0 without a positive row, as in scikit-learn; classes without rows do not count. NaN if a prediction is NaN.
    """
    if prediction.ndim == 1:
        return _average_precision(target > 0.0, prediction, weight)
    rows_that_count = target if weight is None else target[weight > 0.0]
    present = np.unique(rows_that_count).astype(np.intp)
    values = [_average_precision(target == k, prediction[k], weight) for k in present]
    return math.fsum(values) / len(values) if values else math.nan


def interpolated_area(
    target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
) -> float:
    """The area under the interpolated curve; 0 without a positive row, and NaN if a prediction is NaN."""
    if np.isnan(prediction).any():
        return math.nan
    positive, negative = _curve(target > 0.0, prediction, weight)
    if positive[-1] == 0.0:
        return 0.0
    recall, false_share = positive / positive[-1], negative / positive[-1]
    reached = np.flatnonzero(np.diff(recall) > 0.0)
    start, stop = recall[reached], recall[reached + 1]
    slope = (false_share[reached + 1] - false_share[reached]) / (stop - start)
    whole, rest = 1.0 + slope, false_share[reached] - slope * start
    # The integral of r / (whole * r + rest) over recall r; from the very first row on, there is no rest.
    above_start, above_stop = start + false_share[reached], stop + false_share[reached + 1]
    ratio = np.where(above_start > 0.0, above_stop / np.where(above_start > 0.0, above_start, 1.0), 1.0)
    areas = (stop - start - rest / whole * logarithm(ratio)) / whole
    return min(_exact_sum(np.maximum(areas, 0.0)), 1.0)


def _average_precision(is_positive: npt.NDArray[np.bool_], prediction: FloatArray, weight: FloatArray | None) -> float:
    if np.isnan(prediction).any():
        return math.nan
    positive, negative = _curve(is_positive, prediction, weight)
    if positive[-1] == 0.0:
        return 0.0
    reached = np.flatnonzero(np.diff(positive) > 0.0)
    precision = positive[reached + 1] / (positive[reached + 1] + negative[reached + 1])
    recalled = (positive[reached + 1] - positive[reached]) / positive[-1]
    return min(_exact_sum(recalled * precision), 1.0)


def _curve(
    is_positive: npt.NDArray[np.bool_], prediction: FloatArray, weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """The weights of positive and negative rows above each distinct score, from nothing to all of them."""
    descending = -prediction
    order = np.argsort(descending) if weight is None else np.lexsort((weight, descending))
    score, positive = descending[order], is_positive[order]
    own_weight = np.ones(len(score)) if weight is None else weight[order]
    is_last = np.ones(len(score), np.bool_)
    is_last[:-1] = score[1:] != score[:-1]
    stops = np.flatnonzero(is_last)
    above = (np.where(kind, own_weight, 0.0).cumsum()[stops] for kind in (positive, ~positive))
    positive_above, negative_above = (np.append(0.0, summed) for summed in above)
    return positive_above, negative_above


def _exact_sum(values: FloatArray) -> float:
    """The sum of values that are not negative, rounded once."""
    buckets = np.zeros((N_BUCKETS, 2), np.int64)
    add_exactly(values, buckets)
    total = exact_integer(buckets)
    return math.nan if total is None else total / (1 << UNIT_BITS)
