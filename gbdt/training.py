"""Training on a table that one process holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gbdt.booster import Booster
from gbdt.boosting import BoostingRun, TrainingResult, TrainingRows, boost
from gbdt.callbacks import Callback
from gbdt.dataset import Dataset, bin_table
from gbdt.evaluation import EvaluationSet, Evaluator, start_scores
from gbdt.grower import TreeGrower, histogram_bytes
from gbdt.metrics import Metric
from gbdt.objectives import Objective, ObjectiveSettings, objective_for
from gbdt.parameters import BinningParameters, TrainParameters
from gbdt.table import CategoricalColumn, Category, Table
from gbdt.threads import Workers

__all__ = ["TableBinner", "TrainingResult", "empty_model", "local_run", "loss_over", "train"]

FloatArray = npt.NDArray[np.float64]
TableBinner: TypeAlias = Callable[[Table, BinningParameters, Workers, FloatArray | None], Dataset]

# Of trees that are grown at once. (Measured on 60,000 x 784 rows of ten classes: 188 MB for two trees, which take 0.88
# of the time that they take one after the other.)
_MOST_HISTOGRAM_BYTES = 128 << 20


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
    binner: TableBinner = bin_table,
) -> TrainingResult:
    """Train on a table. With `initial_model`, `n_estimators` more iterations are added to it; `binner` may remember."""
    rows = TrainingRows(target, weight, init_score, group_starts)
    _announce_growth()
    with Workers(parameters.n_threads) as workers:
        dataset = binner(table, binning, workers, weight)
        loss = loss_over(rows, objective, parameters.precision)
        categories = tuple(c.categories if isinstance(c, CategoricalColumn) else None for c in table.columns)
        start = initial_model or empty_model(loss, table.names, categories, first_scores=init_score is None)
        check_outputs(start, loss)
        scores = start_scores(start, table, init_score, workers)
        evaluators = [Evaluator(one.name, [one], start, metrics, workers) for one in evaluation_sets]
        with local_run(parameters, dataset, loss, rows, scores, workers) as run:
            return boost(run, start, evaluators, callbacks)


@cache
def _announce_growth() -> None:
    """Have the largest kernels, which are the same for all tables, compiled while rows are still being binned."""
    workers = Workers(1)
    TreeGrower(bin_table(Table((), n_rows=1), BinningParameters(), workers), TrainParameters(), workers)


def loss_over(rows: TrainingRows, objective: ObjectiveSettings, precision: str) -> Objective:
    """The objective over the rows of one process."""
    return objective_for(
        objective,
        target=rows.target,
        weight=rows.weight,
        group_starts=rows.group_starts,
        exact=precision == "exact",
    )


@contextlib.contextmanager
def local_run(
    parameters: TrainParameters,
    dataset: Dataset,
    loss: Objective,
    rows: TrainingRows,
    scores: FloatArray,
    workers: Workers,
) -> Iterator[BoostingRun]:
    """A run over a data set that one process holds, which adds to `scores`."""
    # One thread a tree has nothing to wait for; all threads in one tree need the histograms of one tree only.
    n_growers = min(workers.n_threads, loss.n_outputs)
    if n_growers * histogram_bytes(dataset.plan, parameters.num_leaves) > _MOST_HISTOGRAM_BYTES:
        n_growers = 1
    tree_workers = workers if n_growers == 1 else Workers(1)
    with contextlib.ExitStack() as stack:
        growers = [stack.enter_context(TreeGrower(dataset, parameters, tree_workers)) for _ in range(n_growers)]
        yield BoostingRun(parameters, dataset, loss, rows, scores, growers, workers)


def empty_model(
    loss: Objective,
    names: tuple[str, ...] | None,
    categories: tuple[tuple[Category, ...] | None, ...],
    *,
    first_scores: bool,
) -> Booster:
    """A model without trees. A user's first scores take the place of the objective's own."""
    return Booster(
        trees=(),
        base_scores=loss.base_scores() if first_scores else np.zeros(loss.n_outputs),
        objective=loss.name,
        n_features=len(categories),
        feature_names=names,
        categories=categories,
    )


def check_outputs(start: Booster, loss: Objective) -> None:
    """A model can only be continued with as many scores a row."""
    if start.n_outputs != loss.n_outputs:
        raise ValueError(f"the initial model has {start.n_outputs} outputs, but {loss.name} has {loss.n_outputs}.")
