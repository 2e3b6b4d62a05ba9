"""`cv`: folds of a Dataset trained side by side, and the means of what they measure.

Each fold cuts its bins from its own training rows: nothing of the rows it is measured on is known to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.boosting.evaluation import EvaluationPart, EvaluationSet
from dmlgbm.gbdt.boosting.folds import FoldsResult, boost_folds
from dmlgbm.gbdt.boosting.started_fit import BinnedRows, StartedFit, started
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import announce_growth
from dmlgbm.sklearn_api.booster import Booster
from dmlgbm.sklearn_api.functional.dataset import Dataset
from dmlgbm.sklearn_api.functional.functions import metric_functions
from dmlgbm.sklearn_api.functional.parameters import Job, job_of
from dmlgbm.sklearn_api.functional.training import require_dataset, with_reports
from dmlgbm.sklearn_api.parameters.fit_settings import Callbacks, checked_callbacks
from dmlgbm.sklearn_api.parameters.names import ALIASES_OF
from dmlgbm.sklearn_api.rows.row_errors import naming_rows
from dmlgbm.sklearn_api.watching.foreign_callbacks import translated

IntArray = npt.NDArray[np.int64]
Fold = tuple[IntArray, IntArray]

TRAIN, VALID = "train", "valid"


@dataclass(frozen=True)
class CVBooster:
    """The models of the folds; `best_iteration` is 0 if nothing stopped early."""

    boosters: list[Booster]
    best_iteration: int

    def predict(self, X: Any, **arguments: Any) -> list[npt.NDArray[Any]]:
        """The predictions of each model."""
        return [booster.predict(X, **arguments) for booster in self.boosters]


def cv(
    params: Mapping[str, Any] | None,
    train_set: Dataset,
    num_boost_round: int = 100,
    folds: Any = None,
    nfold: int = 5,
    stratified: bool = True,
    shuffle: bool = True,
    metrics: Any = None,
    feval: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    *,
    seed: int = 0,
    callbacks: Callbacks = None,
    eval_train_metric: bool = False,
    return_cvbooster: bool = False,
) -> dict[str, Any]:
    """Train on each fold of a Dataset and measure on the rest of it.

    The result has lists of a value for each iteration, "valid l2-mean" and "valid l2-stdv", up to the best iteration
    where early stopping, which watches the means, found one; "cvbooster" are the models. `folds` are pairs of row
    numbers (to learn from, to measure on) or a splitter of scikit-learn's. Otherwise there are `nfold`, of whole
    queries if there are any, else with the same share of each class if it is classes and `stratified`.
    """
    require_dataset(train_set, "train_set")
    if not train_set.has_table:
        raise ValueError(
            "train_set is kept as bins of all its rows, but each fold of cv cuts bins of its own: make the Dataset "
            "with free_raw_data=False."
        )
    functions = metric_functions(feval)
    kept, changes = translated(checked_callbacks(callbacks), has_sets=True)
    given = dict(params or {})
    if metrics is not None:
        given = {
            name: value for name, value in given.items() if name not in ("eval_metric", *ALIASES_OF["eval_metric"])
        }
        given["eval_metric"] = metrics
    job = job_of(given, train_set.params, num_boost_round, changes, has_sets=True)
    if job.parameters.train.early_stopping_sets is not None:
        raise ParameterError("early_stopping_sets has no place in cv: means over the folds are watched.")
    rows = job.checked(train_set.labelled_rows(job.objective.n_outputs, "train_set"), "train_set").numbered()
    splits = _splits(rows, job, folds, nfold, stratified=stratified, shuffle=shuffle, seed=seed)
    parameters = replace(job.parameters.train, early_stopping_sets=(VALID,))
    measured = job.metrics(functions, rows.without_columns().take(splits[0][1]), train_set.columns)
    announce_growth()
    # Folds side by side, with the threads that are left over for each; a user's function is called by one thread.
    n_threads = parameters.n_threads
    n_at_once = 1 if job.objective.name == "custom" else min(n_threads, len(splits))
    own = replace(job, parameters=replace(job.parameters, train=replace(parameters, n_threads=n_threads // n_at_once)))
    with contextlib.ExitStack() as stack:
        of_folds = _Folds(own, rows, train_set.columns, measured, eval_train_metric)
        begun = [of_folds.started(split, stack) for split in splits]

        def grow(iteration: int, fold: int) -> Sequence[Tree]:
            fit, training = begun[fold]
            with naming_rows(training):
                return fit.run.iterate(iteration)

        workers = stack.enter_context(Workers(n_at_once))
        result = boost_folds([fit for fit, _ in begun], grow, parameters, with_reports(job, kept), workers)
    return _listed(result, job, return_cvbooster=return_cvbooster)


@dataclass(frozen=True)
class _Folds:
    """What the fits of all folds have in common."""

    job: Job
    rows: Rows
    columns: Columns
    metrics: Sequence[Metric]
    eval_train_metric: bool

    def started(self, split: Fold, stack: contextlib.ExitStack) -> tuple[StartedFit, Rows]:
        """The fit of one fold, on bins that are cut from its training rows alone, and these rows without columns."""
        job = self.job
        given, valid = self.rows.take(split[0]), self.rows.take(split[1])
        training = job.weighed(given)
        parameters = job.for_rows(training, self.columns)
        workers = stack.enter_context(Workers(parameters.train.n_threads))
        dataset = bin_table(training.table, parameters.binning, workers, training.weight)
        training = training.without_columns()
        sets = [EvaluationSet.whole(VALID, valid)]
        if self.eval_train_metric:
            own = EvaluationPart(replace(training, weight=given.weight), dataset=dataset)
            sets = [EvaluationSet(TRAIN, [own]), *sets]
        binned = BinnedRows(dataset, self.columns, training)
        with naming_rows(training):
            fit = stack.enter_context(started(parameters.train, binned, job.objective, workers, sets, self.metrics))
        return fit, training


def _splits(rows: Rows, job: Job, folds: Any, nfold: int, *, stratified: bool, shuffle: bool, seed: int) -> list[Fold]:
    """Ascending row numbers to learn from and to measure on, of each fold."""
    starts = rows.group_starts
    if folds is not None:
        groups = None if starts is None else np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        if hasattr(folds, "split"):
            pairs = folds.split(np.zeros((rows.n_rows, 1)), rows.target, groups)
            return [_checked(rows, pair, groups) for pair in pairs]
        return [_checked(rows, _among_kept(rows, pair), groups) for pair in _listed_pairs(folds)]
    from sklearn.model_selection import KFold, StratifiedKFold

    random_state = seed if shuffle else None
    if starts is not None:
        of_queries = KFold(nfold, shuffle=shuffle, random_state=random_state).split(starts[:-1])
        number = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return [tuple(np.flatnonzero(np.isin(number, part)) for part in pair) for pair in of_queries]  # type: ignore[misc]
    kind = StratifiedKFold if stratified and job.classifies else KFold
    splitter = kind(nfold, shuffle=shuffle, random_state=random_state)
    return list(splitter.split(np.zeros((rows.n_rows, 1)), rows.target))


def _listed_pairs(folds: Any) -> list[Any]:
    pairs = list(folds) if isinstance(folds, Iterable) else []
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise TypeError("folds must be a splitter or a list of pairs (rows to learn from, rows to measure on).")
    return pairs


def _among_kept(rows: Rows, pair: Any) -> Fold:
    """Row numbers in what the user passed as those among the rows that weigh something."""
    assert rows.row_numbers is not None
    parts = []
    for part in pair:
        wanted = np.asarray(part)
        if len(np.unique(wanted)) < len(wanted):
            raise ValueError("folds lists a row twice in one part: give it a weight instead.")
        parts.append(np.flatnonzero(np.isin(rows.row_numbers, wanted)))
    return parts[0], parts[1]


def _checked(rows: Rows, pair: Any, groups: IntArray | None) -> Fold:
    training, valid = (np.sort(np.asarray(part, np.int64)) for part in pair)
    if not len(training) or not len(valid):
        raise ValueError("folds has a fold without rows to learn from or to measure on.")
    if len(np.intersect1d(training, valid)):
        raise ValueError("folds has a row that one fold both learns from and measures on.")
    if groups is not None and len(np.intersect1d(groups[training], groups[valid])):
        raise ValueError("folds cuts a query in two: all rows of a query belong to one part, as with GroupKFold.")
    return training, valid


def _listed(result: FoldsResult, job: Job, *, return_cvbooster: bool) -> dict[str, Any]:
    listed: dict[str, Any] = {}
    last = result.best_iteration or len(result.means)
    for means, deviations in zip(result.means[:last], result.deviations[:last], strict=True):
        for mean, deviation in zip(means, deviations, strict=True):
            name = f"{mean.set_name} {mean.metric}"
            listed.setdefault(f"{name}-mean", []).append(mean.value)
            listed.setdefault(f"{name}-stdv", []).append(deviation)
    if return_cvbooster:
        best = result.best_iteration
        boosters = [Booster.of(each).described(best, {}, job.params) for each in result.boosters]
        listed["cvbooster"] = CVBooster(boosters, best or 0)
    return listed
