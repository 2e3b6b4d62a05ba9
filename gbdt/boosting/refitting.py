"""New leaf values for the trees of a model, from the gradients of other rows; splits stay as they are.

Trees are passed through in the order they were grown, and each sees the scores that the new values before it give. The
sums of a leaf are those of training, exact and in no order: the rows that a model was trained on give it its own bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.binned_scores import linked_nodes
from dmlgbm.gbdt.boosting.evaluation import start_scores
from dmlgbm.gbdt.boosting.local_run import check_outputs, loss_over
from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_numbers import whole_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.growth.feature_rules import single_rules
from dmlgbm.gbdt.growth.grown_tree import LeafSteps
from dmlgbm.gbdt.growth.leaf_fitting import step_rules
from dmlgbm.gbdt.growth.quantisation import fine_scales
from dmlgbm.gbdt.kernels.layout import TreeNodes
from dmlgbm.gbdt.kernels.leaf_values import add_to_rows, newton_steps, sum_leaves
from dmlgbm.gbdt.kernels.output_bounds import put_in_order
from dmlgbm.gbdt.kernels.quantise import largest_magnitudes
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import Objective, ObjectiveSettings
from dmlgbm.gbdt.objectives.shared_percentiles import percentiles_of_groups
from dmlgbm.gbdt.parameters import ParameterError, TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]
LeafNumbers = npt.NDArray[np.uint32]

# Leaf numbers of rows that are looked up at once.
_MOST_NUMBERS = 1 << 24


def require_refittable(parameters: TrainParameters) -> None:
    """Whether leaves of trees that are grown by these parameters can be fitted again."""
    if parameters.boosting_type == "dart":
        raise ParameterError(
            "refit and refit_after_stopping cannot follow boosting_type='dart', where later iterations have changed "
            "what trees weigh: choose another boosting_type, or fit again."
        )
    if parameters.path_smooth > 0.0:
        raise ParameterError(
            f"refit and refit_after_stopping cannot smooth leaves (path_smooth={parameters.path_smooth!r}), because a "
            "finished tree does not know what the nodes above them gave out: set path_smooth=0, or fit again."
        )


def require_same_kind(model: Booster, parameters: TrainParameters) -> None:
    """Whether these parameters say how the model's trees count."""
    if model.averages != parameters.averages:
        raise ParameterError(
            f"boosting_type={parameters.boosting_type!r} does not fit a model whose trees are "
            f"{'averaged' if model.averages else 'added up'}: give refit the parameters of training."
        )
    if model.changed_rate:
        raise ParameterError(
            "refit knows one learning_rate, but this model was trained with rates that reset_parameter changed: use "
            "refit_after_stopping=True, or fit again."
        )


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
    with Workers(parameters.n_threads) as workers:
        loss = loss_over(rows, objective, parameters.precision, whole_table(rows.n_rows))
        if not n_kept and rows.init_score is None:
            model = replace(model, base_scores=blended(model.base_scores, loss.base_scores(), decay_rate))
        scores = start_scores(model.first(n_kept), rows, workers)
        fitting = LeafFitting(loss, rows, scores, parameters, workers)
        new = model.since(n_kept)
        trees = fitting.refitted(new, leaves_of_table(new, rows.table, workers), decay_rate, n_kept)
    return replace(model, trees=(*model.trees[: n_kept * model.n_outputs], *trees), metadata={})


