"""Scores of the evaluation sets while trees are added, and their metrics."""

from __future__ import annotations

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
from dmlgbm.gbdt.metrics.exact_mean import ExactMean, MeanMetric
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

    def start_scores(self, start: Booster, workers: Workers) -> FloatArray:
        """Scores before the next iteration."""
        if self.dataset is None:
            return start_scores(start, self.rows, workers)
        return scores_over_bins(self.dataset, start, self.rows)

    def with_iteration(self, scores: FloatArray, new_trees: Booster, workers: Workers) -> FloatArray:
        """The scores with the trees of one iteration added."""
        if self.dataset is None:
            return new_trees.add_iteration(scores, self.rows.table, 0, workers)
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


def start_scores(start: Booster, rows: Rows, workers: Workers) -> FloatArray:
    """Scores before the next iteration, added up in the order of training: first scores, then tree by tree."""
    if rows.init_score is None and start.trees:
        return start.forest.raw_scores(rows.table, start.base_scores, workers=workers)
    if rows.init_score is None:
        return np.repeat(start.base_scores[:, None], rows.n_rows, axis=1)
    scores = rows.init_score + start.base_scores[:, None]
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
        self._scores = [part.start_scores(start, workers) for part in parts]
        self._whole: _WholeSet | None = None
        if not all(isinstance(metric.function, MeanMetric) for metric in metrics):
            self._whole = _WholeSet(parts, exchange)

    def evaluate(self, new_trees: Booster) -> list[Evaluation]:
        """Add the trees of the last iteration and measure."""
        for position, part in enumerate(self._parts):
            self._scores[position] = part.with_iteration(self._scores[position], new_trees, self._workers)
        return self.measure(new_trees)

    def measure(self, model: Booster) -> list[Evaluation]:
        """Measure the scores as they are; the model says what they mean."""
        several = slice(None) if model.n_outputs > 1 else 0
        scores = [score[several] for score in self._scores]
        predictions = [transform(model.objective, score)[several] for score in self._scores]
        others = [metric for metric in self._metrics if not isinstance(metric.function, MeanMetric)]
        of_scores = [metric for metric in others if metric.of_raw_scores]
        of_predictions = [metric for metric in others if not metric.of_raw_scores]
        values = self._means(predictions)
        values |= self._others(of_predictions, predictions, model.n_outputs)
        values |= self._others(of_scores, scores, model.n_outputs)
        return [
            Evaluation(self._name, metric.name, values[metric.name], metric.higher_is_better)
            for metric in self._metrics
        ]

    def _means(self, predictions: list[FloatArray]) -> dict[str, float]:
        """The metrics that are means: the parts' exact sums are added up."""
        means = {m.name: m.function for m in self._metrics if isinstance(m.function, MeanMetric)}
        if not means:
            return {}
        sums = np.zeros((len(means), *ExactMean().sums.shape), np.int64)
        for rows, prediction in zip(self._rows, predictions, strict=True):
            for position, function in enumerate(means.values()):
                sums[position] += function.partial_mean(rows.target, prediction, rows.weight, rows.group_starts).sums
        everywhere = self._exchange.reduce_sum(sums)
        return {
            name: function.finish(ExactMean(own))
            for (name, function), own in zip(means.items(), everywhere, strict=True)
        }

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
