"""The boosting loop: gradients, one tree for each output, scores, metrics, and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from gbdt.booster import Booster
from gbdt.callbacks import Callback, Evaluation, TrainingState
from gbdt.dataset import Dataset, bin_table
from gbdt.evaluation import EarlyStopping, EvaluationSet, Evaluator, start_scores
from gbdt.grower import TreeGrower
from gbdt.leaf_fitting import add_to_scores, newton_values, percentile_values
from gbdt.metrics import Metric
from gbdt.objectives import Objective, ObjectiveSettings, objective_for
from gbdt.parameters import BinningParameters, TrainParameters
from gbdt.quantisation import quantise
from gbdt.sampling import bag_of
from gbdt.table import CategoricalColumn, Table
from gbdt.threads import Workers
from gbdt.tree import Tree
from gbdt.tree_building import tree_over_values

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TrainingResult:
    """The model and how it came about."""

    booster: Booster
    evaluations: dict[str, dict[str, list[float]]]  # by set, then metric
    best_iteration: int | None
    best_score: dict[str, dict[str, float]] | None
    stop_reason: str | None


@dataclass(frozen=True)
class TrainingRows:
    """What is known of each training row besides its features."""

    target: FloatArray
    weight: FloatArray | None = None
    init_score: FloatArray | None = None  # [output, row]
    group_starts: npt.NDArray[np.int64] | None = None


def train(
    parameters: TrainParameters,
    binning: BinningParameters,
    table: Table,
    objective: ObjectiveSettings,
    *,
    target: FloatArray,
    weight: FloatArray | None = None,
    init_score: FloatArray | None = None,
    group_starts: npt.NDArray[np.int64] | None = None,
    evaluation_sets: Sequence[EvaluationSet] = (),
    metrics: Sequence[Metric] = (),
    callbacks: Sequence[Callback] = (),
    initial_model: Booster | None = None,
) -> TrainingResult:
    """Train on a table. With `initial_model`, `n_estimators` more iterations are added to it."""
    rows = TrainingRows(target, weight, init_score, group_starts)
    with Workers(parameters.n_threads) as workers:
        dataset = bin_table(table, binning, workers)
        loss = objective_for(
            objective.name_or_callable,
            target=target,
            weight=weight,
            group_starts=group_starts,
            n_classes=objective.n_classes,
            alpha=objective.alpha,
            truncation_level=objective.truncation_level,
        )
        start = initial_model or _empty_model(table, loss, rows)
        if start.n_outputs != loss.n_outputs:
            raise ValueError(f"the initial model has {start.n_outputs} outputs, but {loss.name} has {loss.n_outputs}.")
        run = _Run(parameters, dataset, loss, rows, start, workers)
        run.scores = start_scores(start, table, init_score, workers)
        evaluators = [Evaluator(one, start, metrics, workers) for one in evaluation_sets]
        return _boost(run, evaluators, callbacks)


def _empty_model(table: Table, loss: Objective, rows: TrainingRows) -> Booster:
    """A model without trees. A user's first scores take the place of the objective's own."""
    return Booster(
        trees=(),
        base_scores=loss.base_scores() if rows.init_score is None else np.zeros(loss.n_outputs),
        objective=loss.name,
        n_features=table.n_features,
        feature_names=table.names,
        categories=tuple(c.categories if isinstance(c, CategoricalColumn) else None for c in table.columns),
    )


def _boost(run: _Run, evaluators: Sequence[Evaluator], callbacks: Sequence[Callback]) -> TrainingResult:
    parameters, start = run.parameters, run.start
    stopping = EarlyStopping(parameters.early_stopping_rounds) if parameters.early_stopping_rounds else None
    history: dict[str, dict[str, list[float]]] = {}
    trees: list[Tree] = list(start.trees)
    reason = None
    for iteration in range(1, parameters.n_estimators + 1):
        new_trees = run.iterate(start.n_iterations + iteration - 1)
        trees.extend(new_trees)
        latest = _with_trees(start, new_trees)
        evaluations = [value for evaluator in evaluators for value in evaluator.evaluate(latest)]
        for set_name, metric, value, _ in evaluations:
            history.setdefault(set_name, {}).setdefault(metric, []).append(value)
        state = TrainingState(iteration, parameters.n_estimators, evaluations, lambda: _with_trees(start, trees))
        if stopping is not None and evaluations:
            state.stop_reason = stopping.update(start.n_iterations + iteration, evaluations)
        for callback in callbacks:
            callback(state)
        reason = state.stop_reason
        if reason is not None:
            break
    booster = _with_trees(start, trees)
    if stopping is None or stopping.best_iteration == 0:
        return TrainingResult(booster, history, None, None, reason)
    return TrainingResult(booster, history, stopping.best_iteration, _by_set(stopping.best_evaluations), reason)


def _with_trees(start: Booster, trees: Sequence[Tree]) -> Booster:
    return Booster(
        tuple(trees), start.base_scores, start.objective, start.n_features, start.feature_names, start.categories
    )


def _by_set(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for evaluation in evaluations:
        scores.setdefault(evaluation.set_name, {})[evaluation.metric] = evaluation.value
    return scores


class _Run:
    """The arrays of one training run and one iteration over them."""

    def __init__(
        self,
        parameters: TrainParameters,
        dataset: Dataset,
        loss: Objective,
        rows: TrainingRows,
        start: Booster,
        workers: Workers,
    ) -> None:
        self.parameters = parameters
        self.start = start
        self._dataset = dataset
        self._loss = loss
        self._rows = rows
        self._workers = workers
        shape = (loss.n_outputs, dataset.n_rows)
        self.scores = np.zeros(shape)
        self._gradients = np.empty(shape, np.float32)
        self._hessians = np.empty((shape[0], 0 if loss.constant_hessian else shape[1]), np.float32)
        # Several outputs: one thread a tree, nothing to wait for. One output: all threads in the tree.
        self._one_thread = Workers(1)
        self._tree_workers = workers if loss.n_outputs == 1 else self._one_thread
        self._growers: SimpleQueue[TreeGrower] = SimpleQueue()
        for _ in range(1 if loss.n_outputs == 1 else min(workers.n_threads, loss.n_outputs)):
            self._growers.put(TreeGrower(dataset, parameters, self._tree_workers))

    def iterate(self, iteration: int) -> list[Tree]:
        """Grow the trees of one iteration (counted from 0 over the whole model) and add them to the scores."""
        self._loss.compute_gradients(self.scores, self._gradients, self._hessians, self._workers)
        bag = bag_of(self.parameters, iteration, self._dataset.first_row_number, self._dataset.n_rows)
        n_outputs = self._loss.n_outputs
        outputs = range(n_outputs)
        return self._workers.run_each(lambda output: self._grow(output, iteration * n_outputs + output, bag), outputs)

    def _grow(self, output: int, number: int, bag: npt.NDArray[np.uint32] | None) -> Tree:
        parameters, workers = self.parameters, self._tree_workers
        gradients, hessians = self._gradients[output], self._hessians[output]
        grower = self._growers.get()
        try:
            quantised = quantise(
                gradients,
                hessians,
                precision=parameters.precision,
                first_row_number=self._dataset.first_row_number,
                seed=parameters.seed,
                tree=number,
                workers=workers,
                buffer=grower.words,
            )
            grown = grower.grow(quantised, bag, number)
            values, weights = newton_values(grown, gradients, hessians, quantised, parameters, workers)
            if self._loss.leaf_percentile is not None:
                residuals = self._rows.target - self.scores[output]
                values = percentile_values(
                    grown, residuals, self._rows.weight, self._loss.leaf_percentile, parameters.learning_rate
                )
            add_to_scores(grown, self._dataset, bag, values, self.scores[output], workers)
            gain_unit = quantised.hessian_scale / quantised.gradient_scale**2
            return tree_over_values(grown, self._dataset, gain_unit, values, weights)
        finally:
            self._growers.put(grower)
