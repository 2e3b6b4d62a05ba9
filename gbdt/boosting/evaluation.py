"""Scores of the evaluation sets while trees are added, and their metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.binned_scores import add_trees, scores_over_bins
from dmlgbm.gbdt.callbacks import Evaluation
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.metrics.summed_metric import SummedMetric
from dmlgbm.gbdt.objectives import transform
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EvaluationPart:
    """A part of an evaluation set; `first_row_number` is where in the whole set it begins.

    Rows without columns are a data set of bins, over which all trees are grown that are evaluated.
    """

    rows: Rows
    first_row_number: int = 0
    dataset: Dataset | None = None

    def start_sums(self, start: Booster, workers: Workers) -> FloatArray:
        """Scores before the next iteration, or the sums of the trees of a model that averages."""
        if not start.averages:
            if self.dataset is None:
                return start_scores(start, self.rows, workers)
            return scores_over_bins(self.dataset, start, self.rows)
        if self.dataset is None:
            return start.forest.raw_scores(self.rows.table, np.zeros(start.n_outputs), workers=workers)
        sums = np.zeros((start.n_outputs, self.rows.n_rows))
        add_trees(self.dataset, start.trees, sums)
        return sums

    def with_trees(self, scores: FloatArray, new_trees: Booster, workers: Workers) -> FloatArray:
        """The scores with the trees of a model added, one iteration after the other."""
        if self.dataset is None:
            for iteration in range(new_trees.n_iterations):
                scores = new_trees.add_iteration(scores, self.rows.table, iteration, workers)
            return scores
        scores = scores.copy()
        add_trees(self.dataset, new_trees.trees, scores)
        return scores


@dataclass(frozen=True)
class EvaluationSet:
    """Rows that training looks at but does not learn from; categories are encoded as in training.

    A set may lie in parts, some of them here. Every process names the same sets in the same order.
    """

    name: str
    parts: Sequence[EvaluationPart]

    @classmethod
    def whole(cls, name: str, rows: Rows) -> EvaluationSet:
        """A set in one piece."""
        return cls(name, [EvaluationPart(rows)])


def first_scores(start: Booster, rows: Rows) -> FloatArray:
    """Scores before the first tree."""
    if rows.init_score is None:
        return np.repeat(start.base_scores[:, None], rows.n_rows, axis=1)
    return rows.init_score + start.base_scores[:, None]


def start_scores(start: Booster, rows: Rows, workers: Workers) -> FloatArray:
    """Scores before the next iteration, added up in the order of training: first scores, then tree by tree.

    Trees that are averaged leave the scores that derivatives come from as they are.
    """
    if start.averages:
        return first_scores(start, rows)
    if rows.init_score is None and start.trees:
        return start.forest.raw_scores(rows.table, start.base_scores, workers=workers)
    scores = first_scores(start, rows)
    for iteration in range(start.n_iterations):
        scores = start.add_iteration(scores, rows.table, iteration, workers)
    return scores


class Evaluator:
    """Keeps the scores of one evaluation set up to date, of the parts of it that are here."""

    def __init__(
        self,
        watched: EvaluationSet,
        start: Booster,
        metrics: Sequence[Metric],
        workers: Workers,
        exchange: Exchange = ALONE,
    ) -> None:
        parts = [part for part in watched.parts if part.rows.n_rows]
        self._name = watched.name
        self._parts = parts
        self._rows = [part.rows for part in parts]
        self._metrics = metrics
        self._workers = workers
        self._exchange = exchange
        self._n_iterations = start.n_iterations
        # Of a model that averages, the sums of its trees are kept.
        self._first_scores = [first_scores(start, rows) for rows in self._rows] if start.averages else []
        self._scores = [part.start_sums(start, workers) for part in parts]
        self._whole: _WholeSet | None = None
        if not all(isinstance(metric.function, SummedMetric) for metric in metrics):
            self._whole = _WholeSet(parts, exchange)
        self._require_targets()

    def add(self, changes: Booster) -> None:
        """Add what one iteration has changed: its trees, and with dropout what earlier ones have lost."""
        for position, part in enumerate(self._parts):
            self._scores[position] = part.with_trees(self._scores[position], changes, self._workers)
        self._n_iterations += 1

    def evaluate(self, changes: Booster) -> list[Evaluation]:
        """Add what the last iteration has changed, and measure."""
        self.add(changes)
        return self.measure(changes)

    def measure(self, model: Booster) -> list[Evaluation]:
        """Measure the scores as they are; the model says what they mean."""
        several = slice(None) if model.n_outputs > 1 else 0
        of_parts = self._scores
        if model.averages:
            pairs = zip(self._scores, self._first_scores, strict=True)
            of_parts = [model.averaged(sums, self._n_iterations, first) for sums, first in pairs]
        scores = [score[several] for score in of_parts]
        predictions = [transform(model.objective, score)[several] for score in of_parts]
        others = [metric for metric in self._metrics if not isinstance(metric.function, SummedMetric)]
        of_scores = [metric for metric in others if metric.of_raw_scores]
        of_predictions = [metric for metric in others if not metric.of_raw_scores]
        values = self._summed(predictions, model.n_outputs)
        values |= self._others(of_predictions, predictions, model.n_outputs)
        values |= self._others(of_scores, scores, model.n_outputs)
        return [
            Evaluation(self._name, metric.name, values[metric.name], metric.higher_is_better)
            for metric in self._metrics
        ]

    def _require_targets(self) -> None:
        """Refuse, in every process, targets for which a metric has no value."""
        choosy = [metric for metric in self._metrics if metric.targets_above is not None]
        if choosy:
            lowest = min((float(rows.target.min()) for rows in self._rows), default=math.inf)
            everywhere = -self._exchange.reduce_max(np.array([-lowest]))
            for metric in choosy:
                metric.require_targets(float(everywhere[0]), self._name)

    def _summed(self, predictions: list[FloatArray], n_outputs: int) -> dict[str, float]:
        """The metrics made of sums: those of the parts are added up, in one message for all metrics."""
        functions = {m.name: m.function for m in self._metrics if isinstance(m.function, SummedMetric)}
        if not functions:
            return {}
        adders = {function.summed: function for function in functions.values()}
        sums = [adder.no_sums(n_outputs) for adder in adders.values()]
        for rows, prediction in zip(self._rows, predictions, strict=True):
            for adder, own in zip(adders.values(), sums, strict=True):
                adder.add(own, rows.target, prediction, rows.weight, rows.group_starts)
        everywhere = self._exchange.reduce_sum(np.concatenate([own.ravel() for own in sums]))
        ends = np.cumsum([own.size for own in sums])
        summed = {
            kind: everywhere[end - own.size : end].reshape(own.shape)
            for kind, own, end in zip(adders, sums, ends, strict=True)
        }
        return {name: function.value(summed[function.summed]) for name, function in functions.items()}

    def _others(self, others: Sequence[Metric], predictions: list[FloatArray], n_outputs: int) -> dict[str, float]:
        """The metrics that need all rows in one place."""
        if not others or self._whole is None:
            return {}
        prediction = self._whole.joined(predictions, n_outputs)
        values = np.zeros(len(others))
        rows = self._whole.rows
        if prediction is not None and rows is not None:
            for position, metric in enumerate(others):
                values[position] = metric.function(rows.target, prediction, rows.weight, rows.group_starts)
        decided = self._exchange.broadcast(values)
        return {metric.name: float(value) for metric, value in zip(others, decided, strict=True)}


class _WholeSet:
    """All rows of an evaluation set in their order, in the process that leads."""

    rows: Rows | None = None  # without columns

    def __init__(self, parts: Sequence[EvaluationPart], exchange: Exchange) -> None:
        self._exchange = exchange
        own = np.array([[part.first_row_number, part.rows.n_rows] for part in parts], np.int64).reshape(-1, 2)
        stretches = exchange.gather(own.T)
        self._order: list[tuple[int, int, int]] = []  # (rank, start, stop) in the order of rows
        if stretches is not None:
            numbered = []
            for rank, (firsts, lengths) in enumerate(stretches):
                ends = np.cumsum(lengths)
                numbered += list(zip(firsts, [rank] * len(firsts), ends - lengths, ends, strict=True))
            self._order = [(rank, int(start), int(stop)) for _, rank, start, stop in sorted(numbered)]
        here = [part.rows for part in parts]
        target = self._collected([rows.target for rows in here])
        given = [any(rows.weight is not None for rows in here), any(rows.group_starts is not None for rows in here)]
        has_weight, has_groups = exchange.reduce_max(np.array(given, np.float64)).tolist()
        weight = group_starts = None
        if has_weight:
            weight = self._collected([rows.weight for rows in here if rows.weight is not None])
        if has_groups:
            begins = self._collected([_marked_starts(rows) for rows in here])
            if begins is not None:
                group_starts = np.append(np.flatnonzero(begins), len(begins)).astype(np.int64)
        if target is not None:
            self.rows = Rows(Table((), len(target)), target, weight, group_starts=group_starts)

    def joined(self, predictions: Sequence[FloatArray], n_outputs: int) -> FloatArray | None:
        """The predictions for all rows, class-major for several outputs; None in processes that do not lead."""
        return self._collected(predictions, (n_outputs, 0) if n_outputs > 1 else (0,))

    def _collected(self, parts: Sequence[FloatArray], empty: tuple[int, ...] = (0,)) -> FloatArray | None:
        if self._exchange.alone and len(parts) == 1:
            return parts[0]
        own = np.concatenate([np.zeros(empty), *parts], axis=-1)
        everybody = self._exchange.gather(own)
        if everybody is None:
            return None
        return np.concatenate([everybody[rank][..., start:stop] for rank, start, stop in self._order], axis=-1)


def _marked_starts(rows: Rows) -> FloatArray:
    """1 for every row with which a query begins."""
    marks = np.zeros(rows.n_rows)
    if rows.group_starts is not None:
        marks[rows.group_starts[:-1]] = 1.0
    return marks
