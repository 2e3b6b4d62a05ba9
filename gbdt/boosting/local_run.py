"""A boosting run over a data set that one process holds: its objective, its growers and the model it starts from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.dropout import Dropout, sums_over
from dmlgbm.gbdt.boosting.loop import BoostingRun
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_numbers import Segment
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.growth.grower import TreeGrower, histogram_bytes
from dmlgbm.gbdt.growth.quantisation import most_repeated_rows
from dmlgbm.gbdt.growth.row_arrays import row_arrays
from dmlgbm.gbdt.objectives import Objective, ObjectiveSettings, objective_for
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

FloatArray = npt.NDArray[np.float64]

# Of trees that are grown at once. (Measured on 60,000 x 784 rows of ten classes: 188 MB for two trees, which take 0.88
# of the time that they take one after the other.)
_MOST_HISTOGRAM_BYTES = 128 << 20


def loss_over(
    rows: Rows,
    objective: ObjectiveSettings,
    precision: str,
    segments: Sequence[Segment],
    exchange: Exchange = ALONE,
) -> Objective:
    """The objective over these rows, which the segments number, and those that other processes hold."""
    return objective_for(
        objective,
        target=rows.target,
        weight=rows.weight,
        group_starts=rows.group_starts,
        segments=segments,
        position=rows.position,
        most_repeated_rows=most_repeated_rows(precision),
        exchange=exchange,
    )


@contextlib.contextmanager
def local_run(
    parameters: TrainParameters,
    dataset: Dataset,
    loss: Objective,
    rows: Rows,
    scores: FloatArray,
    workers: Workers,
    n_before: int = 0,
) -> Iterator[BoostingRun]:
    """A run over a data set that one process holds, which adds to `scores`; `n_before` iterations were made before."""
    # One thread a tree has nothing to wait for; all threads in one tree need the histograms of one tree only.
    n_growers = min(workers.n_threads, loss.n_outputs)
    if n_growers * histogram_bytes(dataset.plan, parameters.num_leaves) > _MOST_HISTOGRAM_BYTES:
        n_growers = 1
    arrays = row_arrays(loss, scores, parameters)
    # Repeated rows need more than one pass for their words and sums.
    own_arrays = arrays if loss.weights.repeats is None else None
    dropout = None
    if parameters.boosting_type == "dart":
        dropout = Dropout(parameters, n_before, sums_over(dataset, loss.n_outputs))
    with contextlib.ExitStack() as stack:
        # Where the last trees of an iteration leave threads without one, the first grower uses all threads.
        growers = [
            stack.enter_context(TreeGrower(dataset, parameters, own_workers, own_arrays, keeps_threads=n_growers == 1))
            for own_workers in (workers, *(Workers(1) for _ in range(n_growers - 1)))
        ]
        yield BoostingRun(parameters, dataset, loss, rows, arrays, growers, workers, dropout=dropout, n_before=n_before)


def empty_model(loss: Objective, columns: Columns, parameters: TrainParameters, *, first_scores: bool) -> Booster:
    """A model without trees. A user's first scores take the place of the objective's own."""
    base_scores = loss.base_scores() if first_scores else np.zeros(loss.n_outputs)
    averages, changed_rate = parameters.averages, parameters.changes_rate
    return Booster((), base_scores, loss.name, columns, averages=averages, changed_rate=changed_rate)


def continued(model: Booster, parameters: TrainParameters) -> Booster:
    """A model that iterations with these parameters are added to."""
    return replace(model, changed_rate=True) if parameters.changes_rate else model


def check_outputs(start: Booster, loss: Objective) -> None:
    """A model can only be continued with as many scores a row."""
    if start.n_outputs != loss.n_outputs:
        raise ValueError(f"the initial model has {start.n_outputs} outputs, but {loss.name} has {loss.n_outputs}.")
