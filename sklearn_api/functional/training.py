"""`train`: a Booster from a Dataset and a dictionary of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.boosting.binned_scores import splits_at_bounds
from dmlgbm.gbdt.boosting.evaluation import EvaluationPart, EvaluationSet
from dmlgbm.gbdt.boosting.loop import boost
from dmlgbm.gbdt.boosting.started_fit import BinnedRows, started
from dmlgbm.gbdt.callbacks import Callback, log_evaluation
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import TrainingResult, announce_growth
from dmlgbm.sklearn_api.booster import Booster
from dmlgbm.sklearn_api.continuation import Start, starting_point
from dmlgbm.sklearn_api.fit_warnings import warn_of_constant_model, warn_of_unused_metric
from dmlgbm.sklearn_api.functional.dataset import Dataset
from dmlgbm.sklearn_api.functional.functions import metric_functions
from dmlgbm.sklearn_api.functional.parameters import Job, job_of
from dmlgbm.sklearn_api.parameters.fit_settings import Callbacks, checked_callbacks
from dmlgbm.sklearn_api.rows.row_errors import naming_rows
from dmlgbm.sklearn_api.watching.foreign_callbacks import translated
from dmlgbm.sklearn_api.watching.stopping import TRAINING, watching


@dataclass(frozen=True)
class NamedSet:
    """A Dataset to watch."""

    name: str
    dataset: Dataset


def train(
    params: Mapping[str, Any] | None,
    train_set: Dataset,
    num_boost_round: int = 100,
    valid_sets: Dataset | Sequence[Dataset] | None = None,
    valid_names: str | Sequence[str] | None = None,
    feval: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    init_model: Any = None,
    callbacks: Callbacks = None,
) -> Booster:
    """Train on the rows of a Dataset.

    `params` are those of the estimators, by any of their names, with `num_class` for objective "multiclass"; a number
    of iterations among them comes before `num_boost_round`. Metrics are evaluated on `valid_sets`, which may contain
    `train_set`; `feval(predictions, data)` returns (name, value, higher_is_better). A function as objective gets (raw
    scores, data). With `init_model`, iterations are added to it.
    """
    require_dataset(train_set, "train_set")
    functions = metric_functions(feval)
    sets = _named_sets(train_set, valid_sets, valid_names)
    kept, changes = translated(checked_callbacks(callbacks), has_sets=bool(sets))
    job = job_of(params, train_set.params, num_boost_round, changes, has_sets=bool(sets))
    start = starting_point(init_model, None)
    start.require_same_objective(job.objective)
    start.require_same_sum(job.parameters.train)
    if job.classifies:
        start.require_same_classes(np.arange(job.n_classes))
    rows = job.weighed(job.checked(train_set.labelled_rows(job.objective.n_outputs, "train_set"), "train_set"))
    others = {each.name: _watched(job, each, train_set) for each in sets if each.dataset is not train_set}
    warn_of_unused_metric(functions or job.estimator.eval_metric, sets, "pass valid_sets")
    parameters = job.for_rows(rows, train_set.columns).train
    parameters = watching(parameters, [each.name for each in sets], lambda number: sets[number].dataset is train_set)
    announce_growth()
    with naming_rows(rows), Workers(parameters.n_threads) as workers:
        dataset = train_set.binned(job.parameters.binning, rows.weight, workers)
        if not train_set.has_table and start.booster is None:
            rows = rows.without_columns()
        binned = BinnedRows(dataset, train_set.columns, rows)
        _require_start(start, binned)
        # The weights of classes are no part of a metric.
        own = replace(rows, weight=train_set.get_weight())
        own_part = EvaluationPart(own, dataset=None if own.table.n_features else dataset)
        watched = [EvaluationSet(each.name, [others.get(each.name, own_part)]) for each in sets]
        metrics = job.metrics(functions, watched[0].parts[0].rows, train_set.columns) if watched else []
        with started(parameters, binned, job.objective, workers, watched, metrics, start.booster) as fit:
            result = boost(fit.run, fit.start, fit.evaluators, with_reports(job, kept))
    warn_of_constant_model(result.booster, rows.n_rows, parameters)
    return Booster.of(result.booster).described(result.best_iteration, _best_score(result), job.params)


def require_dataset(value: Any, name: str) -> None:
    """Whether this is a Dataset."""
    if not isinstance(value, Dataset):
        raise TypeError(f"{name} must be a Dataset, got {value!r:.80}: write Dataset(X, label=y).")


def with_reports(job: Job, callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks, and what `verbose` prints."""
    every = int(job.estimator.verbose)
    return [*([log_evaluation(every)] if every > 0 else []), *callbacks]


def _named_sets(train_set: Dataset, valid_sets: Any, valid_names: Any) -> list[NamedSet]:
    datasets = [valid_sets] if isinstance(valid_sets, Dataset) else list(valid_sets or ())
    for number, dataset in enumerate(datasets):
        require_dataset(dataset, f"valid_sets[{number}]")
    if valid_names is None:
        names = [TRAINING if one is train_set else f"valid_{number}" for number, one in enumerate(datasets)]
    else:
        names = [valid_names] if isinstance(valid_names, str) else list(valid_names)
    if len(names) != len(datasets) or len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"valid_names must hold {len(datasets)} different names, one for each set, got {names!r}.")
    return [NamedSet(*pair) for pair in zip(names, datasets, strict=True)]


def _watched(job: Job, given: NamedSet, train_set: Dataset) -> EvaluationPart:
    part = given.dataset.watched(train_set.columns, job.handle_unknown, job.objective.n_outputs, given.name)
    job.checked(part.rows, given.name)
    return part


def _require_start(start: Start, binned: BinnedRows) -> None:
    """Whether the model to go on from can be added to with these rows."""
    if start.booster is None:
        return
    if start.booster.columns != binned.columns:
        raise ValueError(
            "train_set has other columns or categories than init_model: make the Dataset with reference= that Booster."
        )
    if not binned.rows.table.n_features and not splits_at_bounds(binned.dataset, start.booster.trees):
        raise ValueError(
            "init_model was trained on other bins than train_set, which is kept as bins alone: make the Dataset with "
            "free_raw_data=False."
        )


def _best_score(result: TrainingResult) -> dict[str, dict[str, float]]:
    """What was measured at the best iteration, or at the last one."""
    if result.best_score is not None:
        return result.best_score
    return {
        name: {metric: values[-1] for metric, values in metrics.items()} for name, metrics in result.evaluations.items()
    }
