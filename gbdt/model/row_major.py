"""Columns of one row-major matrix, seen as that matrix again, so that its rows are read one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import Column, NumericColumn

_READ = (np.dtype(np.float64), np.dtype(np.float32))


class RowMajor(NamedTuple):
    """A matrix that nobody writes to, and the column of it for each of some columns of a table."""

    matrix: npt.NDArray[np.floating]
    columns: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, columns: Sequence[Column]) -> RowMajor | None:
        """None if the columns are not views of one such matrix, or are too few to make a difference."""
        if len(columns) < 2:
            return None
        values = [column.values for column in columns if isinstance(column, NumericColumn) and column.missing is None]
        first = values[0] if len(values) == len(columns) else None
        if first is None or first.base is None or first.dtype not in _READ or first.strides[0] <= first.itemsize:
            return None
        if not first.flags.aligned:  # as arrays may be that came in a message; kernels do not read them
            return None
        like_first = (first.dtype, first.strides, first.base)
        if any((each.dtype, each.strides) != like_first[:2] or each.base is not first.base for each in values):
            return None
        addresses = np.array([each.__array_interface__["data"][0] for each in values], np.int64)
        offsets, odd = np.divmod(addresses - addresses.min(), first.itemsize)
        width, rest = divmod(first.strides[0], first.itemsize)
        # All columns of one matrix lie within the step from a row to the next.
        if rest or odd.any() or int(offsets.max()) >= width:
            return None
        # Whole steps, so that every matrix is contiguous to the kernel and none compiles it again. What lies behind the
        # last column it does not read.
        shape, strides = (len(first), width), (first.strides[0], first.itemsize)
        matrix = np.lib.stride_tricks.as_strided(values[int(offsets.argmin())], shape, strides, writeable=False)
        return cls(matrix, offsets.astype(np.uint32))
