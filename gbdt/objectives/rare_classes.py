"""How much a leaf must know of a rare class before it may decide anything about it.

A dozen rows of a class among tens of thousands are soon learnt by heart: every tree pushes the class's probability
further towards zero wherever training happens to hold none of its rows, and the log loss on new rows grows with each
tree. The sum of a leaf's hessians is about the number of rows of the class that the model expects there, so asking for
more of it stops both: leaves about next to nothing, and trees after the expectation has shrunk.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.objectives.averages import class_shares, weighted_mean
from dmlgbm.gbdt.objectives.protocol import FloatArray, IntArray

# Classes below this share of the weight are rare.
_RARE_SHARE = 0.01
# (Half of it let the log loss of 1,000 trees reach 1.2 times that of the shares on 60,000 rows with 0.05 % positives,
# this 1.06: docs/measurements.md, section 15.)
_EXPECTED_ROWS = 60.0
# Two leaves must be possible.
_LARGEST_PART = 0.5


def least_leaf_hessians(
    label: IntArray, weight: FloatArray | None, n_classes: int, exchange: Exchange = ALONE
) -> FloatArray:
    """A hessian for each class: 0 for common ones, more the fewer rows a rare class has."""
    shares = class_shares(label, weight, n_classes, exchange)
    n_rows = int(exchange.reduce_sum(np.array([len(label)], np.int64))[0])
    mean_weight = 1.0 if weight is None else weighted_mean(weight, None, exchange)
    # Rounded, because the same weight may come from other sums when rows are repeated instead of weighted.
    expected = np.round(mean_weight * n_rows * shares * (1.0 - shares), 6)
    wanted = np.minimum(_EXPECTED_ROWS / np.sqrt(np.maximum(expected, 1.0)), expected * _LARGEST_PART)
    return np.where(shares < _RARE_SHARE, wanted, 0.0)
