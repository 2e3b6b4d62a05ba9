"""`table_from`: find out which framework X comes from, without importing any, and let that framework's file read it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from dmlgbm.gbdt.data.table import Column, Table
from dmlgbm.sklearn_api.tables import arrays
from dmlgbm.sklearn_api.tables.categories import as_categorical
from dmlgbm.sklearn_api.tables.names import (
    CategoricalFeature,
    Labels,
    categorical_positions,
    column_labels,
    feature_names,
    given_names,
)

# Of pandas, polars and Arrow.
_TYPES_WITH_LISTS = ("category", "enum", "dictionary")

_Reader = Callable[[Any, Labels], tuple[Column, ...]]


def table_from(
    X: Any,
    *,
    categorical_feature: CategoricalFeature = "auto",
    name: str = "X",
    names: tuple[str, ...] | None = None,
    only_present: bool = False,
) -> Table:
    """X as a table; columns of numbers listed in `categorical_feature` become categorical.

    `name` is for messages, `names` are those of the columns of an array. With `only_present`, categories that a type
    lists but no row has may be left out: to predict a few rows nobody asks for them, and there may be thousands.
    """
    source, raw_names, columns_of = _source_of(X, name, only_present)
    n_rows, n_features = _two_dimensions(source.shape, name)
    names = feature_names(raw_names, name) if names is None else given_names(names, raw_names, n_features, name)
    labels = column_labels(names, name)
    categorical = categorical_positions(categorical_feature, names, n_features, name)
    columns = columns_of(source, labels)
    if categorical:
        columns = tuple(
            as_categorical(column, labels(position)) if position in categorical else column
            for position, column in enumerate(columns)
        )
    return Table(columns, n_rows, names)


def listed_categories(X: Any) -> frozenset[int]:
    """The columns whose type lists its categories, whether a row holds them or not."""
    if _is_instance(X, "pyarrow", "Table") or _is_instance(X, "pyarrow", "RecordBatch"):
        types = [field.type for field in X.schema]
    else:
        types = list(getattr(X, "dtypes", ()))
    return frozenset(position for position, each in enumerate(types) if str(each).lower().startswith(_TYPES_WITH_LISTS))


def _source_of(X: Any, name: str, only_present: bool) -> tuple[Any, Iterable[object], _Reader]:
    """Something with a shape, its column names, and the function that reads its columns."""
    if _is_instance(X, "pandas", "DataFrame"):
        from dmlgbm.sklearn_api.tables import pandas_frames

        return X, X.columns.tolist(), partial(pandas_frames.columns_of, only_present=only_present)
    if _is_instance(X, "polars", "DataFrame"):
        from dmlgbm.sklearn_api.tables import polars_frames

        return X, X.columns, polars_frames.columns_of
    if _is_instance(X, "pyarrow", "Table") or _is_instance(X, "pyarrow", "RecordBatch"):
        from dmlgbm.sklearn_api.tables import arrow_tables, arrow_vectors

        if arrow_vectors.has_vectors(X):
            expanded = arrow_vectors.ExpandedTable(X, name)
            return expanded, expanded.names, arrow_vectors.columns_of
        return X, X.schema.names, arrow_tables.columns_of
    if _is_instance(X, "scipy.sparse", "sparray") or _is_instance(X, "scipy.sparse", "spmatrix"):
        from dmlgbm.sklearn_api.tables import sparse_matrices

        return X, (), sparse_matrices.columns_of
    if _is_instance(X, "polars", "LazyFrame"):
        raise TypeError(f"{name} is a polars LazyFrame, which holds no rows yet: pass {name}.collect().")
    if type(X).__module__.partition(".")[0] in ("dask", "dask_expr"):
        raise TypeError(
            f"{name} is a Dask collection ({type(X).__qualname__}): collections are handled elsewhere, on the "
            f"workers of their cluster; use {name}.compute() to bring it into this process."
        )
    return arrays.array_of(X, name), (), arrays.columns_of


def _is_instance(X: object, module_name: str, class_name: str) -> bool:
    """Whether X is of a class of a framework that may not be there: nobody has its objects before importing it."""
    framework_class = getattr(sys.modules.get(module_name), class_name, None)
    return framework_class is not None and isinstance(X, framework_class)


def _two_dimensions(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """The shape of a table with at least one row and one column; the errors use scikit-learn's phrases."""
    if len(shape) == 1:
        raise ValueError(
            f"Expected 2D array, got 1D array instead: {name} has shape {shape}. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it contains a single "
            "sample."
        )
    if len(shape) > 2:
        raise ValueError(f"Found array with dim {len(shape)}, while dim <= 2 is required for {name}.")
    n_rows, n_features = shape
    if n_rows == 0:
        raise ValueError(f"{name}: Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
    if n_features == 0:
        raise ValueError(f"{name}: Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required.")
    return n_rows, n_features
