"""What the arguments of one call of `fit` change beside the data: metrics, columns, callbacks.

LightGBM takes some of its parameters in `fit`, and early stopping as a callback. They mean here what the constructor's
parameters of the same names mean, for this call alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgbm.gbdt.callbacks import Callback
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.table import Table
from dmlgbm.sklearn_api.fit_warnings import warn_of_table
from dmlgbm.sklearn_api.parameters.names import stored_parameters
from dmlgbm.sklearn_api.tables import table_from
from dmlgbm.sklearn_api.watching.foreign_callbacks import translated
from dmlgbm.sklearn_api.watching.learning_rates import Rates

MetricFunction = Callable[..., Any]
EvalMetric = str | MetricFunction | Sequence[str | MetricFunction] | None
Callbacks = Callback | Sequence[Callback] | None


@dataclass(frozen=True)
class FitSettings:
    """The settings of one call; `parameters` are those of the estimator that callbacks set."""

    eval_metric: Any
    categorical_feature: Any
    feature_names: tuple[str, ...] | None
    callbacks: Sequence[Callback]
    parameters: Mapping[str, Any]
    learning_rates: Rates | None = None

    def training_table(self, X: Any) -> Table:
        """X with the columns as they are to be called and read, and a warning of those that may not be as meant."""
        table = table_from(X, categorical_feature=self.categorical_feature, names=self.feature_names)
        warn_of_table(X, table, self.categorical_feature)
        return table

    def matched_to(self, columns: Columns) -> Columns:
        """The columns that evaluation sets are matched to: by position where only `feature_name` has named them."""
        return columns if self.feature_names is None else replace(columns, names=None)

    def require_names(self, start: Columns) -> None:
        """A model that is gone on from has named its columns already."""
        if self.feature_names is not None and self.feature_names != start.names:
            raise ValueError("feature_name differs from the names of the model to go on from: leave it out.")


def fit_settings(
    estimator: Any,
    callbacks: Any,
    eval_metric: Any = None,
    categorical_feature: Any = None,
    feature_name: Any = None,
    *,
    has_sets: bool,
) -> FitSettings:
    """The settings of a call of `fit`; what it leaves out is as the constructor has it."""
    is_own = categorical_feature is None or _is_auto(categorical_feature)
    checked, changes = translated(checked_callbacks(callbacks), has_sets=has_sets)
    learning_rates = changes.pop("learning_rate", None)
    unknown = [name for name, value in changes.items() if value and name not in stored_parameters(estimator)]
    if unknown:
        raise ValueError(f"lightgbm.early_stopping sets {unknown[0]}, which {type(estimator).__name__} does not have.")
    return FitSettings(
        eval_metric=estimator.eval_metric if eval_metric is None else eval_metric,
        categorical_feature=estimator.categorical_feature if is_own else categorical_feature,
        feature_names=names_listed(feature_name),
        callbacks=checked,
        parameters=changes,
        learning_rates=learning_rates,
    )


def checked_callbacks(callbacks: Any) -> list[Callback]:
    """The callbacks of a call of `fit`: one, or a list of them."""
    listed = [callbacks] if callable(callbacks) else list(callbacks or ())
    for callback in listed:
        if not callable(callback):
            raise TypeError(f"callbacks must be a function or a list of functions, but it holds {callback!r}.")
    return listed


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def names_listed(feature_name: Any) -> tuple[str, ...] | None:
    """The names of `feature_name`; None for "auto", those of the columns."""
    if feature_name is None or _is_auto(feature_name):
        return None
    if isinstance(feature_name, str) or not all(isinstance(name, str) for name in feature_name):
        raise TypeError(f"feature_name must be 'auto' or a list of names, got {feature_name!r:.80}.")
    return tuple(str(name) for name in feature_name)
