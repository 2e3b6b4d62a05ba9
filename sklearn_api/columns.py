"""X as the model knows it: the same columns in the same order, categorical where they were when it was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbdt.table import CategoricalColumn, Column, Table
from sklearn_api.tables import as_categorical, reordered, table_from
from sklearn_api.tables.names import column_labels


def table_like(
    X: Any, names: tuple[str, ...] | None, categorical: Sequence[bool], *, estimator_name: str, name: str = "X"
) -> Table:
    """X with its columns matched to the fitted ones; `categorical` tells which of those are categorical."""
    table = reordered(
        table_from(X, name=name), names, len(categorical), estimator_name=estimator_name, name=name
    )
    if all(isinstance(column, CategoricalColumn) == kind for column, kind in zip(table.columns, categorical, strict=True)):
        return table
    labels = column_labels(table.names, name)
    columns = tuple(
        _of_kind(column, kind, labels(feature), estimator_name)
        for feature, (column, kind) in enumerate(zip(table.columns, categorical, strict=True))
    )
    return Table(columns, table.n_rows, table.names)


def categorical_features(table: Table) -> list[bool]:
    """Which features of a table are categorical."""
    return [isinstance(column, CategoricalColumn) for column in table.columns]


def _of_kind(column: Column, categorical: bool, label: str, estimator_name: str) -> Column:
    if categorical:
        return as_categorical(column, label)
    if isinstance(column, CategoricalColumn):
        raise ValueError(
            f"The {label} holds text or categories, but {estimator_name} was fitted with numbers there: convert it to "
            "numbers."
        )
    return column
