"""Columns of categories: values become codes, 0 for missing values and those that were not there in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.blueprints import EmbeddingBlueprint


@dataclass(frozen=True)
class CategoryColumns:
    """The positions of the columns and, for each, its categories in order; category k has the code k + 1."""

    columns: tuple[int, ...]
    categories: tuple[npt.NDArray[Any], ...]

    @classmethod
    def of(cls, X: Any, chosen: Sequence[Any]) -> CategoryColumns:
        """The categories in X of the chosen columns, given by name or position."""
        positions = positions_of(X, chosen)
        return cls(positions, tuple(values_of(X, position) for position in positions))

    @classmethod
    def merged(cls, parts: Sequence[CategoryColumns]) -> CategoryColumns:
        """The categories of all parts together."""
        gathered = zip(*(part.categories for part in parts), strict=True)
        return cls(parts[0].columns, tuple(_in_order(np.concatenate(values)) for values in gathered))

    def encoded(self, X: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """X as numbers: codes in these columns, values in the others, which must be finite."""
        table = _table(X)
        result = np.empty(table.shape, dtype)
        known = dict(zip(self.columns, self.categories, strict=True))
        for position in range(table.shape[1]):
            values = table[:, position]
            if position in known:
                result[:, position] = _codes(values, known[position])
                continue
            try:
                result[:, position] = values.astype(dtype)
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {position} holds values that are no numbers: add it to categorical_columns"
                ) from None
            if not np.isfinite(result[:, position]).all():
                row = int(np.argmin(np.isfinite(result[:, position])))
                raise ValueError(f"column {position}, row {row}: NaN or infinity; fill missing values before training")
        return result

    def embedding(self, width: int | None) -> EmbeddingBlueprint:
        """How wide each column's vectors are: `width`, or half of the categories up to 50."""
        counts = tuple(len(values) + 1 for values in self.categories)
        widths = tuple(min(50, (count + 1) // 2) if width is None else width for count in counts)
        return EmbeddingBlueprint(self.columns, counts, widths)


def positions_of(X: Any, chosen: Sequence[Any]) -> tuple[int, ...]:
    """The positions of columns that are named, or given as positions already."""
    names = [str(name) for name in getattr(X, "columns", ())]
    n_columns = X.shape[1]
    positions = []
    for each in chosen:
        if isinstance(each, str):
            if each not in names:
                raise ValueError(f"categorical_columns names {each!r}, but X has the columns {names}")
            positions.append(names.index(each))
        elif not 0 <= int(each) < n_columns:
            raise ValueError(f"categorical_columns has {each}, but X has {n_columns} columns")
        else:
            positions.append(int(each))
    if len(set(positions)) < len(positions):
        raise ValueError(f"categorical_columns names a column twice: {list(chosen)}")
    return tuple(sorted(positions))


def values_of(X: Any, position: int) -> npt.NDArray[Any]:
    """The categories of a column, in order, without missing values."""
    values = _table(X)[:, position]
    return _in_order(values[~_missing(values)])


def _table(X: Any) -> npt.NDArray[Any]:
    if hasattr(X, "toarray"):
        raise TypeError("categorical_columns need a dense table: X is a sparse matrix")
    table = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
    if table.ndim != 2:
        raise ValueError(f"Expected 2D array, got {table.ndim}D array instead: X has shape {table.shape}.")
    return table


def _missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    # None, and NaN, which alone is not equal to itself.
    return np.array([value is None or value != value for value in values], bool)


def _in_order(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        return np.unique(values)
    except TypeError:  # numbers and words in one column
        return np.array(sorted(set(values.tolist()), key=lambda value: (type(value).__name__, value)), object)


def _codes(values: npt.NDArray[Any], categories: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    code_of = {value: code for code, value in enumerate(categories.tolist(), start=1)}
    return np.array([code_of.get(value, 0) for value in values.tolist()], np.int64)
