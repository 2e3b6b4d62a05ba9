"""New leaf values for the trees of a model, from the gradients of other rows; splits stay as they are.

Trees are passed through in the order they were grown, and each sees the scores that the new values before it give. The
sums of a leaf are those of training, exact and in no order: the rows that a model was trained on give it its own bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import start_scores
from dmlgbm.gbdt.boosting.local_run import check_outputs, loss_over
from dmlgbm.gbdt.data.exchange import ALONE
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.growth.leaf_fitting import step_rules
from dmlgbm.gbdt.growth.quantisation import fine_scales
from dmlgbm.gbdt.growth.row_arrays import RowArrays, row_arrays
from dmlgbm.gbdt.kernels.leaf_values import add_to_rows, newton_steps, sum_leaves
from dmlgbm.gbdt.kernels.quantise import largest_magnitudes
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import Objective, ObjectiveSettings
from dmlgbm.gbdt.objectives.shared_percentiles import percentiles_of_groups
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]
LeafNumbers = npt.NDArray[np.uint32]

# Leaf numbers of rows that are looked up at once.
_MOST_NUMBERS = 1 << 24


def refitted(
    model: Booster,
    rows: Rows,
    objective: ObjectiveSettings,
    parameters: TrainParameters,
    *,
    decay_rate: float,
    n_kept: int = 0,
) -> Booster:
    """The model with values that are `decay_rate` of the old ones and the rest of new ones.

    The first `n_kept` iterations stay as they are, and so do leaves that no row reaches, and trees without a split.
    Where training starts is refitted like a leaf, unless the rows have first scores of their own or trees are kept.
    """
    if rows.weight is not None and not rows.weight.all():
        rows = rows.take(np.flatnonzero(rows.weight))
    with Workers(parameters.n_threads) as workers:
        loss = loss_over(rows, objective, parameters.precision)
        check_outputs(model, loss)
        if not n_kept and rows.init_score is None:
            model = replace(model, base_scores=_blended(model.base_scores, loss.base_scores(), decay_rate))
        scores = start_scores(model.first(n_kept), rows, workers)
        fitting = _Fitting(loss, rows, row_arrays(loss, scores), parameters, workers)
        trees = list(model.trees[: n_kept * model.n_outputs])
        for iteration, labels in _leaves_by_iteration(model, rows.table, n_kept, workers):
            fitting.differentiate()
            first = iteration * model.n_outputs
            for output, tree in enumerate(model.trees[first : first + model.n_outputs]):
                trees.append(fitting.refitted(tree, output, labels[output], decay_rate))
    return replace(model, trees=tuple(trees), metadata={})


@dataclass(frozen=True)
class _Fitting:
    """The rows, and the scores of the trees that have been passed through."""

    loss: Objective
    rows: Rows
    arrays: RowArrays
    parameters: TrainParameters
    workers: Workers

    def differentiate(self) -> None:
        """Compute the gradients of all outputs at the scores."""
        self.loss.compute_gradients(self.arrays.scores, self.arrays.gradients, self.arrays.hessians, self.workers)

    def refitted(self, tree: Tree, output: int, labels: LeafNumbers, decay_rate: float) -> Tree:
        """The tree with new values, which are added to the scores."""
        if tree.n_nodes:
            values = self._steps(tree.n_leaves, output, labels)
            is_reached = np.bincount(labels, minlength=tree.n_leaves) > 0
            values = np.where(is_reached, _blended(tree.leaf_value, values, decay_rate), tree.leaf_value)
            tree = replace(tree, leaf_value=values)
        scores = self.arrays.scores[output]
        self.workers.run_ranges(lambda a, b: add_to_rows(labels, tree.leaf_value, a, b, scores), len(scores))
        return tree

    def _steps(self, n_leaves: int, output: int, labels: LeafNumbers) -> FloatArray:
        level, rate, largest = self.loss.leaf_percentile, self.parameters.learning_rate, self.loss.largest_step
        weights = self.loss.weights
        if level is None:
            return self._newton_steps(n_leaves, output, labels)
        residuals = self.rows.target - self.arrays.scores[output]
        group = labels.astype(np.int64)
        found = percentiles_of_groups(residuals, weights.of_percentiles, group, n_leaves, level, ALONE)
        return np.clip(rate * found, -rate * largest, rate * largest)

    def _newton_steps(self, n_leaves: int, output: int, labels: LeafNumbers) -> FloatArray:
        gradients, hessians = self.arrays.gradients[output], self.arrays.hessians[output]
        repeats = self.loss.weights.repeats
        of_ranges = self.workers.run_ranges(lambda a, b: largest_magnitudes(gradients, hessians, a, b), len(gradients))
        gradient, hessian = max(one[0] for one in of_ranges), max(one[1] for one in of_ranges)
        n_rows = len(gradients) if repeats is None else repeats.total
        scales = fine_scales(gradient, hessian if len(hessians) else None, n_rows)
        times = np.empty(0, np.int64) if repeats is None else repeats.counts

        def sum_part(start: int, stop: int) -> npt.NDArray[np.int64]:
            part = np.zeros((n_leaves, 2), np.int64)
            sum_leaves(labels, gradients, hessians, *scales, times, start, stop, part)
            return part

        sums = sum(self.workers.run_ranges(sum_part, len(gradients)))
        steps = step_rules(self.parameters, self.loss.largest_step)
        steps["gradient_scale"], steps["hessian_scale"] = scales
        values = np.empty(n_leaves)
        newton_steps(sums, steps, values, np.empty(n_leaves))
        return values


def _blended(old: FloatArray, new: FloatArray, decay_rate: float) -> FloatArray:
    """`decay_rate` of the old values; at 0 and 1 exactly the new and the old ones."""
    return new.copy() if decay_rate == 0.0 else decay_rate * old + (1.0 - decay_rate) * new


def _leaves_by_iteration(
    model: Booster, table: Table, n_kept: int, workers: Workers
) -> Iterator[tuple[int, list[LeafNumbers]]]:
    """The number of each later iteration, and for each of its trees the leaf of every row."""
    size = model.n_outputs
    at_once = max(1, _MOST_NUMBERS // (size * table.n_rows))
    for first in range(n_kept, model.n_iterations, at_once):
        last = min(first + at_once, model.n_iterations)
        stretch = replace(model, trees=model.trees[first * size : last * size])
        leaves = stretch.forest_for_once(table.n_rows).leaf_indices(table, workers)
        for iteration in range(first, last):
            trees = range((iteration - first) * size, (iteration - first + 1) * size)
            yield iteration, [leaves[:, tree].astype(np.uint32) for tree in trees]
