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


def columns_of(frame: Any, labels: Labels, *, only_present: bool = False) -> tuple[Column, ...]:
    """The columns of a DataFrame; `only_present` leaves out most categories that no row has."""
    parts = _parts(frame)
    if _is_one_block(parts):
        return arrays.columns_of(frame.to_numpy(), labels)
    return tuple(_column(values, labels(position), only_present) for position, values in enumerate(parts))


def _parts(frame: Any) -> list[Any]:
    """An array for each column, of numpy or of pandas.

    A Series for each takes 15 us a column, most of the time of predicting a few rows. pandas itself goes the other way
    inside; where a version does not offer it, Series do.
    """
    arrays_of = getattr(frame, "_iter_column_arrays", None)
    if arrays_of is not None:
        return list(arrays_of())
    each = (series for _, series in frame.items())
    return [series.to_numpy() if isinstance(series.dtype, np.dtype) else series.array for series in each]


def _is_one_block(parts: list[Any]) -> bool:
    """Whether all values lie in one array of numbers, so that `to_numpy` is a view."""
    dtypes = {values.dtype for values in parts}
    if len(dtypes) > 1 or len(parts) < 2:
        return False
    dtype = dtypes.pop()
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
        return False
    first, second, last = (np.asarray(parts[position]) for position in (0, 1, -1))
    step = _address(second) - _address(first)
    evenly_spaced = _address(last) - _address(first) == step * (len(parts) - 1)
    return evenly_spaced and first.base is not None and first.base is last.base


def _address(values: npt.NDArray[Any]) -> int:
    return int(values.__array_interface__["data"][0])


def _column(values: Any, label: str, only_present: bool) -> Column:
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return _object_column(values, label) if dtype.kind == "O" else arrays.array_column(_shared(values), label)
    if isinstance(dtype, pd.CategoricalDtype):
        return _category_column(values, only_present)
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
        return _object_column(values, label)
    raise TypeError(f"The {label} has the pandas dtype {dtype}: convert it to numbers, strings or dates.")


def _category_column(values: Any, only_present: bool) -> CategoricalColumn:
    codes, categories = values.codes, values.dtype.categories
    if not only_present or len(codes) >= len(categories):
        return CategoricalColumn(codes, category_values(categories.tolist()))
    # The first category stays, present or not: it shows whether they are text or numbers.
    kept = np.unique(np.append(codes[codes >= 0], 0))
    numbered = np.where(codes < 0, -1, np.searchsorted(kept, codes)).astype(np.int32)
    return CategoricalColumn(numbered, category_values([categories[code] for code in kept.tolist()]))


def _shared(values: Any) -> npt.NDArray[Any]:
    """The same memory as an array that nobody writes to, as `Series.to_numpy` gives it: kernels know the difference."""
    shared = np.asarray(values).view()
    shared.flags.writeable = False
    return shared


def _object_column(part: Any, label: str) -> Column:
    values = np.asarray(part, dtype=object)
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
