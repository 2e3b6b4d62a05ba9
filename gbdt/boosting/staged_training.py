"""Training in stages over rows that were binned before: to so many iterations, and later to more.

The model after n iterations is that of a run of n iterations from the start, because an iteration depends on nothing
but the scores of the rows and its own number: both are kept. No data set is changed, so many runs may share one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.binned_scores import scores_over_bins
from dmlgbm.gbdt.boosting.local_run import empty_model, local_run, loss_over
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.model.tree import TREE_ARRAYS, Tree
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]

_ARRAY_OVERHEAD = 112


class Reached(NamedTuple):
    """The model so far, and the scores [output, row] of the training rows that the next iteration starts from.

    They belong together, so that a thread that reads while another grows on gets both of the same moment. Nobody
    writes to the scores.
    """

    booster: Booster
    scores: FloatArray


class StagedTraining:
    """One run: its model so far and the scores that the next iteration starts from.

    Without evaluation sets, callbacks and early stopping, for which the number of iterations asked for matters.
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Columns,
        rows: Rows,
        objective: ObjectiveSettings,
        parameters: TrainParameters,
        *,
        so_far: Booster | None = None,
    ) -> None:
        """Start from nothing, or from the trees that an earlier run over the same rows has grown."""
        self._dataset = dataset
        self._rows = rows
        # Averaged trees leave the scores alone, and those that lose weight leave rounding errors in them.
        self._adds_up = parameters.boosting_type == "gbdt"
        self._loss = loss_over(rows, objective, parameters.precision, dataset.segments)
        start = so_far or empty_model(self._loss, columns, parameters, first_scores=rows.init_score is None)
        self.reached = Reached(start, scores_over_bins(dataset, start, rows))

    def predicted(self, reached: Reached) -> FloatArray | None:
        """What the model predicts for the training rows, to the bit, if that is what was reached."""
        return reached.scores.copy() if self._adds_up else None

    @property
    def booster(self) -> Booster:
        return self.reached.booster

    @property
    def n_bytes(self) -> int:
        """Memory that this run alone needs: scores and trees, not the rows it shares with others."""
        reached = self.reached
        return reached.scores.nbytes + sum(map(_tree_bytes, reached.booster.trees))

    def advance(self, parameters: TrainParameters) -> Booster:
        """Grow on until there are `n_estimators` iterations; the other parameters are those of the run."""
        done = self.booster.n_iterations
        if parameters.n_estimators < done:
            raise ValueError(f"the run has {done} iterations already, more than {parameters.n_estimators}")
        if parameters.n_estimators == done:
            return self.booster
        if done and parameters.boosting_type == "dart":
            raise ValueError("a run with boosting_type='dart' cannot be taken further: its trees have changed since.")
        # The scores are replaced when all has gone well: an error leaves the run as it was.
        scores = self.reached.scores.copy()
        with (
            Workers(parameters.n_threads) as workers,
            local_run(parameters, self._dataset, self._loss, self._rows, scores, workers) as run,
        ):
            new = [tree for iteration in range(done, parameters.n_estimators) for tree in run.iterate(iteration)]
            trees = (*self.booster.trees, *run.settled(new))
        self.reached = Reached(replace(self.booster, trees=trees), scores)
        return self.booster


def _tree_bytes(tree: Tree) -> int:
    return sum(getattr(tree, name).nbytes + _ARRAY_OVERHEAD for name in TREE_ARRAYS)
