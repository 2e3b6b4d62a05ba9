"""Losses of the order of the rows of a query: LambdaRank, RankNet and the cross entropy XE-NDCG.

The conventions are LightGBM's: a row of label l gains 2^l - 1 or what `label_gain` says, position p (from 0) is
discounted by 1 / log2(p + 2), and only pairs with a row among the first `truncation_level` positions count.
`normalised` (`lambdarank_norm`) divides a pair of LambdaRank by the distance of its scores, and multiplies a query's
lambdas by a factor that grows with the logarithm of their sum instead of the sum itself. RankNet is the same with pairs
that all weigh one. Rows with equal scores rank in the order in which they came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from dmlgbm.gbdt.data.row_numbers import Segment, global_row_numbers
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.lambdarank import Queries, inverse_ideal_gains, pair_gradients
from dmlgbm.gbdt.kernels.listwise_ranking import Lists, cross_entropy_gradients
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.objectives.position_biases import PositionBiases
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


def checked_gains(label_gain: Sequence[float]) -> tuple[float, ...]:
    """What labels 0, 1, ... gain: finite, not negative, and a better label no less than a worse one."""
    gains = tuple(float(gain) for gain in label_gain)
    if not gains or not np.isfinite(gains).all() or gains[0] < 0.0 or (np.diff(gains) < 0.0).any():
        raise ParameterError(
            f"label_gain={list(label_gain)!r} must hold the gain of label 0, of label 1 and so on: finite numbers of "
            "at least 0, none below the one before it."
        )
    return gains


def require_pairs(objective: str) -> None:
    """What places add to grades is learnt from pairs of rows."""
    if objective not in ("lambdarank", "pairwise"):
        raise ParameterError(
            f"position is for objectives 'lambdarank' and 'pairwise', not for {objective!r}: leave it out."
        )


class _QueryLoss(ABC):
    """A loss of one score a row, and a loop over queries that may run in any ranges."""

    name: str
    n_outputs = 1
    constant_hessian = False
    leaf_percentile = None
    largest_step = NO_LARGEST_STEP

    def __init__(self, weights: RowWeights, group_starts: IntArray | None, n_rows: int) -> None:
        self.weights = weights
        self._starts = _checked_group_starts(self.name, group_starts, n_rows)

    def rare_class_limits(self) -> RareClassLimits:
        return no_limits(self.n_outputs)

    def base_scores(self) -> FloatArray:
        return np.zeros(1)

    def row_loss(self) -> None:
        return None

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        row_score, row_gradients, row_hessians = score[0], gradients[0], hessians[0]
        n_queries = len(self._starts) - 1
        workers.run_ranges(
            lambda first, stop: self._write(first, stop, noise_key, row_score, row_gradients, row_hessians),
            n_queries,
            smallest=max(1, n_queries * _ROWS_WORTH_A_THREAD // max(1, len(row_score))),
        )

    @abstractmethod
    def _write(
        self,
        first_query: int,
        stop_query: int,
        noise_key: np.uint64,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        """Write the derivatives of the rows of a range of queries."""


class LambdaRank(_QueryLoss):
    """Pairs of rows of a query, weighted by what swapping them would change in its NDCG."""

    name = "lambdarank"
    biases: PositionBiases | None = None
    _all_alike = False

    def __init__(
        self,
        target: FloatArray,
        weights: RowWeights,
        group_starts: IntArray | None,
        truncation_level: int,
        normalised: bool,
        label_gain: Sequence[float] | None,
    ) -> None:
        if truncation_level < 1:
            raise ParameterError(
                f"lambdarank_truncation_level={truncation_level!r} is out of range: it must be at least 1."
            )
        gain_of_label = self._gains(label_gain)
        label = class_numbers(self.name, target, len(gain_of_label), "labels")
        super().__init__(weights, group_starts, len(target))
        self._n_positions = truncation_level
        self._normalised = normalised
        logarithms = logarithm(np.arange(2.0, int(np.diff(self._starts).max(initial=1)) + 2.0))
        discount, inverse_ideal = logarithms[0] / logarithms, np.empty(len(self._starts) - 1)
        inverse_ideal_gains(label, self._starts, gain_of_label, discount, truncation_level, inverse_ideal)
        self._queries = Queries(gain_of_label[label], weights.in_derivatives, self._starts, inverse_ideal, discount)

    def _gains(self, label_gain: Sequence[float] | None) -> FloatArray:
        if label_gain is not None:
            return np.array(checked_gains(label_gain))
        return np.ldexp(1.0, np.arange(_HIGHEST_LABEL + 1)) - 1.0

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        if self.biases is None:
            super().compute_gradients(score, gradients, hessians, workers, noise_key)
            return
        super().compute_gradients(self.biases.added_to(score), gradients, hessians, workers, noise_key)
        self.biases.learn(gradients[0], hessians[0])

    def _write(
        self,
        first_query: int,
        stop_query: int,
        noise_key: np.uint64,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        pair_gradients(
            self._queries,
            self._n_positions,
            self._normalised,
            self._all_alike,
            score,
            first_query,
            stop_query,
            gradients,
            hessians,
        )


class Pairwise(LambdaRank):
    """RankNet: every pair of rows of different labels weighs one."""

    name = "pairwise"
    _all_alike = True

    def _gains(self, label_gain: Sequence[float] | None) -> FloatArray:
        return np.arange(_HIGHEST_LABEL + 1.0)


class ListwiseCrossEntropy(_QueryLoss):
    """The cross entropy of the softmax of a query's scores and of shares drawn from its labels: XE-NDCG."""

    name = "rank_xendcg"

    def __init__(
        self, target: FloatArray, weights: RowWeights, group_starts: IntArray | None, segments: Sequence[Segment]
    ) -> None:
        label = class_numbers(self.name, target, _HIGHEST_LABEL + 1, "labels")
        super().__init__(weights, group_starts, len(target))
        first_numbers = global_row_numbers(segments, self._starts[:-1])
        self._lists = Lists(np.ldexp(1.0, label), weights.in_derivatives, self._starts, first_numbers)

    def _write(
        self,
        first_query: int,
        stop_query: int,
        noise_key: np.uint64,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        cross_entropy_gradients(self._lists, noise_key, score, first_query, stop_query, gradients, hessians)


def _checked_group_starts(objective: str, group_starts: IntArray | None, n_rows: int) -> IntArray:
    if group_starts is None:
        raise ValueError(f"Objective {objective!r} needs to know which rows form a query: pass `group` or `qid`.")
    starts = np.ascontiguousarray(group_starts, np.int64)
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != n_rows or (np.diff(starts) <= 0).any():
        raise ValueError(f"The sizes in `group` must all be at least 1 and add up to the number of rows, {n_rows}.")
    return starts
