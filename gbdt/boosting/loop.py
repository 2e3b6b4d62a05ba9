"""The boosting loop: gradients, one tree for each output, scores, metrics, and again.

It does not ask who holds the rows: what has to be known of the rows of others comes from an `Exchange`, and trees from
whatever grows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.dropout import Dropout
from dmlgbm.gbdt.boosting.early_stopping import EarlyStopping
from dmlgbm.gbdt.boosting.evaluation import Evaluator
from dmlgbm.gbdt.callbacks import Callback, Evaluation, TrainingState
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.growth.bootstrap import bayesian_weights, variance_weights
from dmlgbm.gbdt.growth.feature_rules import smoothed_steps, steps_in_order
from dmlgbm.gbdt.growth.gradient_sampling import gradient_factors, multiply, samples_by_gradient
from dmlgbm.gbdt.growth.grown_tree import GrownTree, LeafSteps
from dmlgbm.gbdt.growth.leaf_fitting import newton_steps_of, percentile_values, step_rules
from dmlgbm.gbdt.growth.quantisation import coarsest_level, quantise
from dmlgbm.gbdt.growth.row_arrays import RowArrays
from dmlgbm.gbdt.growth.sampling import bag_of
from dmlgbm.gbdt.growth.tree_building import is_chance, tree_over_values, tree_without_splits
from dmlgbm.gbdt.growth.tree_request import TreeRequest
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import Objective
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TrainingResult:
    """The model and how it came about."""

    booster: Booster
    evaluations: dict[str, dict[str, list[float]]]  # by set, then metric
    best_iteration: int | None
    best_score: dict[str, dict[str, float]] | None
    stop_reason: str | None


class Grower(Protocol):
    """Whatever grows trees over the rows of a data set."""

    @property
    def words(self) -> Sequence[npt.NDArray[np.int64]]:
        """Where the packed gradients of each of the trees are written that can be grown at once."""

    def grow_together(self, requests: Sequence[TreeRequest], bag: npt.NDArray[np.uint32] | None) -> Sequence[GrownTree]:
        """Grow trees over all rows, or over those in `bag`; they are valid until the next call."""

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""

    @property
    def packs(self) -> bool:
        """Whether it packs the gradients of a tree over all rows itself."""

    def derive(self) -> tuple[float, float] | None:
        """Write the derivatives of all rows; the largest magnitudes of gradients and hessians. None: it cannot."""

    def add_to_scores(self, grown: GrownTree, output: int, values: FloatArray, scores: FloatArray) -> None:
        """Add a tree to the scores of all rows, each of which has been labelled with its leaf."""


@dataclass(frozen=True)
class _Batch:
    """Outputs whose trees one grower grows at once, and with which threads."""

    outputs: range
    first_number: int  # of the iteration's trees
    bag: npt.NDArray[np.uint32] | None
    workers: Workers
    alone: bool = False  # whether the other threads grow trees of their own


class BoostingRun:
    """The arrays of one training run and one iteration over them."""

    def __init__(
        self,
        parameters: TrainParameters,
        dataset: Dataset,
        loss: Objective,
        rows: Rows,
        arrays: RowArrays,
        growers: Sequence[Grower],
        workers: Workers,
        exchange: Exchange = ALONE,
        dropout: Dropout | None = None,
        n_before: int = 0,
    ) -> None:
        self.parameters = parameters
        self.scores = arrays.scores
        self._n_before = n_before  # iterations that others have made
        self._rate = parameters.shrinkage  # of the iteration that is being made
        self._dropout = dropout
        self._weight_of_trees = 1.0  # of the trees that are being grown
        self._factors: npt.NDArray[np.float32] | None = None  # on the derivatives of this iteration
        self._exchange = exchange
        self._dataset = dataset
        self._loss = loss
        self._rows = rows
        self._workers = workers
        self._gradients, self._hessians = arrays.gradients, arrays.hessians
        self._all_ones = loss.constant_hessian and bool(self._hessians.size)
        repeats = loss.weights.repeats
        self._weightless = np.flatnonzero([] if repeats is None else repeats.counts == 0)
        self._n_total_rows = int(exchange.reduce_sum(np.array([dataset.n_rows], np.int64))[0])
        # Repeated rows are rounded before they are multiplied: their weights leave as much room as none.
        own_weight = loss.weights.in_derivatives
        weight = own_weight if own_weight.size else None
        self._coarsest_level = coarsest_level(weight, parameters.min_child_samples, self._n_total_rows, exchange)
        self._limits = loss.rare_class_limits()
        self._steps = [step_rules(parameters, loss.largest_step) for _ in range(loss.n_outputs)]
        # Several growers: one thread a tree, nothing to wait for. One grower: all threads in the tree.
        self._one_thread = Workers(1)
        self._n_at_once = len(growers[0].words)
        self._n_growers, self._first_grower = len(growers), growers[0]
        self._largest: tuple[float, float] | None = None  # magnitudes of the derivatives, where known already
        self._growers: SimpleQueue[Grower] = SimpleQueue()
        for grower in growers:
            self._growers.put(grower)

    def iterate(self, iteration: int) -> list[Tree]:
        """Grow the trees of one iteration (counted from 0 over the whole model) and add them to the scores."""
        if self._dropout is None:
            return self._grow_trees(iteration)
        self._weight_of_trees = self._dropout.begin(self.scores)
        new_trees = self._grow_trees(iteration)
        self._dropout.end(new_trees, self.scores)
        return new_trees

    def changes(self, new_trees: Sequence[Tree]) -> Sequence[Tree]:
        """What the last iteration has added to the score of any row."""
        return new_trees if self._dropout is None else self._dropout.changes

    def settled(self, trees: Sequence[Tree]) -> Sequence[Tree]:
        """The trees that were grown so far with the values that they have by now."""
        return trees if self._dropout is None else self._dropout.weighted(trees)

    def _grow_trees(self, iteration: int) -> list[Tree]:
        self._rate = self.parameters.rate_of(iteration - self._n_before)
        self._derive(iteration)
        bag = self._sample(iteration)
        n_outputs = self._loss.n_outputs
        batches = [range(k, min(k + self._n_at_once, n_outputs)) for k in range(0, n_outputs, self._n_at_once)]
        n_alone = len(batches) - self._n_together(len(batches))

        def grow_alone(outputs: range) -> list[Tree]:
            grower = self._growers.get()
            try:
                return self._grow(grower, _Batch(outputs, iteration * n_outputs, bag, self._one_thread, alone=True))
            finally:
                self._growers.put(grower)

        grown = self._workers.run_each(grow_alone, batches[:n_alone])
        for outputs in batches[n_alone:]:
            grown.append(self._grow(self._first_grower, _Batch(outputs, iteration * n_outputs, bag, self._workers)))
        return [tree for trees in grown for tree in trees]

    def _derive(self, iteration: int) -> None:
        """Write the derivatives at the scores as they are."""
        self._largest = self._first_grower.derive() if self._n_growers == 1 else None
        if self._largest is None:
            own = np.empty((len(self.scores), 0), np.float32) if self._all_ones else self._hessians
            key = random_key(self.parameters.seed, Purpose.GRADIENTS, iteration)
            self._loss.compute_gradients(self.scores, self._gradients, own, self._workers, key)
            if self._all_ones:
                self._hessians[:] = 1.0
        if len(self._weightless):
            # Rows that count no time must not say how fine the steps of the others are.
            self._gradients[:, self._weightless] = 0.0
            if self._hessians.size:
                self._hessians[:, self._weightless] = 0.0

    def _sample(self, iteration: int) -> npt.NDArray[np.uint32] | None:
        """The rows of this iteration's trees, None for all; their derivatives become what they count for."""
        parameters, segments = self.parameters, self._dataset.segments
        others = self._n_total_rows, self._loss.weights.repeats, self._workers, self._exchange
        weighs_all = parameters.bootstrap_type == "bayesian"
        self._factors = None
        if weighs_all:
            self._factors = bayesian_weights(parameters, iteration, len(self._rows.target), segments, self._workers)
        elif parameters.bootstrap_type == "mvs":
            self._factors = variance_weights(parameters, iteration, self._gradients, segments, *others)
        elif samples_by_gradient(parameters, iteration):
            self._factors = gradient_factors(parameters, iteration, self._gradients, self._hessians, segments, *others)
        if self._factors is None:
            return bag_of(parameters, iteration, segments, self._rows.target)
        multiply(self._gradients, self._factors, self._workers)
        multiply(self._hessians, self._factors, self._workers)
        return None if weighs_all else np.flatnonzero(self._factors).astype(np.uint32)

    def _n_together(self, n_batches: int) -> int:
        """How many of the last batches all threads grow together: those that would leave half of them without any."""
        n_left = n_batches % self._n_growers
        return n_batches if self._n_growers == 1 else n_left if 2 * n_left <= self._n_growers else 0

    def _grow(self, grower: Grower, batch: _Batch) -> list[Tree]:
        buffers = zip(batch.outputs, grower.words, strict=False)
        requests = [self._request(grower, batch, output, buffer) for output, buffer in buffers]
        grown = grower.grow_together(requests, batch.bag)
        return [
            self._finished(grower, batch, request, own_grown)
            for request, own_grown in zip(requests, grown, strict=True)
        ]

    def _request(self, grower: Grower, batch: _Batch, output: int, buffer: npt.NDArray[np.int64]) -> TreeRequest:
        """Make the gradients of an output integers."""
        number = batch.first_number + output
        quantised = quantise(
            self._gradients[output],
            self._hessians[output],
            precision=self.parameters.precision,
            segments=self._dataset.segments,
            seed=self.parameters.seed,
            tree=number,
            workers=batch.workers,
            buffer=buffer,
            exchange=self._exchange,
            n_total_rows=self._n_total_rows,
            coarsest=self._coarsest_level,
            least_leaf_hessian=float(self._limits.leaf_hessians[output]),
            repeats=self._loss.weights.repeats,
            largest_here=self._largest,
            write=batch.bag is not None or not grower.packs,
        )
        steps, least_gain = self._steps[output], float(self._limits.root_gains[output])
        steps["learning_rate"] = self._rate
        steps["gradient_scale"], steps["hessian_scale"] = quantised.fine_gradient_scale, quantised.fine_hessian_scale
        steps["least_root_gain"] = least_gain / quantised.gain_unit if least_gain > 0.0 else 0.0
        return TreeRequest(number, output, quantised, steps, batch.alone)

    def _finished(self, grower: Grower, batch: _Batch, request: TreeRequest, grown: GrownTree) -> Tree:
        """The tree with its values, which is added to the scores of all rows."""
        steps = grown.added or self._leaf_steps(batch, request, grown)
        if self.parameters.path_smooth > 0.0:
            unit = request.quantised.hessian_scale / request.quantised.gradient_scale
            steps = smoothed_steps(grown, steps, self.parameters.path_smooth, unit, self._rate, self._loss.largest_step)
        if self.parameters.monotone_constraints is not None:
            steps = steps_in_order(grown, steps, self.parameters.reg_lambda)
        if is_chance(grown, request.steps):
            return tree_without_splits(grown, steps.hessians)
        # Trees that are averaged are grown on the gradients at the first scores, all of them.
        if grown.added is None and not self.parameters.averages:
            if batch.bag is not None:
                grower.label_others(grown, batch.bag)
            values = steps.values * self._weight_of_trees
            grower.add_to_scores(grown, request.output, values, self.scores[request.output])
        return tree_over_values(grown, self._dataset, request.quantised.gain_unit, steps)

    def _leaf_steps(self, batch: _Batch, request: TreeRequest, grown: GrownTree) -> LeafSteps:
        output, row_weights = request.output, self._loss.weights
        gradients, hessians = self._gradients[output], self._hessians[output]
        steps = newton_steps_of(
            grown, gradients, hessians, request.steps, batch.workers, self._exchange, row_weights.repeats
        )
        percentile, rate = self._loss.leaf_percentile, self._rate
        if percentile is None:
            return steps
        residuals = self._rows.target - self.scores[output]
        weight: npt.NDArray[Any] | None = percentile.weight
        if self._factors is not None:
            weight = self._factors.astype(np.float64) if weight is None else self._factors * weight
        values = percentile_values(grown, residuals, weight, percentile.level, rate, self._exchange)
        largest = rate * self._loss.largest_step
        return LeafSteps(np.clip(values, -largest, largest), steps.hessians)


