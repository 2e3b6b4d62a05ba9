"""Predictions of rows on a cluster: the same method, made block by block when the result is computed.

A Dask collection gives a lazy collection, a Spark frame gives the frame with one more column.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dmlgbm.gbdt.system.cluster_types import is_dask_collection, is_spark_frame
from dmlgbm.neural.estimators.snapshots import snapshot

Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_on_collections(method: Method) -> Method:
    """Make a method of an estimator and X return a lazy collection where X is one."""

    @functools.wraps(method)
    def call(self: Any, X: Any) -> Any:
        self = snapshot(self)
        if is_spark_frame(X):
            return _predicted_column(self, X, method)
        if not is_dask_collection(X):
            return method(self, X)
        from dmlgbm.dask_backend.prediction import BlockPrediction, predict_blocks

        check_is_fitted(self)
        example = method(self, _example_row(self, X))
        names = list(self.classes_) if example.ndim == 2 and hasattr(self, "classes_") else range(example.shape[-1])
        columns = names if example.ndim == 2 else ()
        return predict_blocks(X, self, BlockPrediction(_BlockMethod(method.__name__), example, tuple(columns)))

    return call  # type: ignore[return-value]


class _BlockMethod:
    """A method by name; blocks of a worker share the BLAS threads of its process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, estimator: Any, X: Any, n_threads: int) -> Any:
        if hasattr(X, "to_pandas"):  # Spark brings Arrow tables
            X = X.to_pandas()
            X = X if hasattr(estimator, "feature_names_in_") else X.to_numpy()
        return getattr(estimator, self.name)(X)


# What the column of a prediction on Spark is called: Spark ML's names.
_COLUMN_NAMES = {"predict": "prediction", "predict_proba": "probability", "decision_function": "rawPrediction"}


def _predicted_column(estimator: Any, X: Any, method: Callable[..., Any]) -> Any:
    from dmlgbm.spark_backend.frames import columns_of_model
    from dmlgbm.spark_backend.prediction import ColumnPrediction, predict_column

    check_is_fitted(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    row = np.zeros((1, estimator.n_features_in_), np.float32)
    example = method(estimator, row if names is None else _frame(row, names))
    columns = columns_of_model(X, names, estimator.n_features_in_)
    name = method.__name__
    prediction = ColumnPrediction(
        _BlockMethod(name), example, _COLUMN_NAMES[name], of_classes=hasattr(estimator, "classes_")
    )
    return predict_column(X, columns, estimator, prediction)


def _example_row(estimator: Any, X: Any) -> Any:
    """A row of zeros with the columns of X: it shows what a result looks like, and whether the columns fit."""
    names = getattr(X, "columns", None)
    width = X.shape[1] if len(X.shape) == 2 else estimator.n_features_in_
    row = np.zeros((1, int(width)), np.float32)
    return row if names is None else _frame(row, names)


def _frame(row: Any, names: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(row, columns=names)
