"""A fit on binned rows before its first iteration: its run, its start, and the rows it watches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.binned_scores import scores_over_bins
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet, Evaluator, start_scores
from dmlgbm.gbdt.boosting.local_run import check_outputs, continued, empty_model, local_run, loss_over
from dmlgbm.gbdt.boosting.loop import BoostingRun
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BinnedRows:
    """Rows as bins; their table may have no columns any more."""

    dataset: Dataset
    columns: Columns
    rows: Rows

    def start_scores(self, start: Booster, workers: Workers) -> FloatArray:
        """Scores before the next iteration. Without columns, the trees were grown over these bins."""
        if self.rows.table.n_features:
            return start_scores(start, self.rows, workers)
        return scores_over_bins(self.dataset, start, self.rows)


@dataclass(frozen=True)
class StartedFit:
    """A fit before its first iteration."""

    run: BoostingRun
    start: Booster
    evaluators: Sequence[Evaluator]


@contextlib.contextmanager
def started(
    parameters: TrainParameters,
    binned: BinnedRows,
    objective: ObjectiveSettings,
    workers: Workers,
    evaluation_sets: Sequence[EvaluationSet] = (),
    metrics: Sequence[Metric] = (),
    initial_model: Booster | None = None,
) -> Iterator[StartedFit]:
    """A fit on rows that are binned."""
    rows = binned.rows
    loss = loss_over(rows, objective, parameters.precision, binned.dataset.segments)
    if initial_model is None:
        start = empty_model(loss, binned.columns, parameters, first_scores=rows.init_score is None)
    else:
        start = continued(initial_model, parameters)
    check_outputs(start, loss)
    scores = binned.start_scores(start, workers)
    evaluators = [Evaluator(one, start, metrics, workers) for one in evaluation_sets]
    with local_run(parameters, binned.dataset, loss, rows, scores, workers, start.n_iterations) as run:
        yield StartedFit(run, start, evaluators)
