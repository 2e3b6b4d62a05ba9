"""X as a model knows it: the same columns in the same order, with the same numbers for the same categories."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, Table
from dmlgbm.sklearn_api.tables import as_categorical, reordered, table_from
from dmlgbm.sklearn_api.tables.names import column_labels


def table_like(
    X: Any, fitted: Booster, handle_unknown: Literal["missing", "error"], *, estimator_name: str, name: str = "X"
) -> Table:
    """X with its columns matched to those that the booster was trained on."""
    table = table_from(X, name=name)
    table = reordered(table, fitted.feature_names, fitted.n_features, estimator_name=estimator_name, name=name)
    kinds = [known is not None for known in fitted.categories]
    if any(isinstance(column, CategoricalColumn) != kind for column, kind in zip(table.columns, kinds, strict=True)):
        labels = column_labels(table.names, name)
        columns = tuple(
            _of_kind(column, kind, labels(feature), estimator_name)
            for feature, (column, kind) in enumerate(zip(table.columns, kinds, strict=True))
        )
        table = Table(columns, table.n_rows, table.names)
    return fitted.encode(table, handle_unknown) if any(kinds) else table


def columns_of(table: Table) -> Booster:
    """A model without trees, to match other tables to the columns of this one."""
    categories = tuple(column.categories if isinstance(column, CategoricalColumn) else None for column in table.columns)
    return Booster((), np.zeros(1), "", table.n_features, table.names, categories)


def _of_kind(column: Column, categorical: bool, label: str, estimator_name: str) -> Column:
    if categorical:
        return as_categorical(column, label)
    if isinstance(column, CategoricalColumn):
        raise ValueError(
            f"The {label} holds text or categories, but {estimator_name} was fitted with numbers there: convert it to "
            "numbers."
        )
    return column
