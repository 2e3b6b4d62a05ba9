"""`params` of `train` and `cv`: the parameters of the estimator that has this objective, by any of their names.

The estimator checks them and says what they mean; it is never fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric, default_metric
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.sklearn_api.classifier import DMLGBMClassifier
from dmlgbm.sklearn_api.dispatch import warn_of_cluster_parameters
from dmlgbm.sklearn_api.fit_warnings import warn_of_small_targets
from dmlgbm.sklearn_api.fitting import metrics_of
from dmlgbm.sklearn_api.functional.functions import objective_function
from dmlgbm.sklearn_api.parameters.names import ALIASES_OF, canonical_parameters, parameter_names, stored_parameters
from dmlgbm.sklearn_api.parameters.values import OBJECTIVE_ALIASES, EngineParameters, is_whole_number
from dmlgbm.sklearn_api.ranker import DMLGBMRanker
from dmlgbm.sklearn_api.regressor import DMLGBMRegressor
from dmlgbm.sklearn_api.rows.labels import class_weights, require_two_weighted_classes
from dmlgbm.sklearn_api.rows.targets import FloatArray, group_boundaries
from dmlgbm.sklearn_api.tables.names import did_you_mean
from dmlgbm.sklearn_api.watching.learning_rates import Rates, with_rates
from dmlgbm.sklearn_api.watching.scoring import WatchedModel

_NUM_CLASS = ("num_class", "num_classes")
_NO_METRIC = ("none", "null", "na")
_KINDS: tuple[Any, ...] = (DMLGBMRegressor, DMLGBMClassifier, DMLGBMRanker)

# Parameters of the estimators that have another place here, or none.
_ELSEWHERE = {
    "categorical_feature": "pass it to Dataset",
    "refit_after_stopping": "call Booster.refit",
    "importance_type": "pass it to Booster.feature_importance",
    "validation_fraction": "pass valid_sets",
    "warm_start": "pass init_model",
}


@dataclass(frozen=True)
class Job:
    """What `params` ask for."""

    estimator: Any
    objective: ObjectiveSettings
    parameters: EngineParameters
    params: Mapping[str, Any]
    learning_rates: Rates | None = None

    @property
    def n_classes(self) -> int:
        return self.objective.n_classes

    @property
    def classifies(self) -> bool:
        return isinstance(self.estimator, DMLGBMClassifier)

    @property
    def handle_unknown(self) -> Literal["missing", "error"]:
        """What happens to categories that training has not seen."""
        return self.estimator.handle_unknown

    def checked(self, rows: Rows, name: str) -> Rows:
        """The rows, if labels and queries are what the objective needs."""
        if self.classifies:
            _require_classes(rows.target, self.n_classes, name)
        if self.estimator._needs_queries and rows.group_starts is None:
            group_boundaries(None, None, rows.n_rows, (f"group of {name}", "qid"))
        return rows

    def weighed(self, rows: Rows) -> Rows:
        """Rows to learn from, each with the weight that it has as one of its class."""
        if not self.classifies:
            return rows
        classes = np.arange(self.n_classes)
        weight = class_weights(self.estimator.class_weight, classes, rows.target, rows.weight)
        require_two_weighted_classes(classes, rows.target, weight)
        return replace(rows, weight=weight)

    def metrics(self, functions: Sequence[Callable[..., Any]], example: Rows, columns: Columns) -> list[Metric]:
        """The metrics of `params`, and after them those of the user's functions."""
        named = self.estimator.eval_metric
        if named is None:
            named = [] if self.objective.name == "custom" else [default_metric(self.objective.name)]
        listed = list(named) if isinstance(named, Sequence) and not isinstance(named, str) else [named]
        listed = [each for each in listed if not (isinstance(each, str) and each.lower() in _NO_METRIC)]
        classes = np.arange(self.n_classes) if self.classifies else None
        model = WatchedModel(self.estimator, self.objective, columns, classes)
        return metrics_of(self.parameters, model, [*listed, *functions], lambda: example)

    def for_rows(self, rows: Rows, columns: Columns) -> EngineParameters:
        """The engine's parameters for rows to learn from, which have these columns."""
        self.parameters.train.require_classes_to_draw(self.objective.n_classes)
        warn_of_small_targets(self.objective.name, rows.target)
        parameters = self.parameters.for_table(rows.n_rows, columns)
        return replace(parameters, train=with_rates(parameters.train, self.learning_rates))


