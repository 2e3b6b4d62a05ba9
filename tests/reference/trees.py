"""Naive oracle for growing trees: every split of every feature tried on lists of rows, in exact fractions.

Gradients and hessians are integers here, as they are in the engine after rounding, so there is one right answer.
Splits are tried in the order that decides ties: feature, missing values right before left, bin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.feature_bins import CategoricalBins, FeatureBins
from dmlgbm.gbdt.data.row_numbers import whole_table
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, SparseColumn, Table
from dmlgbm.gbdt.growth.grower import TreeGrower
from dmlgbm.gbdt.growth.leaf_fitting import step_rules
from dmlgbm.gbdt.growth.quantisation import Quantised, quantise
from dmlgbm.gbdt.growth.tree_request import TreeRequest
from dmlgbm.gbdt.objectives.protocol import NO_LARGEST_STEP
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BinnedFeature:
    """The bin of every row; the last bin is for missing values."""

    bins: IntArray
    n_bins: int
    categorical: bool

    @property
    def missing_bin(self) -> int:
        return self.n_bins - 1


@dataclass(frozen=True)
class Split:
    """Rows of `left_bins` go left; `gain` is what is won over not splitting."""

    gain: Fraction
    feature: int
    bin: int  # the last value that goes left, -1 for a set of categories
    missing_left: bool
    left_bins: frozenset[int]


@dataclass(frozen=True)
class SplitNode:
    """A node that was split, with the rows that it and its children hold."""

    rows: tuple[int, ...]
    depth: int
    split: Split


@dataclass(frozen=True)
class Problem:
    """What a tree is grown from."""

    features: tuple[BinnedFeature, ...]
    gradients: IntArray
    hessians: IntArray
    parameters: TrainParameters


def binned_column(column: Column, bins: FeatureBins) -> IntArray:
    """The bin of every row of a column, one row after the other."""
    if isinstance(bins, CategoricalBins):
        assert isinstance(column, CategoricalColumn)
        known = range(len(bins.categories))
        return np.array([code if code in known else bins.missing_bin for code in column.codes.tolist()], np.int64)
    assert not isinstance(column, CategoricalColumn)
    if isinstance(column, SparseColumn):
        values = np.zeros(column.n_rows)
        values[column.rows] = column.values
    else:
        values = column.values.astype(np.float64)
        if column.missing is not None:
            values = np.where(column.missing, np.nan, values)
    return np.array([bins.missing_bin if v != v else int(np.sum(bins.cuts < v)) for v in values.tolist()], np.int64)


def binned_features(table: Table, dataset: Dataset) -> tuple[BinnedFeature, ...]:
    """The features that trees may use, in the order in which the engine numbers them."""
    return tuple(
        BinnedFeature(
            binned_column(table.columns[f], dataset.bins[f]),
            dataset.bins[f].n_bins,
            isinstance(table.columns[f], CategoricalColumn),
        )
        for f in dataset.plan.features.tolist()
    )


def whole_numbers(gradients: IntArray, hessians: IntArray | None, precision: str = "fast") -> Quantised:
    """Given integers in the words that `quantise` makes of such rows; without hessians, each is 1."""
    kind = np.ones(len(gradients), np.float32)
    with Workers(1) as workers:
        like = quantise(
            kind,
            kind[:0] if hessians is None else kind,
            precision=precision,
            segments=whole_table(len(kind)),
            seed=0,
            tree=0,
            workers=workers,
        )
    packing = like.packing[0]
    words = np.zeros_like(like.words)
    words[0] = gradients * (1 << int(packing["gradient_shift"]))
    words[-1] += 1
    if hessians is not None:
        words[-1] += hessians * int(packing["hessian_factor"])
    return replace(like, words=words, gradient_scale=1.0, hessian_scale=1.0, rounding_gain=0.0, hessian_margin=0)


def request_for(grower: TreeGrower, quantised: Quantised, number: int = 0) -> TreeRequest:
    """A tree of these words, which are put where the grower expects them."""
    words = grower.words[0][: len(quantised.words)]
    words[:] = quantised.words
    return TreeRequest(number, 0, replace(quantised, words=words), step_rules(TrainParameters(), NO_LARGEST_STEP))


def score(gradient: int, hessian: int, l1: Fraction, l2: Fraction) -> Fraction:
    shrunk = max(abs(gradient) - l1, Fraction(0))
    return shrunk * shrunk / (hessian + l2) if hessian + l2 else Fraction(0)


def sums(problem: Problem, rows: Sequence[int]) -> tuple[int, int, int]:
    chosen = list(rows)
    return int(problem.gradients[chosen].sum()), int(problem.hessians[chosen].sum()), len(chosen)


def allowed_splits(problem: Problem, rows: Sequence[int], features: Sequence[int] | None = None) -> Iterator[Split]:
    """All splits of a node that the parameters allow and that gain something."""
    for number in range(len(problem.features)) if features is None else features:
        feature = problem.features[number]
        tried = _category_sets(problem, rows, feature) if feature.categorical else _thresholds(rows, feature)
        for last_left, left_bins, more_l2 in tried:
            gain = _gain(problem, rows, feature, left_bins, more_l2)
            if gain is not None and gain > Fraction(problem.parameters.min_split_gain):
                yield Split(gain, number, last_left, feature.missing_bin in left_bins, left_bins)


def best_split(problem: Problem, rows: Sequence[int], features: Sequence[int] | None = None) -> Split | None:
    """The first of those with the largest gain."""
    best = None
    for split in allowed_splits(problem, rows, features):
        if best is None or split.gain > best.gain:
            best = split
    return best


def _gain(
    problem: Problem, rows: Sequence[int], feature: BinnedFeature, left_bins: frozenset[int], more_l2: Fraction
) -> Fraction | None:
    parameters = problem.parameters
    left = [row for row in rows if int(feature.bins[row]) in left_bins]
    right = [row for row in rows if int(feature.bins[row]) not in left_bins]
    gain = Fraction(0)
    l1, l2 = Fraction(parameters.reg_alpha), Fraction(parameters.reg_lambda)
    for side in (left, right):
        gradient, hessian, count = sums(problem, side)
        if count < max(1, parameters.min_child_samples) or hessian < max(1, ceil(parameters.min_child_weight)):
            return None
        gain += score(gradient, hessian, l1, l2 + more_l2)
    gradient, hessian, _ = sums(problem, rows)
    return gain - score(gradient, hessian, l1, l2)


def _thresholds(rows: Sequence[int], feature: BinnedFeature) -> Iterator[tuple[int, frozenset[int], Fraction]]:
    """(last bin on the left, all bins on the left, nothing); missing values right, then left."""
    last_value = feature.missing_bin - 1
    n_missing = sum(int(feature.bins[row]) == feature.missing_bin for row in rows)
    missing = frozenset({feature.missing_bin})
    for threshold in range(last_value + (1 if n_missing else 0)):
        left_bins = frozenset(range(threshold + 1))
        n_left = sum(int(feature.bins[row]) <= threshold for row in rows)
        follows_larger = not n_missing and 2 * n_left >= len(rows)
        yield threshold, left_bins | missing if follows_larger else left_bins, Fraction(0)
    for threshold in range(last_value if n_missing else 0):
        yield threshold, frozenset(range(threshold + 1)) | missing, Fraction(0)


def _category_sets(
    problem: Problem, rows: Sequence[int], feature: BinnedFeature
) -> Iterator[tuple[int, frozenset[int], Fraction]]:
    """Each category alone if there are few; else the first or last so many in the order of their mean gradients."""
    parameters = problem.parameters
    rows_of = {b: [row for row in rows if int(feature.bins[row]) == b] for b in range(feature.n_bins)}
    if feature.n_bins - 1 <= parameters.max_cat_to_onehot:
        yield from ((-1, frozenset({b}), Fraction(0)) for b in rows_of if rows_of[b])
        return

    def mean(b: int) -> Fraction:
        gradient, hessian, _ = sums(problem, rows_of[b])
        return Fraction(gradient) / (hessian + Fraction(parameters.cat_smooth))

    used = [b for b in rows_of if len(rows_of[b]) >= max(1, ceil(parameters.cat_smooth))]
    ascending = sorted(used, key=lambda b: (mean(b), b))
    longest = min(parameters.max_cat_threshold, (len(used) + 1) // 2)
    for order in (ascending, ascending[::-1]):
        in_group = 0
        for length in range(1, longest + 1):
            left = frozenset(order[:length])
            in_group += len(rows_of[order[length - 1]])
            n_right = len(rows) - sum(len(rows_of[b]) for b in left)
            more_l2 = Fraction(parameters.cat_l2)
            large_enough = _gain(problem, rows, feature, left, more_l2) is not None
            if in_group >= parameters.min_data_per_group <= n_right and large_enough:
                yield -1, left, more_l2
                in_group = 0


def sides(problem: Problem, rows: Sequence[int], split: Split) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The rows that go left and those that go right, both in their order."""
    bins = problem.features[split.feature].bins
    left = tuple(row for row in rows if int(bins[row]) in split.left_bins)
    return left, tuple(row for row in rows if row not in set(left))


