"""Single rows as a model knows them: what a value means that is neither a plain number nor a known category."""

from __future__ import annotations

from numbers import Real
from typing import Literal

import numpy as np

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.model.one_row import RowReader
from dmlgbm.sklearn_api.tables.categories import as_categorical, category_values
from dmlgbm.sklearn_api.tables.objects import is_missing, object_column


def reader_of(columns: Columns, handle_unknown: Literal["missing", "error"], estimator_name: str) -> RowReader:
    """Reads rows by the rules of `table_like`, one value at a time."""

    def number_of(value: object, label: str) -> float:
        cell = np.empty(1, object)
        cell[0] = value
        column = object_column(cell, f"column {label} of the row")
        if isinstance(column, CategoricalColumn):
            raise ValueError(
                f"The column {label} of the row holds text or categories, but {estimator_name} was fitted with numbers "
                "there: convert it to numbers."
            )
        is_absent = column.missing is not None and bool(column.missing[0])
        return np.nan if is_absent else float(column.values[0])

    def category_of(value: object, feature: int) -> int:
        if is_missing(value):
            return -1
        names = None if columns.names is None else (columns.names[feature],)
        known = columns.categories[feature] or ()
        column = _single_category(value, known, f"column {feature if names is None else repr(names[0])} of the row")
        encoded = Columns(names, (known,)).encode(Table((column,), 1, names), handle_unknown).columns[0]
        assert isinstance(encoded, CategoricalColumn)
        return int(encoded.codes[0])

    return RowReader(columns, number_of, category_of)


def _single_category(value: object, known: tuple[object, ...], label: str) -> CategoricalColumn:
    if isinstance(value, Real) and known and all(isinstance(category, int) for category in known):
        return as_categorical(NumericColumn(np.array([value])), label)
    return CategoricalColumn(np.zeros(1, np.int32), category_values([value]))
