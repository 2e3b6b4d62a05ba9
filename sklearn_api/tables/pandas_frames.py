"""pandas data frames as columns: one block of numbers is shared as one array, everything else column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, SparseColumn
from dmlgbm.sklearn_api.tables import arrays
from dmlgbm.sklearn_api.tables.categories import category_values, sorted_column
from dmlgbm.sklearn_api.tables.instants import instants_from_numpy
from dmlgbm.sklearn_api.tables.names import Labels


def columns_of(frame: Any, labels: Labels) -> tuple[Column, ...]:
    """The columns of a DataFrame."""
    if _is_one_block(frame):
        return arrays.columns_of(frame.to_numpy(), labels)
    return tuple(_column(series, labels(position)) for position, (_, series) in enumerate(frame.items()))


def _is_one_block(frame: Any) -> bool:
    """Whether all values lie in one array of numbers, so that `to_numpy` is a view (10 us a column cheaper)."""
    dtypes = set(frame.dtypes)
    if len(dtypes) > 1 or frame.shape[1] < 2:
        return False
    dtype = dtypes.pop()
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
        return False
    first, second, last = (frame.iloc[:, position].to_numpy() for position in (0, 1, -1))
    step = _address(second) - _address(first)
    evenly_spaced = _address(last) - _address(first) == step * (frame.shape[1] - 1)
    return evenly_spaced and first.base is not None and first.base is last.base


def _address(values: npt.NDArray[Any]) -> int:
    return int(values.__array_interface__["data"][0])


def _column(series: Any, label: str) -> Column:
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return _object_column(series, label) if dtype.kind == "O" else arrays.array_column(series.to_numpy(), label)
    values = series.array
    if isinstance(dtype, pd.CategoricalDtype):
        return CategoricalColumn(values.codes, category_values(dtype.categories.tolist()))
    if isinstance(dtype, pd.DatetimeTZDtype):
        return instants_from_numpy(values.view("i8").view(f"M8[{dtype.unit}]"), label)
    if isinstance(values, pd.arrays.IntegerArray | pd.arrays.FloatingArray | pd.arrays.BooleanArray):
        return _nullable_column(values)
    if isinstance(dtype, pd.SparseDtype):
        return _sparse_column(values, label)
    if isinstance(dtype, pd.ArrowDtype) or (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
        from dmlgbm.sklearn_api.tables.arrow_tables import arrow_column

        return arrow_column(values.__arrow_array__(), label)
    if isinstance(dtype, pd.StringDtype):
        return _object_column(series, label)
    raise TypeError(f"The {label} has the pandas dtype {dtype}: convert it to numbers, strings or dates.")


def _object_column(series: Any, label: str) -> Column:
    values = series.to_numpy(dtype=object)
    if pd.api.types.infer_dtype(values, skipna=True) != "string":
        return arrays.array_column(values, label)
    codes, distinct = pd.factorize(values)
    return sorted_column(codes, distinct.tolist())


def _nullable_column(values: Any) -> NumericColumn:
    """An Int64, Float64 or boolean array: shared, unless a row is NA."""
    missing = values.isna()
    dtype = values.dtype.numpy_dtype
    if missing.any():
        return NumericColumn(values.to_numpy(dtype=dtype, na_value=0), missing)
    return NumericColumn(values.to_numpy(dtype=dtype))


def _sparse_column(values: Any, label: str) -> Column:
    """Sparse around zero stays sparse; around another value (NaN, one) it is spread out, this column alone."""
    if values.dtype.subtype.kind in "biuf" and values.fill_value == 0:
        stored = arrays.native_numbers(values.sp_values)
        return SparseColumn(values.sp_index.to_int_index().indices, stored, len(values))
    return arrays.array_column(values.to_numpy(), label)
