"""What a Booster does with labelled rows: metrics on them, and leaf values fitted again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlgbm.gbdt.boosting.evaluation import EvaluationSet, Evaluator
from dmlgbm.gbdt.boosting.refitting import refitted, require_refittable, require_same_kind
from dmlgbm.gbdt.callbacks import Evaluation
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers
from dmlgbm.sklearn_api.booster import Booster
from dmlgbm.sklearn_api.functional.dataset import Dataset
from dmlgbm.sklearn_api.functional.functions import metric_functions
from dmlgbm.sklearn_api.functional.parameters import Job, job_of
from dmlgbm.sklearn_api.functional.training import require_dataset
from dmlgbm.sklearn_api.parameters.values import checked_decay_rate
from dmlgbm.sklearn_api.rows.row_errors import naming_rows


def job_for(model: Booster, params: Mapping[str, Any] | None) -> Job:
    """What the parameters of a Booster, or those given, ask for."""
    given = model.params if params is None else params
    if given is None:
        raise ParameterError("This Booster does not know what it was trained with, as those of train do: pass params.")
    job = job_of(given, {}, model.n_iterations or 1, {"early_stopping": False}, has_sets=True)
    if (job.objective.name, job.objective.n_outputs) != (model.objective, model.n_outputs):
        raise ParameterError(
            f"params ask for objective {job.objective.name!r} with {job.objective.n_outputs} scores a row, but the "
            f"Booster has {model.objective!r} with {model.n_outputs}: give it those that it was trained with."
        )
    return job


def evaluated(
    model: Booster, data: Dataset, name: str, feval: Any, params: Mapping[str, Any] | None
) -> list[Evaluation]:
    """The metrics of `params` and `feval`, after the best iteration or the last one."""
    require_dataset(data, "data")
    job = job_for(model, params)
    part = data.watched(model.columns, job.handle_unknown, model.n_outputs, name)
    job.checked(part.rows, name)
    used = model.first(model.best_iteration or model.n_iterations)
    metrics = job.metrics(metric_functions(feval), part.rows, model.columns)
    with Workers(job.parameters.train.n_threads) as workers:
        evaluator = Evaluator(EvaluationSet(name, [part]), used, metrics, workers)
        return evaluator.measure(used)


def refitted_booster(
    model: Booster, data: Any, label: Any, decay_rate: float, params: Mapping[str, Any] | None, **of_rows: Any
) -> Booster:
    """The Booster with leaf values of these rows."""
    rate = checked_decay_rate(decay_rate)
    job = job_for(model, params)
    require_refittable(job.parameters.train)
    require_same_kind(model, job.parameters.train)
    dataset = Dataset(data, label, model, **of_rows)
    rows = job.weighed(job.checked(dataset.labelled_rows(model.n_outputs, "data"), "data"))
    used = model.first(model.best_iteration or model.n_iterations)
    with naming_rows(rows):
        parameters = job.parameters.for_table(rows.n_rows, model.columns).train
        new = refitted(used, rows, job.objective, parameters, decay_rate=rate)
    return Booster.of(new).described(None, {}, job.params)
