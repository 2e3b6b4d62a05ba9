"""Predictions of Dask collections: the same method, made block by block when the result is computed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from neural.collections import is_collection

Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_on_collections(method: Method) -> Method:
    """Make a method of an estimator and X return a lazy collection where X is one."""

    @functools.wraps(method)
    def call(self: Any, X: Any) -> Any:
        if not is_collection(X):
            return method(self, X)
        from dask_backend.prediction import BlockPrediction, predict_blocks

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
        return getattr(estimator, self.name)(X)


def _example_row(estimator: Any, X: Any) -> Any:
    """A row of zeros with the columns of X: it shows what a result looks like, and whether the columns fit."""
    names = getattr(X, "columns", None)
    width = X.shape[1] if len(X.shape) == 2 else estimator.n_features_in_
    row = np.zeros((1, int(width)), np.float32)
    if names is None:
        return row
    import pandas as pd

    return pd.DataFrame(row, columns=names)
