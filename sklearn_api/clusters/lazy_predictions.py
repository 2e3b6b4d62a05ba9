"""Predictions of collections: methods of one result a row that return a lazy collection where X lies on a cluster.

`dask_backend` and `spark_backend` are imported when the first collection comes, so that nobody else waits for them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.cluster_types import is_collection, is_spark_frame
from dmlgbm.sklearn_api.dispatch import snapshot
from dmlgbm.sklearn_api.parameters.values import n_threads_of

Method = TypeVar("Method", bound=Callable[..., Any])
Columns = Callable[[Any, int], Sequence[Any]]
"""The names of the second axis of a result, from the estimator and the width."""


def numbered(estimator: Any, n_columns: int) -> Sequence[Any]:
    """Columns without names of their own."""
    return range(n_columns)


def of_classes(estimator: Any, n_columns: int) -> Sequence[Any]:
    """One column for each class."""
    return estimator.classes_.tolist()


def lazy_on_collections(columns: Columns = numbered) -> Callable[[Method], Method]:
    """Make a method that gives one result a row work on collections too: it then returns a lazy collection."""

    def decorate(method: Method) -> Method:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(self: Any, X: Any, *given: Any, **options: Any) -> Any:
            own = snapshot(self)
            if not is_collection(X):
                return method(own, X, *given, **options)
            bound = signature.bind(own, X, *given, **options)
            arguments = {name: value for name, value in bound.arguments.items() if name not in ("self", "X")}
            if is_spark_frame(X):
                return _predicted_column(own, X, _Call(method.__name__, arguments))
            return _predicted_lazily(own, X, _Call(method.__name__, arguments), columns)

        return call  # type: ignore[return-value]

    return decorate


def staged_on_collections(stage: str) -> Callable[[Method], Method]:
    """Make a method that gives results after each iteration work on collections: a lazy one for each stage."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any, X: Any) -> Any:
            own = snapshot(self)
            if not is_collection(X):
                return method(own, X)
            _require_fitted(own)
            return (getattr(own, stage)(X, num_iteration=n + 1) for n in range(own.n_iter_))

        return call  # type: ignore[return-value]

    return decorate


class _Call:
    """A method call that is made on every block, with as many threads as the block may have."""

    def __init__(self, method: str, arguments: dict[str, Any]) -> None:
        self._method = method
        self._arguments = arguments

    @property
    def column_name(self) -> str:
        return "rawPrediction" if self._arguments.get("raw_score") else _COLUMN_NAMES[self._method]

    def __call__(self, model: Any, X: Any, n_threads: int) -> npt.NDArray[Any]:
        return getattr(model._with_threads(n_threads), self._method)(X, **self._arguments)


def _predicted_lazily(estimator: Any, X: Any, call: _Call, columns: Columns) -> Any:
    from dmlgbm.dask_backend.prediction import BlockPrediction, predict_blocks
    from dmlgbm.sklearn_api.predicting import shipped

    _require_fitted(estimator)
    model = shipped(estimator)
    # A row of missing values shows what a result looks like, and whether the columns of X are those of the model.
    example = call(model, _missing_row(X, estimator.n_features_in_), 1)
    names = columns(estimator, example.shape[1]) if example.ndim == 2 else ()
    max_threads = None if estimator.n_jobs is None else n_threads_of(estimator.n_jobs)
    return predict_blocks(X, model, BlockPrediction(call, example, names, max_threads))


# What the column of a prediction on Spark is called: Spark ML's names, as far as it has them.
_COLUMN_NAMES = {
    "predict": "prediction",
    "predict_proba": "probability",
    "predict_log_proba": "logProbability",
    "decision_function": "rawPrediction",
    "apply": "leaves",
}


def _predicted_column(estimator: Any, X: Any, call: _Call) -> Any:
    from dmlgbm.sklearn_api.predicting import shipped
    from dmlgbm.spark_backend.frames import columns_of_model
    from dmlgbm.spark_backend.prediction import ColumnPrediction, predict_column

    _require_fitted(estimator)
    model = shipped(estimator)
    booster = model.booster_
    columns = columns_of_model(X, booster.feature_names, booster.n_features)
    example = call(model, _missing_table(booster), 1)
    max_threads = None if estimator.n_jobs is None else n_threads_of(estimator.n_jobs)
    prediction = ColumnPrediction(call, example, call.column_name, max_threads, hasattr(estimator, "classes_"))
    return predict_column(X, columns, model, prediction)


def _missing_table(booster: Any) -> Any:
    if booster.feature_names is None:
        return np.full((1, booster.n_features), np.nan, np.float32)
    import pyarrow as pa

    return pa.table({name: pa.nulls(1) for name in booster.feature_names})


def _require_fitted(estimator: Any) -> None:
    # Workers that predict load this file, but not scikit-learn.
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)


def _missing_row(X: Any, n_features: int) -> Any:
    names = getattr(X, "columns", None)
    if names is None:
        shape: tuple[float, ...] = getattr(X, "shape", ())
        width = int(shape[1]) if len(shape) == 2 and shape[1] == shape[1] else n_features
        return np.full((1, width), np.nan, np.float32)
    import pandas as pd

    return pd.DataFrame(np.full((1, len(names)), np.nan, np.float32), columns=names)
