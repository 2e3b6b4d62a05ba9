"""LambdaRank: pairs of rows of a query, weighted by what swapping them would change in its NDCG.

The conventions are LightGBM's: a row of label l gains 2^l - 1, position p (from 0) is discounted by 1 / log2(p + 2),
and only pairs with a row among the first `truncation_level` positions count. A pair is divided by the distance of its
scores, and a query's lambdas by a factor that grows with the logarithm of their sum (`lambdarank_norm`). Rows with
equal scores rank in the order in which they came.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.lambdarank import Queries, inverse_ideal_gains, lambdarank_gradients
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.objectives.protocol import (
    NO_LARGEST_STEP,
    FloatArray,
    IntArray,
    RareClassLimits,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.targets import class_numbers
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers

_HIGHEST_LABEL = 31
# A row meets up to `truncation_level` others, so fewer rows are worth a thread than in a loop over single rows.
_ROWS_WORTH_A_THREAD = 1024


class LambdaRank:
    """Gradients for queries given by the numbers of their first rows."""

    name = "lambdarank"
    n_outputs = 1
    constant_hessian = False
    leaf_percentile = None
    largest_step = NO_LARGEST_STEP

    def __init__(
        self, target: FloatArray, weights: RowWeights, group_starts: IntArray | None, truncation_level: int
    ) -> None:
        if truncation_level < 1:
            raise ParameterError(
                f"lambdarank_truncation_level={truncation_level!r} is out of range: it must be at least 1."
            )
        label = class_numbers(self.name, target, _HIGHEST_LABEL + 1, "labels")
        starts = _checked_group_starts(group_starts, len(target))
        self.weights = weights
        self._n_positions = truncation_level
        gain_of_label = np.ldexp(1.0, np.arange(_HIGHEST_LABEL + 1)) - 1.0
        logarithms = logarithm(np.arange(2.0, int(np.diff(starts).max(initial=1)) + 2.0))
        discount, inverse_ideal = logarithms[0] / logarithms, np.empty(len(starts) - 1)
        inverse_ideal_gains(label, starts, gain_of_label, discount, truncation_level, inverse_ideal)
        self._queries = Queries(gain_of_label[label], weights.in_derivatives, starts, inverse_ideal, discount)

    def rare_class_limits(self) -> RareClassLimits:
        return no_limits(self.n_outputs)

    def base_scores(self) -> FloatArray:
        return np.zeros(1)

    def row_loss(self) -> None:
        return None

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers
    ) -> None:
        row_score, row_gradients, row_hessians = score[0], gradients[0], hessians[0]
        n_queries = len(self._queries.inverse_ideal)
        workers.run_ranges(
            lambda first, stop: lambdarank_gradients(
                self._queries, self._n_positions, row_score, first, stop, row_gradients, row_hessians
            ),
            n_queries,
            smallest=max(1, n_queries * _ROWS_WORTH_A_THREAD // max(1, len(self._queries.gain))),
        )


def _checked_group_starts(group_starts: IntArray | None, n_rows: int) -> IntArray:
    if group_starts is None:
        raise ValueError("Objective 'lambdarank' needs to know which rows form a query: pass `group` or `qid`.")
    starts = np.ascontiguousarray(group_starts, np.int64)
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != n_rows or (np.diff(starts) <= 0).any():
        raise ValueError(f"The sizes in `group` must all be at least 1 and add up to the number of rows, {n_rows}.")
    return starts
