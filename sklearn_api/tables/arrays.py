"""numpy arrays as columns: views of the user's memory wherever the engine can read its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn
from dmlgbm.sklearn_api.tables.instants import instants_from_numpy
from dmlgbm.sklearn_api.tables.names import Labels
from dmlgbm.sklearn_api.tables.objects import object_column


def array_of(data: Any, table_name: str) -> npt.NDArray[np.generic]:
    """What the user passed as a two-dimensional array: an array as it is, lists read as Python values."""
    try:
        values = data if isinstance(data, np.ndarray) else np.asarray(data)
    except ValueError as error:
        if not isinstance(data, Sequence):
            raise
        raise ValueError(f"Expected 2D array: {_ragged_row(data, table_name)}.") from error
    if isinstance(data, Sequence) and values.dtype.kind in "US":
        # numpy turned the numbers next to the strings into strings; start again from the Python values.
        values = np.array(data, dtype=object)
    if values.ndim == 0:
        raise TypeError(
            f"Expected 2D array, got scalar array instead: {table_name} is a {type(data).__module__}."
            f"{type(data).__qualname__}, not an array, data frame, Arrow table or sparse matrix."
        )
    return values


def columns_of(values: npt.NDArray[np.generic], labels: Labels) -> tuple[Column, ...]:
    """The columns of a two-dimensional array."""
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        columns = tuple(array_column(column, labels(position)) for position, column in enumerate(values.T))
    else:
        columns = tuple(map(NumericColumn, native_numbers(values).T))
    return columns if mask is None else tuple(map(_masked, columns, mask.T))


def array_column(values: npt.NDArray[Any], label: str) -> NumericColumn | CategoricalColumn:
    """One column of any dtype."""
    kind = values.dtype.kind
    if kind in "biuf":
        return NumericColumn(native_numbers(values))
    if kind in "mM":
        return instants_from_numpy(values, label)
    if kind in "OUT":
        return object_column(values.astype(object, copy=False), label)
    if kind == "c":
        raise ValueError(f"Complex data not supported: the {label} has dtype {values.dtype}.")
    raise TypeError(f"The {label} has dtype {values.dtype}: convert it to numbers, strings or dates.")


def native_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in a type that compiled code reads: native byte order, no float16, no long double."""
    dtype = values.dtype
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return values.astype(np.float32 if dtype.itemsize == 2 else np.float64)
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def _masked(column: NumericColumn | CategoricalColumn, mask: npt.NDArray[np.bool_]) -> Column:
    if isinstance(column, CategoricalColumn):
        return CategoricalColumn(np.where(mask, -1, column.codes), column.categories)
    return NumericColumn(column.values, mask if column.missing is None else mask | column.missing)


def _ragged_row(rows: Sequence[Any], table_name: str) -> str:
    """Which row of a nested list has a length of its own."""
    lengths = [len(row) if isinstance(row, Sequence | np.ndarray) else 0 for row in rows]
    odd = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
    if odd is None:
        return f"the rows of {table_name} hold values of different shapes"
    return f"row {odd} of {table_name} has {lengths[odd]} values but row 0 has {lengths[0]}"