@dataclass(frozen=True)
class Finished:
    """Iterations of this fit that were made before, and what was measured before them and after each of them."""

    trees: tuple[Tree, ...] = ()
    evaluations: tuple[tuple[Evaluation, ...], ...] = ()
    at_start: tuple[Evaluation, ...] = ()


NOTHING_FINISHED = Finished()


@dataclass(frozen=True)
class IterationReport:
    """What one iteration added."""

    iteration: int  # 1 for the first of this fit
    n_iterations: int  # asked for
    new_trees: Booster  # the trees of this iteration alone, as they were grown
    evaluations: list[Evaluation]
    # What the model that training goes on from was worth, where early stopping has to know.
    at_start: tuple[Evaluation, ...] = field(default=(), kw_only=True)


def boost(
    run: BoostingRun,
    start: Booster,
    evaluators: Sequence[Evaluator],
    callbacks: Sequence[Callback],
    *,
    finished: Finished = NOTHING_FINISHED,
    on_iteration: Callable[[IterationReport], None] | None = None,
    exchange: Exchange = ALONE,
) -> TrainingResult:
    """Add iterations to `start`. Callbacks and `on_iteration` are called where the exchange leads."""
    parameters = run.parameters
    stopping = EarlyStopping(parameters) if parameters.early_stopping_rounds else None
    history: dict[str, dict[str, list[float]]] = {}
    trees: list[Tree] = list(finished.trees)  # of this fit, as they were grown
    n_finished = len(finished.trees) // start.n_outputs
    reason = None
    at_start = finished.at_start
    if stopping is not None and start.trees and not n_finished:
        at_start = tuple(evaluation for evaluator in evaluators for evaluation in evaluator.measure(start))
    if stopping is not None and at_start:
        stopping.note(start.n_iterations, list(at_start))
    for iteration, evaluations in enumerate(finished.evaluations, 1):
        reason = _noted(history, stopping, start.n_iterations + iteration, list(evaluations))
    anybody_watches = bool(exchange.reduce_max(np.array([len(callbacks)], np.float64))[0])
    for iteration in range(n_finished + 1, parameters.n_estimators + 1):
        if reason is not None:
            break
        new_trees = run.iterate(start.n_iterations + iteration - 1)
        trees.extend(new_trees)
        changes = _with_trees(start, run.changes(new_trees)) if evaluators else start
        measured = [evaluation for evaluator in evaluators for evaluation in evaluator.evaluate(changes)]
        reason = _noted(history, stopping, start.n_iterations + iteration, measured)
        if on_iteration is not None and exchange.leads:
            latest = _with_trees(start, new_trees)
            on_iteration(IterationReport(iteration, parameters.n_estimators, latest, measured, at_start=at_start))
        if anybody_watches:
            state = TrainingState(iteration, parameters.n_estimators, measured, lambda: _extended(start, run, trees))
            state.stop_reason = reason
            for callback in callbacks if exchange.leads else ():
                callback(state)
            reason = exchange.broadcast_text(state.stop_reason)
    booster = _extended(start, run, trees)
    if stopping is None:
        return TrainingResult(booster, history, None, None, reason)
    return TrainingResult(booster, history, stopping.best_iteration, stopping.best_score, reason)


def _noted(
    history: dict[str, dict[str, list[float]]],
    stopping: EarlyStopping | None,
    iteration: int,
    evaluations: list[Evaluation],
) -> str | None:
    """Append to the history; the reason to stop early, if there is one."""
    for evaluation in evaluations:
        history.setdefault(evaluation.set_name, {}).setdefault(evaluation.metric, []).append(evaluation.value)
    return stopping.update(iteration, evaluations) if stopping is not None and evaluations else None


def _extended(start: Booster, run: BoostingRun, trees: Sequence[Tree]) -> Booster:
    """The model that training has come to."""
    return _with_trees(start, (*start.trees, *run.settled(trees)))


def _with_trees(start: Booster, trees: Sequence[Tree]) -> Booster:
    return replace(start, trees=tuple(trees), metadata={})
