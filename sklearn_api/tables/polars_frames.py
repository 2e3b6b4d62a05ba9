"""polars data frames as columns: values are shared unless a column has nulls or several chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn
from dmlgbm.sklearn_api.tables.arrays import native_numbers
from dmlgbm.sklearn_api.tables.categories import category_values
from dmlgbm.sklearn_api.tables.instants import instants_from_ticks
from dmlgbm.sklearn_api.tables.names import Labels
from dmlgbm.sklearn_api.tables.objects import missing_column, object_column

_NOT_IN_NUMPY = tuple(getattr(pl, name) for name in ("Decimal", "Int128", "UInt128") if hasattr(pl, name))


def columns_of(frame: Any, labels: Labels) -> tuple[Column, ...]:
    """The columns of a DataFrame."""
    return tuple(_column(series, labels(position)) for position, series in enumerate(frame.get_columns()))


def _column(series: Any, label: str) -> Column:
    dtype = series.dtype
    if dtype in _NOT_IN_NUMPY:
        return NumericColumn(*_values_and_missing(series.cast(pl.Float64)))
    if dtype.is_numeric() or dtype == pl.Boolean:
        return NumericColumn(*_values_and_missing(series))
    if dtype == pl.Enum:
        return _enum_column(series)
    # A Categorical numbers its categories in the order this process happened to meet them.
    if dtype in (pl.String, pl.Categorical):
        text = series.cast(pl.String)
        return _enum_column(text.cast(pl.Enum(sorted(text.unique().drop_nulls().to_list()))))
    if dtype.is_temporal():
        return _instant_column(series)
    if dtype == pl.Null:
        return missing_column(len(series))
    if dtype == pl.Object:
        return object_column(np.array(series.to_list(), dtype=object), label)
    raise TypeError(f"The {label} has the polars type {dtype}: convert it to numbers, strings or dates.")


def _values_and_missing(series: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """The values (zero where null, which keeps integers integers) and the null rows (None: there are none)."""
    if series.null_count() == 0:
        return native_numbers(series.to_numpy()), None
    filled = series.fill_null(False if series.dtype == pl.Boolean else 0)
    return native_numbers(filled.to_numpy()), series.is_null().to_numpy()


def _enum_column(series: Any) -> CategoricalColumn:
    codes = series.to_physical().cast(pl.Int32).fill_null(-1).to_numpy()
    return CategoricalColumn(codes, category_values(series.dtype.categories.to_list()))


def _instant_column(series: Any) -> NumericColumn:
    dtype = series.dtype
    if dtype == pl.Date:
        unit = "D"
    elif dtype == pl.Time:
        unit = "ns"
    else:
        unit = dtype.time_unit
    ticks, missing = _values_and_missing(series.to_physical())
    return instants_from_ticks(ticks, unit, missing)
