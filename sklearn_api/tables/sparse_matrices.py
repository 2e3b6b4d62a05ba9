"""scipy sparse matrices and arrays as columns: one conversion of the nonzeros to column order, never a dense copy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from dmlgbm.gbdt.data.table import Column, SparseColumn
from dmlgbm.sklearn_api.tables.arrays import native_numbers
from dmlgbm.sklearn_api.tables.names import Labels


def columns_of(matrix: Any, labels: Labels) -> tuple[Column, ...]:
    """The columns of a sparse matrix; entries stored twice are summed, a stored NaN is missing."""
    if matrix.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: the {labels(0)} has dtype {matrix.dtype}.")
    by_column = matrix.tocsc()
    if not by_column.has_canonical_format:
        # Sorting and summing happen in place: never in the arrays of the user's own matrix.
        by_column = by_column.copy() if by_column is matrix else by_column
        by_column.sum_duplicates()
    rows, values = by_column.indices, native_numbers(by_column.data)
    ends = by_column.indptr.tolist()
    n_rows = by_column.shape[0]
    return tuple(SparseColumn(rows[start:end], values[start:end], n_rows) for start, end in pairwise(ends))
