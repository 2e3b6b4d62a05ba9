"""Scores of the evaluation sets while trees are added, their metrics, and when to stop early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gbdt.booster import Booster
from gbdt.callbacks import Evaluation
from gbdt.metrics import Metric
from gbdt.objectives import transform
from gbdt.table import Table
from gbdt.threads import Workers


@dataclass(frozen=True)
class EvaluationSet:
    """Rows that training looks at but does not learn from; categories are encoded as in training."""

    name: str
    table: Table
    target: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64] | None = None
    init_score: npt.NDArray[np.float64] | None = None  # [output, row]
    group_starts: npt.NDArray[np.int64] | None = None


def start_scores(
    start: Booster, table: Table, init_score: npt.NDArray[np.float64] | None, workers: Workers
) -> npt.NDArray[np.float64]:
    """Scores before the next iteration, added up in the order of training: first scores, then tree by tree."""
    if init_score is None and start.trees:
        return start.forest.raw_scores(table, start.base_scores, workers=workers)
    if init_score is None:
        return np.repeat(start.base_scores[:, None], table.n_rows, axis=1)
    scores = init_score + start.base_scores[:, None]
    for iteration in range(start.n_iterations):
        scores = start.add_iteration(scores, table, iteration, workers)
    return scores


class Evaluator:
    """Keeps the scores of one evaluation set up to date."""

    def __init__(
        self, evaluation_set: EvaluationSet, start: Booster, metrics: Sequence[Metric], workers: Workers
    ) -> None:
        self._set = evaluation_set
        self._metrics = metrics
        self._workers = workers
        self._scores = start_scores(start, evaluation_set.table, evaluation_set.init_score, workers)

    def evaluate(self, new_trees: Booster) -> list[Evaluation]:
        """Add the trees of the last iteration and measure."""
        own = self._set
        self._scores = new_trees.add_iteration(self._scores, own.table, 0, self._workers)
        prediction = transform(new_trees.objective, self._scores)
        shaped = prediction if new_trees.n_outputs > 1 else prediction[0]
        return [
            Evaluation(
                own.name,
                metric.name,
                metric.function(own.target, shaped, own.weight, own.group_starts),
                metric.higher_is_better,
            )
            for metric in self._metrics
        ]


class EarlyStopping:
    """Remembers the best iteration of the first metric on the first evaluation set."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._best = -np.inf
        self.best_iteration = 0
        self.best_evaluations: list[Evaluation] = []

    def update(self, iteration: int, evaluations: list[Evaluation]) -> str | None:
        """The reason to stop now, if there is one."""
        watched = evaluations[0]
        merit = watched.value if watched.higher_is_better else -watched.value
        if merit > self._best or self.best_iteration == 0:
            self._best, self.best_iteration, self.best_evaluations = merit, iteration, evaluations
        if iteration - self.best_iteration < self._patience:
            return None
        return f"{watched.set_name} {watched.metric} has not improved for {self._patience} iterations"
