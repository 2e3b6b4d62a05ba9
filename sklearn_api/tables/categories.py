"""Categorical columns: category lists, sorted codes, and numbers that the user wants treated as categories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import CategoricalColumn, Category, Column, NumericColumn, SparseColumn

# Up to this many values between the smallest and the largest, a table of what was seen beats sorting.
_LOOKUP_RANGE = 1 << 16


def category_values(raw: Iterable[object]) -> tuple[Category, ...]:
    """Category labels as plain Python values; what is neither text nor a number (an interval, a date) as its text."""
    plain = (value.item() if isinstance(value, np.generic) else value for value in raw)
    return tuple(value if isinstance(value, str | int | float | bool) else str(value) for value in plain)


def sorted_column(codes: npt.NDArray[np.integer], distinct: Sequence[str]) -> CategoricalColumn:
    """A column whose codes point into `distinct` in any order (-1 is missing), with its categories sorted."""
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    # One more entry than categories: code -1 picks the last one, which is -1 again.
    rank = np.full(len(distinct) + 1, -1, dtype=np.int32)
    rank[order] = np.arange(len(distinct), dtype=np.int32)
    return CategoricalColumn(rank[codes], tuple(distinct[position] for position in order))


def as_categorical(column: Column, label: str) -> CategoricalColumn:
    """A column of whole numbers with its sorted distinct values as categories; `label` is its name in messages."""
    if isinstance(column, CategoricalColumn):
        return column
    if isinstance(column, SparseColumn):
        dense = np.zeros(column.n_rows, dtype=column.values.dtype)
        dense[column.rows] = column.values
        column = NumericColumn(dense)
    values, present = _whole_numbers(column, label)
    selected = values if present is None else values[present]
    distinct, selected_codes = _factorised(selected)
    codes = selected_codes
    if present is not None:
        codes = np.full(len(values), -1, dtype=np.int32)
        codes[present] = selected_codes
    is_bool = column.values.dtype.kind == "b"
    return CategoricalColumn(codes, tuple(bool(value) for value in distinct) if is_bool else tuple(distinct))


def _whole_numbers(column: NumericColumn, label: str) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_] | None]:
    """The values as integers and which rows are present (None: all)."""
    values: npt.NDArray[Any] = column.values
    present = None if column.missing is None else ~column.missing
    if values.dtype.kind == "b":
        return values.view(np.uint8), present
    if values.dtype.kind != "f":
        return values, present
    present = ~np.isnan(values) if present is None else present & ~np.isnan(values)
    # 2**63 and beyond (infinity too) is no int64.
    unfit = present & ((values != np.trunc(values)) | (np.abs(values) >= 2.0**63))
    if unfit.any():
        row = int(np.argmax(unfit))
        raise ValueError(
            f"The {label} is to be categorical but holds {values[row]} in row {row}: categories must be "
            "whole numbers or strings; convert the column to strings or leave it out of categorical_feature."
        )
    return np.where(present, values, 0).astype(np.int64), present


def _factorised(values: npt.NDArray[np.integer]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """The sorted distinct values and each value's position among them."""
    if len(values) == 0:
        return [], np.empty(0, dtype=np.int32)
    low, high = int(values.min()), int(values.max())
    if high - low >= max(_LOOKUP_RANGE, len(values)):
        distinct, codes = np.unique(values, return_inverse=True)
        return distinct.tolist(), codes.astype(np.int32)
    offsets = np.subtract(values, low, dtype=np.uint64 if values.dtype.kind == "u" else np.int64)
    seen = np.zeros(high - low + 1, dtype=np.bool_)
    seen[offsets] = True
    position = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    return [low + offset for offset in np.flatnonzero(seen).tolist()], position[offsets]
