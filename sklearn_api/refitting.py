"""Leaf values of a fitted estimator, fitted again: on other rows, or on all rows once early stopping has chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.boosting.refitting import refitted, require_refittable, require_same_kind
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.system.cluster_types import is_collection
from dmlgbm.sklearn_api.dispatch import snapshot
from dmlgbm.sklearn_api.fitting import CheckedFit
from dmlgbm.sklearn_api.parameters.values import checked_decay_rate
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.labels import class_weights
from dmlgbm.sklearn_api.rows.row_errors import naming_rows
from dmlgbm.sklearn_api.rows.weightless_rows import weighing_rows
from dmlgbm.sklearn_api.watching.evaluation_sets import GivenSet
from dmlgbm.sklearn_api.watching.learning_rates import with_rates


def refitted_estimator(estimator: Any, given: GivenRows, decay_rate: float) -> Booster:
    """The trees of a fitted estimator, up to the best iteration, with leaf values of these rows."""
    if is_collection(given.X):
        raise TypeError("refit takes rows of this process: compute the collection, or fit it again with init_model.")
    rate = checked_decay_rate(decay_rate)
    own = snapshot(estimator)
    model, classes = own.booster_, getattr(own, "classes_", None)
    objective = own._objective_settings(0 if classes is None else len(classes))
    _, rows = own._watched(GivenSet("", given), model.columns, classes, model.n_outputs)
    rows = weighing_rows(rows, None)
    if classes is not None:
        rows = replace(rows, weight=class_weights(own.class_weight, classes, rows.target, rows.weight))
    # Whether and how a fit would stop early says nothing about leaves.
    changes = {"early_stopping": False, "refit_after_stopping": False}
    parameters = own._engine_parameters(changes).for_table(rows.n_rows, model.columns).train
    require_refittable(parameters)
    require_same_kind(model, parameters)
    best = model.n_iterations if own.best_iteration_ is None else own.best_iteration_
    with naming_rows(rows):
        return refitted(model.first(best), rows, objective, parameters, decay_rate=rate)


def refitted_on_all(result: TrainingResult, fit: CheckedFit, columns: Columns) -> TrainingResult:
    """The iterations that early stopping chose, with leaf values of all rows instead of those that trees grew on."""
    n_kept = 0 if fit.start.booster is None else fit.start.booster.n_iterations
    best = result.booster.n_iterations if result.best_iteration is None else result.best_iteration
    chosen, parameters = result.booster.first(best), fit.parameters.for_table(fit.training.n_rows, columns).train
    n_new = fit.start.iterations_to_add(parameters.n_estimators)
    parameters = with_rates(replace(parameters, n_estimators=n_new), fit.settings.learning_rates)
    with naming_rows(fit.training):
        booster = refitted(chosen, fit.training, fit.objective, parameters, decay_rate=0.0, n_kept=n_kept)
    return replace(result, booster=booster)
