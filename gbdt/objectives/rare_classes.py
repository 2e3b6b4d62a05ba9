"""How much a leaf must know of a rare class before it may decide anything about it.

A dozen rows of a class among tens of thousands are soon learnt by heart: every tree pushes the class's probability
further towards zero wherever training happens to hold none of its rows, and the log loss on new rows grows with each
tree. The sum of a leaf's hessians is about the number of rows of the class that the model expects there, so asking for
more of it stops both: leaves about next to nothing, and trees after the expectation has shrunk. And a tree about the
class counts only if its first split gains more than an arbitrary one does by chance.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.objectives.averages import class_shares, weighted_mean
from dmlgbm.gbdt.objectives.protocol import ClassArray, RareClassLimits

# Classes below this share of the weight are rare.
_RARE_SHARE = 0.01
# (Half of it let the log loss of 1,000 trees reach 1.2 times that of the shares on 60,000 rows with 0.05 % positives,
# this 1.06: docs/measurements.md, section 15.)
_EXPECTED_ROWS = 60.0
# Two leaves must be possible.
_LARGEST_PART = 0.5
# Without signal, twice the log-likelihood that a split gains is chi-square distributed with mean 1. (Log loss of 1,000
# trees over that of the shares, 0.05 % positives: at most 1.08 with 1, and 1.25 without; with 2 it was 1.03, but a
# table of five positives that can be told apart was not learnt at all.)
_GAIN_BY_CHANCE = 1.0


def rare_class_limits(
    label: ClassArray, weights: RowWeights, n_classes: int, exchange: Exchange = ALONE
) -> RareClassLimits:
    """The limits of each class: more hessian the fewer rows a rare class has."""
    counted = weights.in_sums
    shares = class_shares(label, counted, n_classes, exchange)
    n_rows = int(exchange.reduce_sum(np.array([len(label)], np.int64))[0])
    mean_weight = 1.0 if counted is None else weighted_mean(counted, None, exchange)
    # Rounded, because the same weight may come from other sums when rows are repeated instead of weighted.
    expected = np.round(mean_weight * n_rows * shares * (1.0 - shares), 6)
    wanted = np.minimum(_EXPECTED_ROWS / np.sqrt(np.maximum(expected, 1.0)), expected * _LARGEST_PART)
    # A weight that repeats its row brings gains of so many rows; any other scales them.
    scales = weights.repeats is None or weights.factor is not None
    gain = _GAIN_BY_CHANCE * (mean_weight if scales else 1.0)
    is_rare = shares < _RARE_SHARE
    return RareClassLimits(np.where(is_rare, wanted, 0.0), np.where(is_rare, gain, 0.0))


def limits_of_two_classes(label: ClassArray, weights: RowWeights, exchange: Exchange = ALONE) -> RareClassLimits:
    """The limits of one score that tells two classes apart: the rarer one counts."""
    limits = rare_class_limits(label, weights, 2, exchange)
    return RareClassLimits(limits.leaf_hessians.max(keepdims=True), limits.root_gains.max(keepdims=True))
