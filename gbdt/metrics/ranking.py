"""Ranking metrics, means over queries: NDCG, mean average precision and reciprocal ranks at the first k positions.

The conventions are LightGBM's: a row of label l gains 2^l - 1 or what `label_gain` says, position p (from 0) is
discounted by 1 / log2(p + 2), a row is relevant if its label is above zero, a query without a relevant row counts as 1,
and a query weighs the mean weight of its rows (also one without a relevant row, where LightGBM's NDCG forgets the
weight). Rows with equal predictions rank in the order in which they came. Reciprocal ranks, which LightGBM lacks, are 0
where nothing is relevant, as in CatBoost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.kernels.ranking_metrics import (
    average_precision_of_queries,
    expected_reciprocal_rank_of_queries,
    mean_weight_of_queries,
    ndcg_of_queries,
    reciprocal_rank_of_queries,
)
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, MeanMetric

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
QueryScore = Callable[[IntArray, FloatArray, IntArray, int], FloatArray]


def ndcg(
    label: IntArray,
    prediction: FloatArray,
    group_starts: IntArray,
    n_positions: int,
    *,
    label_gain: tuple[float, ...] | None = None,
) -> FloatArray:
    """Each query's discounted gain over the first positions, divided by that of the best possible order."""
    highest = int(label.max(initial=0))
    if label_gain is not None and highest >= len(label_gain):
        raise ValueError(
            f"label_gain has the gains of labels 0 to {len(label_gain) - 1}, but there are rows of label {highest}: "
            "add the gain of each label."
        )
    gain_of_label = np.ldexp(1.0, np.arange(highest + 1)) - 1.0 if label_gain is None else np.array(label_gain)
    logarithms = logarithm(np.arange(2.0, n_positions + 2.0))
    values = np.empty(len(group_starts) - 1)
    ndcg_of_queries(label, prediction, group_starts, gain_of_label, logarithms[:1] / logarithms, values)
    return values


def average_precision(label: IntArray, prediction: FloatArray, group_starts: IntArray, n_positions: int) -> FloatArray:
    """Each query's mean of the precision at the positions of its relevant rows, among the first positions."""
    values = np.empty(len(group_starts) - 1)
    average_precision_of_queries(label, prediction, group_starts, n_positions, values)
    return values


def reciprocal_rank(label: IntArray, prediction: FloatArray, group_starts: IntArray, n_positions: int) -> FloatArray:
    """One divided by the position of each query's first relevant row, if that is among the first positions."""
    values = np.empty(len(group_starts) - 1)
    reciprocal_rank_of_queries(label, prediction, group_starts, n_positions, values)
    return values


def expected_reciprocal_rank(
    label: IntArray, prediction: FloatArray, group_starts: IntArray, n_positions: int
) -> FloatArray:
    """Each query's expected 1 / position of the row that satisfies a reader.

    A row of label l satisfies with probability (2^l - 1) / 2^m, where m is the largest label of all rows given.
    """
    largest = label.max(initial=0)
    satisfies = np.ldexp(np.ldexp(1.0, np.arange(largest + 1)) - 1.0, -largest)
    values = np.empty(len(group_starts) - 1)
    expected_reciprocal_rank_of_queries(label, prediction, group_starts, satisfies, n_positions, values)
    return values


@dataclass(frozen=True)
class QueryMean(MeanMetric):
    """The weighted mean of a score over queries."""

    name: str
    query_score: QueryScore
    n_positions: int

    def partial_mean(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> ExactMean:
        if group_starts is None:
            raise ValueError(f"metric {self.name!r} needs to know which rows form a query: pass `group` or `qid`")
        label = target.astype(np.int64)
        largest_query = int(np.diff(group_starts).max(initial=0))
        values = self.query_score(label, prediction, group_starts, min(self.n_positions, largest_query))
        mean = ExactMean()
        if weight is None:
            mean.add(values, None)
        else:
            query_weight = np.empty_like(values)
            mean_weight_of_queries(weight, group_starts, query_weight)
            mean.add(values, query_weight)
        return mean


@dataclass(frozen=True)
class MeanOfAllQueries:
    """A mean over queries whose score depends on rows of other queries: it needs all of them in one place."""

    mean: QueryMean

    def __call__(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        return self.mean(target, prediction, weight, group_starts)
