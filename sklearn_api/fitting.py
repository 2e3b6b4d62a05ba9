"""From checked rows and parameters to a trained booster: metrics, callbacks and the call of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.callbacks import Callback, log_evaluation
from dmlgbm.gbdt.data.dataset import bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.training import TableBinner, TrainingResult, train
from dmlgbm.sklearn_api.continuation import Start
from dmlgbm.sklearn_api.parameters.fit_settings import FitSettings
from dmlgbm.sklearn_api.parameters.values import EngineParameters
from dmlgbm.sklearn_api.rows.labels import Labels
from dmlgbm.sklearn_api.rows.row_errors import naming_rows
from dmlgbm.sklearn_api.watching.evaluation_sets import on_probabilities, watched_metrics
from dmlgbm.sklearn_api.watching.learning_rates import Rates, with_rates
from dmlgbm.sklearn_api.watching.scoring import WatchedModel
from dmlgbm.sklearn_api.watching.stopping import are_same_rows, watching

NamedRows = tuple[str, Rows]


@dataclass(frozen=True)
class CheckedFit:
    """Everything that one call of `fit` is to do, checked and in the engine's own types."""

    parameters: EngineParameters
    objective: ObjectiveSettings
    training: Rows
    watched: Sequence[NamedRows]
    start: Start
    settings: FitSettings
    classes: Labels | None = None
    binner: TableBinner = bin_table


def train_booster(
    parameters: EngineParameters,
    model: WatchedModel,
    training: Rows,
    watched: Sequence[NamedRows],
    start: Start,
    *,
    eval_metric: Any,
    report_every: int,
    callbacks: Sequence[Callback],
    learning_rates: Rates | None = None,
    binner: TableBinner = bin_table,
) -> TrainingResult:
    """Train; early stopping watches the sets that `parameters` name, or all but the training rows."""
    start.require_same_objective(model.objective)
    start.require_same_sum(parameters.train)
    parameters.train.require_classes_to_draw(model.objective.n_classes)
    metrics = metrics_of(parameters, model, eval_metric, lambda: watched[0][1]) if watched else []
    n_estimators = start.iterations_to_add(parameters.train.n_estimators)
    train_parameters = watching(
        with_rates(replace(parameters.train, n_estimators=n_estimators), learning_rates),
        [name for name, _ in watched],
        lambda number: are_same_rows(training, watched[number][1]),
    )
    with naming_rows(training):
        return train(
            train_parameters,
            parameters.binning,
            training,
            model.objective,
            evaluation_sets=[EvaluationSet.whole(name, rows) for name, rows in watched],
            metrics=metrics,
            callbacks=[*([log_evaluation(report_every)] if report_every > 0 else []), *callbacks],
            initial_model=start.booster,
            binner=binner,
        )


def metrics_of(
    parameters: EngineParameters, model: WatchedModel, eval_metric: Any, example: Callable[[], Rows]
) -> list[Metric]:
    """The metrics of all evaluation sets; `example` gives rows of the first one, where a user's function needs them.

    What `scoring` asks for is watched by early stopping, so it comes first, and without early stopping it does not come
    at all.
    """
    objective = model.objective
    metrics = watched_metrics(eval_metric, model, example)
    if parameters.train.early_stopping_rounds is not None:
        scorers = model.asked_by_scoring()
        names = [scorer.name for scorer in scorers]
        metrics = [*scorers, *(metric for metric in metrics if metric.name not in names)]
        if not metrics:
            raise ValueError("early_stopping=True needs a metric, and a custom objective has none: set eval_metric.")
    if objective.name == "custom" and objective.n_classes > 1:
        return [on_probabilities(metric, "binary" if objective.n_outputs == 1 else "multiclass") for metric in metrics]
    return metrics