class LeafFitting:
    """Rows, and the scores of the trees that have been passed through; other processes may hold more rows."""

    def __init__(
        self,
        loss: Objective,
        rows: Rows,
        scores: FloatArray,
        parameters: TrainParameters,
        workers: Workers,
        exchange: Exchange = ALONE,
    ) -> None:
        self._loss = loss
        self._rows = rows
        self._scores = scores
        self._gradients = np.empty(scores.shape, np.float32)
        n_hessians = 0 if loss.constant_hessian else scores.shape[1]
        self._hessians = np.empty((len(scores), n_hessians), np.float32)
        self._parameters = parameters
        self._workers = workers
        self._exchange = exchange
        self._n_total_rows = int(exchange.reduce_sum(np.array([rows.n_rows], np.int64))[0])
        self._weightless = np.zeros(rows.n_rows, bool) if rows.weight is None else rows.weight == 0.0

    def refitted(
        self, model: Booster, leaves: Iterable[LeafNumbers], decay_rate: float, n_before: int = 0
    ) -> list[Tree]:
        """The trees of a model with new values; `leaves` has for each of them that of every row.

        So many iterations before them stay as they are.
        """
        check_outputs(model, self._loss)
        trees = []
        for number, (tree, labels) in enumerate(zip(model.trees, leaves, strict=True)):
            output = number % model.n_outputs
            if output == 0:
                self._differentiate(n_before + number // model.n_outputs)
            rate = self._parameters.rate_of(number // model.n_outputs)
            trees.append(self._refitted(tree, output, labels, decay_rate, rate))
        return trees

    def _differentiate(self, iteration: int) -> None:
        gradients, hessians = self._gradients, self._hessians
        key = random_key(self._parameters.seed, Purpose.GRADIENTS, iteration)
        self._loss.compute_gradients(self._scores, gradients, hessians, self._workers, key)
        # As in training, rows that count no time must not say how fine the steps of the others are.
        gradients[:, self._weightless] = 0.0
        if not self._loss.constant_hessian:
            hessians[:, self._weightless] = 0.0

    def _refitted(self, tree: Tree, output: int, labels: LeafNumbers, decay_rate: float, rate: float) -> Tree:
        """The tree with new values, which are added to the scores."""
        if tree.n_nodes:
            steps = self._steps(tree.n_leaves, output, labels, rate)
            n_reaching = np.bincount(labels[~self._weightless], minlength=tree.n_leaves)
            is_reached = self._exchange.reduce_sum(n_reaching.astype(np.int64)) > 0
            values = np.where(is_reached, blended(tree.leaf_value, steps.values, decay_rate), tree.leaf_value)
            if self._parameters.monotone_constraints is not None:
                values = _in_order(tree, values, steps.hessians, self._parameters)
            tree = replace(tree, leaf_value=values)
        # Trees that are averaged all start from the first scores.
        if not self._parameters.averages:
            scores = self._scores[output]
            self._workers.run_ranges(lambda a, b: add_to_rows(labels, tree.leaf_value, a, b, scores), len(scores))
        return tree

    def _steps(self, n_leaves: int, output: int, labels: LeafNumbers, rate: float) -> LeafSteps:
        percentile, largest = self._loss.leaf_percentile, rate * self._loss.largest_step
        steps = self._newton_steps(n_leaves, output, labels, rate)
        if percentile is None:
            return steps
        residuals, group = self._rows.target - self._scores[output], labels.astype(np.int64)
        found = percentiles_of_groups(residuals, percentile.weight, group, n_leaves, percentile.level, self._exchange)
        return LeafSteps(np.clip(rate * found, -largest, largest), steps.hessians)

    def _newton_steps(self, n_leaves: int, output: int, labels: LeafNumbers, rate: float) -> LeafSteps:
        gradients = self._gradients[output]
        hessians, repeats = self._hessians[output], self._loss.weights.repeats
        of_ranges = self._workers.run_ranges(lambda a, b: largest_magnitudes(gradients, hessians, a, b), len(gradients))
        largest = np.array([max(one[k] for one in of_ranges) for k in range(2)], np.float64)
        gradient, hessian = self._exchange.reduce_max(largest).tolist()
        n_rows = self._n_total_rows if repeats is None else repeats.total
        scales = fine_scales(gradient, None if self._loss.constant_hessian else hessian, n_rows)
        times = np.empty(0, np.int64) if repeats is None else repeats.counts

        def sum_part(start: int, stop: int) -> npt.NDArray[np.int64]:
            part = np.zeros((n_leaves, 2), np.int64)
            sum_leaves(labels, gradients, hessians, *scales, times, start, stop, part)
            return part

        sums = self._exchange.reduce_sum(sum(self._workers.run_ranges(sum_part, len(gradients))))
        steps = step_rules(self._parameters, self._loss.largest_step)
        steps["gradient_scale"], steps["hessian_scale"] = scales
        steps["learning_rate"] = rate
        own = LeafSteps(np.empty(n_leaves), np.empty(n_leaves))
        newton_steps(sums, steps, own.values, own.hessians)
        return own


def _in_order(tree: Tree, values: FloatArray, hessians: FloatArray, parameters: TrainParameters) -> FloatArray:
    """The values with the least change that puts them in the order of all constraints, as training does it."""
    nodes, splits, leaves = linked_nodes(tree)
    nodes["feature"][splits] = tree.feature
    assert parameters.monotone_constraints is not None
    rules = single_rules(parameters, np.arange(len(parameters.monotone_constraints)))
    # Two columns, as a single one would be another type to the kernel, compiled anew.
    over_features = TreeNodes(nodes, np.zeros((len(nodes), 2), np.int32), rules)
    ordered, ranges = values.copy(), np.zeros((len(nodes), 2), np.int64)
    put_in_order(over_features, splits, leaves, ordered, hessians + parameters.reg_lambda, ranges)
    return ordered


def leaves_of_table(model: Booster, table: Table, workers: Workers) -> Iterator[LeafNumbers]:
    """The leaf of every row in each tree."""
    size = model.n_outputs
    at_once = max(1, _MOST_NUMBERS // (size * max(1, table.n_rows)))
    for first in range(0, model.n_iterations, at_once):
        stretch = model.since(first).first(at_once)
        leaves = stretch.forest_for_once(table.n_rows).leaf_indices(table, workers)
        for tree in range(len(stretch.trees)):
            yield leaves[:, tree].astype(np.uint32)


def blended(old: FloatArray, new: FloatArray, decay_rate: float) -> FloatArray:
    """`decay_rate` of the old values; at 0 and 1 exactly the new and the old ones."""
    return new.copy() if decay_rate == 0.0 else decay_rate * old + (1.0 - decay_rate) * new
