"""Training on a table that one process holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.boosting.loop import TrainingResult, boost
from dmlgbm.gbdt.boosting.started_fit import BinnedRows, started
from dmlgbm.gbdt.callbacks import Callback
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.growth.grower import TreeGrower
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.threads import Workers

__all__ = ["TableBinner", "TrainingResult", "announce_growth", "train"]

FloatArray = npt.NDArray[np.float64]
TableBinner: TypeAlias = Callable[[Table, BinningParameters, Workers, FloatArray | None], Dataset]


def train(
    parameters: TrainParameters,
    binning: BinningParameters,
    rows: Rows,
    objective: ObjectiveSettings,
    *,
    evaluation_sets: Sequence[EvaluationSet] = (),
    metrics: Sequence[Metric] = (),
    callbacks: Sequence[Callback] = (),
    initial_model: Booster | None = None,
    binner: TableBinner = bin_table,
) -> TrainingResult:
    """Train on rows. With `initial_model`, `n_estimators` more iterations are added to it; `binner` may remember."""
    announce_growth()
    with Workers(parameters.n_threads) as workers:
        binned = BinnedRows(binner(rows.table, binning, workers, rows.weight), Columns.of(rows.table), rows)
        with started(parameters, binned, objective, workers, evaluation_sets, metrics, initial_model) as fit:
            return boost(fit.run, fit.start, fit.evaluators, callbacks)


@cache
def announce_growth() -> None:
    """Have the largest kernels, which are the same for all tables, compiled while rows are still being binned."""
    workers = Workers(1)
    TreeGrower(bin_table(Table((), n_rows=1), BinningParameters(), workers), TrainParameters(), workers)