def grow(problem: Problem, rows: Sequence[int]) -> tuple[list[SplitNode], list[tuple[int, ...]]]:
    """The nodes in the order of splitting, and the rows of the leaves from left to right.

    Gains of different leaves must differ: how the engine settles that tie is its own business.
    """
    parameters = problem.parameters
    waiting: dict[str, tuple[int, ...]] = {"": tuple(rows)}
    best = {"": best_split(problem, rows)}
    done: list[SplitNode] = []
    while len(waiting) < parameters.num_leaves:
        open_leaves = {path: split for path, split in best.items() if path in waiting and split is not None}
        if parameters.max_depth > 0:
            open_leaves = {path: s for path, s in open_leaves.items() if len(path) < parameters.max_depth}
        if parameters.grow_policy == "depthwise":
            top = min(map(len, open_leaves), default=0)
            open_leaves = {path: split for path, split in open_leaves.items() if len(path) == top}
        if not open_leaves:
            break
        path, split = max(open_leaves.items(), key=lambda item: item[1].gain)
        own = waiting.pop(path)
        done.append(SplitNode(own, len(path), split))
        for side, side_rows in zip("01", sides(problem, own, split), strict=True):
            waiting[path + side] = side_rows
            best[path + side] = best_split(problem, side_rows)
    # "0" is left of "1", and no leaf's path begins with another's.
    return done, [waiting[path] for path in sorted(waiting)]