def job_of(
    params: Mapping[str, Any] | None,
    of_data: Mapping[str, Any],
    num_boost_round: int,
    changes: Mapping[str, Any],
    *,
    has_sets: bool,
) -> Job:
    """What `params` ask for, those of the Dataset where they are silent, and `changes` that callbacks make."""
    given, changes = dict(params or {}), dict(changes)
    learning_rates = changes.pop("learning_rate", None)
    counts = [given.pop(name) for name in _NUM_CLASS if name in given]
    n_classes = _number_of_classes(counts)
    objective = next((given[name] for name in ("objective", *ALIASES_OF["objective"]) if name in given), None)
    kind = _kind_of(objective, n_classes)
    canonical = canonical_parameters(given, parameter_names(kind), "train")
    for name in canonical:
        if name in _ELSEWHERE:
            raise ParameterError(f"{name} has no place in params: {_ELSEWHERE[name]}.")
    estimator = kind(**{"n_estimators": num_boost_round, **of_data, **canonical})
    values = {**stored_parameters(estimator), **changes}
    stops = values["early_stopping_rounds"] is not None or values["early_stopping"] is True
    if stops and not has_sets and values["early_stopping"] is not False:
        raise ParameterError("early stopping needs rows to watch: pass valid_sets, or leave early_stopping_rounds out.")
    parameters = estimator._engine_parameters(changes, has_sets=has_sets)
    warn_of_cluster_parameters(estimator)
    if callable(objective):
        estimator.objective = objective_function(objective)
    classes = (n_classes or 2) if kind is DMLGBMClassifier else 0
    return Job(estimator, estimator._objective_settings(classes), parameters, dict(params or {}), learning_rates)


def _kind_of(objective: Any, n_classes: int | None) -> Any:
    if objective is None or callable(objective):
        several = n_classes is not None and n_classes > 1
        if several and objective is None:
            raise ParameterError(f"num_class={n_classes} needs objective='multiclass': set it.")
        return DMLGBMClassifier if several else DMLGBMRegressor
    for kind in _KINDS:
        try:
            settings = kind(objective=objective)._objective_settings(2)
        except ParameterError:
            continue
        _check_number(objective, settings.n_outputs > 1, n_classes)
        return kind
    raise ParameterError(f"objective={objective!r} is not known{did_you_mean(objective, OBJECTIVE_ALIASES)}.")


def _check_number(objective: str, is_multiclass: bool, n_classes: int | None) -> None:
    if is_multiclass and (n_classes is None or n_classes < 2):
        raise ParameterError(f"objective={objective!r} needs num_class, the number of classes: set it to 2 or more.")
    if not is_multiclass and n_classes not in (None, 1):
        raise ParameterError(f"num_class={n_classes} does not fit objective={objective!r}: leave it out.")


def _number_of_classes(counts: list[Any]) -> int | None:
    if not counts:
        return None
    if any(count != counts[0] for count in counts):
        raise ParameterError(f"num_class={counts[0]!r} and num_classes={counts[1]!r} disagree: keep one of them.")
    if not is_whole_number(counts[0]) or counts[0] < 1:
        raise ParameterError(f"num_class={counts[0]!r} must be a whole number of at least 1.")
    return int(counts[0])


def _require_classes(label: FloatArray, n_classes: int, name: str) -> None:
    is_class = (label >= 0) & (label < n_classes) & (label == np.floor(label))
    if not is_class.all():
        row = int(np.argmin(is_class))
        raise ValueError(
            f"label of {name} holds {label[row]:g} in row {row}, but classes are the whole numbers from 0 to "
            f"{n_classes - 1}."
        )
