"""The values of a finished tree's leaves, and what they add to the scores of the rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_weights import Repeats
from dmlgbm.gbdt.growth.grown_tree import GrownTree, LeafSteps
from dmlgbm.gbdt.kernels.layout import NodeRows, RecordArray
from dmlgbm.gbdt.kernels.leaf_values import STEP_RULES, add_to_rows, label_rows, newton_steps, sum_leaves
from dmlgbm.gbdt.kernels.partition import route_rows
from dmlgbm.gbdt.objectives.averages import percentile
from dmlgbm.gbdt.objectives.shared_percentiles import percentiles_of_groups
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]


def step_rules(parameters: TrainParameters, largest_step: float) -> RecordArray:
    """What is the same for all trees of an output; the scales and the least gain are those of a tree."""
    penalties = parameters.reg_alpha, parameters.reg_lambda, parameters.min_child_weight
    return np.array([(1.0, 1.0, *penalties, parameters.shrinkage, largest_step, 0.0)], STEP_RULES)


def newton_steps_of(
    grown: GrownTree,
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    steps: RecordArray,
    workers: Workers,
    exchange: Exchange = ALONE,
    repeats: Repeats | None = None,
) -> LeafSteps:
    """-T(G) / (H + l2) times the learning rate, from exact sums of the gradients as they were; and H."""
    scales = float(steps["gradient_scale"][0]), float(steps["hessian_scale"][0])
    times = np.empty(0, np.int64) if repeats is None else repeats.counts

    def sum_part(start: int, stop: int) -> npt.NDArray[np.int64]:
        part = np.zeros((grown.no_leaf + 1, 2), np.int64)
        sum_leaves(grown.labels, gradients, hessians, *scales, times, start, stop, part)
        return part

    sums = grown.sums
    if sums is None:
        sums = sum(workers.run_ranges(sum_part, len(gradients)))[: len(grown.leaves)]
    sums = exchange.reduce_sum(sums)
    own = LeafSteps(np.empty(len(sums)), np.empty(len(sums)))
    newton_steps(sums, steps, own.values, own.hessians)
    return own


def percentile_values(
    grown: GrownTree,
    residuals: FloatArray,
    weight: FloatArray | npt.NDArray[np.int64] | None,
    share: float,
    learning_rate: float,
    exchange: Exchange = ALONE,
) -> FloatArray:
    """The weighted percentile of target - score in each leaf, times the learning rate; 0 where nothing weighs."""
    ranges = list(zip(*grown.leaf_ranges(), strict=True))
    if not exchange.alone:
        rows = np.concatenate([grown.rows[start : start + count] for start, count in ranges])
        leaves = np.repeat(np.arange(len(ranges)), [count for _, count in ranges])
        own_weight = None if weight is None else weight[rows]
        found = percentiles_of_groups(residuals[rows], own_weight, leaves, len(ranges), share, exchange)
        return learning_rate * found
    values = np.empty(len(ranges))
    for leaf, (start, count) in enumerate(ranges):
        rows = grown.rows[start : start + count]
        own_weight = None if weight is None else weight[rows]
        # Rows without weight say nothing about where their leaf should be, and a bag may be empty.
        weightless = len(rows) == 0 if own_weight is None else not own_weight.any()
        values[leaf] = 0.0 if weightless else learning_rate * percentile(residuals[rows], own_weight, share)
    return values


def add_to_scores(grown: GrownTree, leaf_value: FloatArray, scores: FloatArray, workers: Workers) -> None:
    """Add the tree to the scores of all rows, each of which has been labelled with its leaf."""
    workers.run_ranges(lambda a, b: add_to_rows(grown.labels, leaf_value, a, b, scores), len(scores))


def label_others(grown: GrownTree, dataset: Dataset, bag: npt.NDArray[np.uint32]) -> None:
    """Send the rows that the tree was not grown on down its splits, and label them."""
    rows = rows_outside(bag, dataset.n_rows, len(grown.nodes))
    route_rows(dataset.binned, grown.tree, grown.splits, dataset.empty_directions(), rows)
    label_rows(rows.numbers, rows.starts[grown.leaves], rows.counts[grown.leaves], 0, grown.labels)


def rows_outside(bag: npt.NDArray[np.uint32], n_rows: int, n_nodes: int) -> NodeRows:
    """The rows that are not in the bag, all of them in the root of a tree that has room for so many nodes."""
    outside = np.ones(n_rows, bool)
    outside[bag] = False
    numbers = np.flatnonzero(outside).astype(np.uint32)
    rows = NodeRows(numbers, np.empty_like(numbers), np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64))
    rows.counts[0] = len(numbers)
    return rows
