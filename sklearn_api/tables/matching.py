"""X as a model knows it: the same columns in the same order, with the same numbers for the same categories."""

from __future__ import annotations

from typing import Any, Literal

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, Table
from dmlgbm.sklearn_api.tables import as_categorical, reordered, table_from
from dmlgbm.sklearn_api.tables.names import column_labels


def table_like(
    X: Any, columns: Columns, handle_unknown: Literal["missing", "error"], *, estimator_name: str, name: str = "X"
) -> Table:
    """X with its columns matched to those that a model was trained on."""
    return matched(table_from(X, name=name, only_present=True), columns, handle_unknown, estimator_name, name)


def matched(
    table: Table, columns: Columns, handle_unknown: Literal["missing", "error"], estimator_name: str, name: str
) -> Table:
    """A table with its columns matched."""
    table = reordered(table, columns.names, columns.n_features, estimator_name=estimator_name, name=name)
    kinds = [known is not None for known in columns.categories]
    if any(isinstance(column, CategoricalColumn) != kind for column, kind in zip(table.columns, kinds, strict=True)):
        labels = column_labels(table.names, name)
        of_kind = tuple(
            _of_kind(column, kind, labels(feature), estimator_name)
            for feature, (column, kind) in enumerate(zip(table.columns, kinds, strict=True))
        )
        table = Table(of_kind, table.n_rows, table.names)
    return columns.encode(table, handle_unknown) if any(kinds) else table


def _of_kind(column: Column, categorical: bool, label: str, estimator_name: str) -> Column:
    if categorical:
        return as_categorical(column, label)
    if isinstance(column, CategoricalColumn):
        raise ValueError(
            f"The {label} holds text or categories, but {estimator_name} was fitted with numbers there: convert it to "
            "numbers."
        )
    return column
