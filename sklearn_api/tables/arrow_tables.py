"""pyarrow tables as columns: the value buffers are shared, the validity bits become a mask of missing rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn
from dmlgbm.sklearn_api.tables.arrays import native_numbers
from dmlgbm.sklearn_api.tables.categories import category_values, sorted_column
from dmlgbm.sklearn_api.tables.instants import instants_from_ticks
from dmlgbm.sklearn_api.tables.names import Labels
from dmlgbm.sklearn_api.tables.objects import missing_column


def columns_of(table: Any, labels: Labels) -> tuple[Column, ...]:
    """The columns of a Table or a RecordBatch."""
    return tuple(arrow_column(column, labels(position)) for position, column in enumerate(table.columns))


def arrow_column(values: Any, label: str) -> Column:
    """One Array or ChunkedArray; several chunks are joined, one chunk is shared."""
    arrow_type = values.type
    types = pa.types
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_boolean(arrow_type):
        return NumericColumn(*_values_and_missing(_one_array(values)))
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return _string_column(values)
    if types.is_dictionary(arrow_type):
        return _dictionary_column(_one_array(values))
    if types.is_temporal(arrow_type) and not types.is_interval(arrow_type):
        return _instant_column(_one_array(values))
    if types.is_decimal(arrow_type):
        return NumericColumn(*_values_and_missing(_one_array(values.cast(pa.float64()))))
    if types.is_null(arrow_type):
        return missing_column(len(values))
    raise TypeError(f"The {label} has the Arrow type {arrow_type}: convert it to numbers, strings or dates.")


def _one_array(values: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values


def _values_and_missing(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """The value buffer (whatever it holds where a row is null) and the null rows (None: there are none)."""
    if array.null_count == 0:
        return native_numbers(array.to_numpy(zero_copy_only=False)), None
    missing = array.is_null().to_numpy(zero_copy_only=False)
    # Without its validity bits the buffer is an array without nulls, which numpy can share.
    without_nulls = pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1]], offset=array.offset)
    return native_numbers(without_nulls.to_numpy(zero_copy_only=False)), missing


def _instant_column(array: Any) -> NumericColumn:
    arrow_type = array.type
    if pa.types.is_date32(arrow_type):
        unit = "D"
    elif pa.types.is_date64(arrow_type):
        unit = "ms"
    else:
        unit = arrow_type.unit
    ticks, missing = _values_and_missing(array.view(pa.int32() if arrow_type.bit_width == 32 else pa.int64()))
    return instants_from_ticks(ticks.astype(np.int64, copy=False), unit, missing)


def _string_column(values: Any) -> CategoricalColumn:
    encoded = _one_array(values.dictionary_encode())
    return sorted_column(_codes(encoded), encoded.dictionary.to_pylist())


def _dictionary_column(array: Any) -> CategoricalColumn:
    """The dictionary's own order is kept; Arrow allows a value twice and null or NaN as a value, we do not."""
    raw = array.dictionary.to_pylist()
    codes = _codes(array)
    position_of: dict[object, int] = {}
    for value in raw:
        if value is not None and value == value:
            position_of.setdefault(value, len(position_of))
    if len(position_of) < len(raw):
        codes = np.array([*(position_of.get(value, -1) for value in raw), -1], dtype=np.int32)[codes]
    return CategoricalColumn(codes, category_values(position_of))


def _codes(array: Any) -> npt.NDArray[np.signedinteger]:
    """The indices of a dictionary array, -1 where it is null."""
    indices, missing = _values_and_missing(array.indices)
    if missing is None and indices.dtype.kind == "i":
        return indices
    codes = indices.astype(np.int32)
    if missing is not None:
        codes[missing] = -1
    return codes
