"""The area under the ROC curve.

It is the share of (positive row, negative row) pairs that the scores put in the right order, a tie counting half.
Positive and negative scores are sorted apart, as plain values, and then merged once: much faster than sorting row
numbers. The weights of a class become integers of 53 bits, so the order of tied rows does not matter; the classes
may differ in scale, because the area does not change when all weights of a class are multiplied by a number.

Of several classes it is the mean over classes against the rest, or over pairs of classes; both count every class alike,
as scikit-learn's `roc_auc_score(average="macro")`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import N_BUCKETS, WEIGHT_HALF_BITS, add_concordant_pairs
from dmlgbm.gbdt.metrics.exact_mean import UNIT_BITS, exact_integer

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SortedClass = tuple[FloatArray, IntArray, int]

_WEIGHT_BITS = 53
_EVERY_ROW_WEIGHS_ONE = np.empty(0, np.int64)


def area_under_curve(
    target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
) -> float:
    """The area; 1.0, as in LightGBM, if one of the classes has no weight, and NaN if a prediction is NaN."""
    if prediction.ndim != 1:
        raise ValueError(
            "metric 'auc' needs one prediction for each row: for several classes choose 'auc_ovr' or 'auc_ovo'"
        )
    positive = target > 0.0
    return _area_between(_sorted_class(positive, prediction, weight), _sorted_class(~positive, prediction, weight))


def one_against_rest(
    target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
) -> float:
    """The mean, over the classes that have rows, of the area that tells a class from all others."""
    present = _classes_with_weight(target, weight)
    if len(present) < 2:
        return _area_of_few_classes(prediction)
    areas = []
    for k in present:
        own = target == k
        areas.append(
            _area_between(_sorted_class(own, prediction[k], weight), _sorted_class(~own, prediction[k], weight))
        )
    return math.fsum(areas) / len(areas)


def one_against_one(
    target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
) -> float:
    """The mean, over the pairs of classes that have rows, of the area that tells one from the other, either way."""
    present = _classes_with_weight(target, weight)
    if len(present) < 2:
        return _area_of_few_classes(prediction)
    areas = []
    for k in present:
        # All classes by their probability of being of class k, each sorted once.
        ordered = {other: _sorted_class(target == other, prediction[k], weight) for other in present}
        areas += [_area_between(ordered[k], ordered[other]) for other in present if other != k]
    return math.fsum(areas) / len(areas)


def _classes_with_weight(target: FloatArray, weight: FloatArray | None) -> list[int]:
    counted = target if weight is None else target[weight > 0.0]
    return [int(k) for k in np.unique(counted)]


def _area_of_few_classes(prediction: FloatArray) -> float:
    """As of two classes of which one has no rows."""
    return math.nan if np.isnan(prediction).any() else 1.0


def _area_between(positives: SortedClass, negatives: SortedClass) -> float:
    """The share of ordered pairs."""
    positive_score, positive_weight, positive_total = positives
    negative_score, negative_weight, negative_total = negatives
    if np.isnan(positive_score[-1:]).any() or np.isnan(negative_score[-1:]).any():
        return math.nan
    if positive_total == 0 or negative_total == 0:
        return 1.0
    buckets = np.zeros((N_BUCKETS, 2), np.int64)
    add_concordant_pairs(positive_score, positive_weight, negative_score, negative_weight, buckets)
    concordant = exact_integer(buckets)
    assert concordant is not None, "pairs of 53-bit weights cannot overflow"
    # The weight of a group of pairs is rounded to a float64, which may lift the area above one.
    return min(concordant / (2 * positive_total * negative_total << UNIT_BITS), 1.0)


def _fixed_point(weight: FloatArray) -> IntArray:
    """Weights as integers of at most 53 bits, by a power-of-two scale taken from the largest."""
    _, exponent = math.frexp(weight.max(initial=0.0))
    return np.rint(np.ldexp(weight, _WEIGHT_BITS - exponent)).astype(np.int64)


def _sorted_class(members: npt.NDArray[np.bool_], prediction: FloatArray, weight: FloatArray | None) -> SortedClass:
    """The scores of one class in ascending order, their weights and the sum of these."""
    # Row numbers select four times as fast as the mask does.
    rows = np.flatnonzero(members)
    score = prediction[rows]
    if weight is None:
        score.sort()
        return score, _EVERY_ROW_WEIGHS_ONE, len(score)
    order = score.argsort()
    ordered_weight = _fixed_point(weight[rows[order]])
    low = int((ordered_weight & ((1 << WEIGHT_HALF_BITS) - 1)).sum())
    high = int((ordered_weight >> WEIGHT_HALF_BITS).sum())
    return score[order], ordered_weight, low + (high << WEIGHT_HALF_BITS)
