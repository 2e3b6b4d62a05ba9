"""Rows whose weight is zero are left out before anything is learnt, as if they had never been passed.

Bins, categories, counts of rows, queries and the rows that early stopping sets aside are then those of the other rows.
Only the class labels of y are kept: the columns of `predict_proba` do not depend on weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, Table
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray


def weighing_rows(rows: Rows, listed: frozenset[int] | None) -> Rows:
    """The rows that weigh something.

    Columns in `listed` (all of them, if it is None) keep their categories; others lose those that no row holds.
    """
    kept = kept_rows(rows.weight)
    if kept is None:
        return rows
    left = rows.numbered().take(kept)
    return replace(left, table=with_used_categories(left.table, listed))


def kept_rows(weight: FloatArray | None) -> IntArray | None:
    """The rows that weigh something; None for all."""
    if weight is None or weight.all():
        return None
    return np.flatnonzero(weight)


def with_used_categories(table: Table, listed: frozenset[int] | None) -> Table:
    """The table without categories that no row holds, but for columns whose type lists them."""
    if listed is None:
        return table
    columns = tuple(
        column if feature in listed else _with_used_categories(column) for feature, column in enumerate(table.columns)
    )
    return Table(columns, table.n_rows, table.names)


def _with_used_categories(column: Column) -> Column:
    if not isinstance(column, CategoricalColumn):
        return column
    used = np.zeros(len(column.categories) + 1, np.bool_)
    used[column.codes] = True  # code -1, missing, is the last one
    if used[:-1].all():
        return column
    codes: Any = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    codes[-1] = -1
    categories = tuple(category for category, is_used in zip(column.categories, used, strict=False) if is_used)
    return CategoricalColumn(codes[column.codes], categories)
