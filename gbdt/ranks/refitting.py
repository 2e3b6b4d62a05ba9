"""Leaf values of all rows for the trees that early stopping chose: rows that were trained on, and those set aside.

The rows of each rank lie as they did in training, the first as bins and the others with their columns, and sums are
exact: the model has the bytes that one process gives it, which holds all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.binned_scores import leaves_over_bins
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet, start_scores
from dmlgbm.gbdt.boosting.refitting import FloatArray, LeafNumbers, leaves_of_table
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.threads import Workers


@dataclass(frozen=True)
class RowsToRefit:
    """The rows of a rank."""

    dataset: Dataset
    training: Rows  # without columns
    watched: Sequence[Rows]

    @classmethod
    def of(cls, dataset: Dataset, training: Rows, evaluation_sets: Sequence[EvaluationSet]) -> RowsToRefit:
        """The rows of a rank and its parts of evaluation sets."""
        parts = [part.rows for one in evaluation_sets for part in one.parts if part.rows.n_rows]
        return cls(dataset, training, parts)

    def joined(self, *, with_scores: bool) -> Rows:
        """All of them, without columns."""
        parts = [self.training, *(rows.without_columns() for rows in self.watched)]
        kept = [replace(rows, row_numbers=None) for rows in parts]
        return Rows.join(kept if with_scores else [replace(rows, init_score=None) for rows in kept])

    def leaves(self, model: Booster, workers: Workers) -> Iterator[LeafNumbers]:
        """The leaf of every row in each tree."""
        of_watched = [leaves_of_table(model, rows.table, workers) for rows in self.watched]
        for labels in zip(leaves_over_bins(self.dataset, model.trees), *of_watched, strict=True):
            yield np.concatenate(labels)

    def scores_of(self, initial: Booster, workers: Workers) -> FloatArray:
        """The scores of the model that training went on from; those of the training rows come with them."""
        assert self.training.init_score is not None
        of_watched = [start_scores(initial, rows, workers) for rows in self.watched]
        return np.ascontiguousarray(np.concatenate([self.training.init_score, *of_watched], axis=1))
