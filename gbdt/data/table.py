"""The engine's view of an input table: plain numpy columns, whatever the user passed in.

A `Table` is a list of columns of equal length. Frameworks (pandas, polars, Arrow, scipy) are turned into
tables outside the engine, without copying the values where that is possible; the engine reads them in row
blocks and never asks for a float64 copy of everything.

`take` copies rows, given by their ascending numbers; `slice` gives views of consecutive rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Category = str | int | float | bool
RowNumbers = npt.NDArray[np.integer]


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers; NaN is missing, and so is every row where `missing` is true."""

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: RowNumbers) -> NumericColumn:
        return NumericColumn(self.values[rows], None if self.missing is None else self.missing[rows])

    def slice(self, start: int, stop: int) -> NumericColumn:
        return NumericColumn(self.values[start:stop], None if self.missing is None else self.missing[start:stop])


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of category numbers; -1 is missing. `categories[code]` is what the user wrote."""

    codes: npt.NDArray[np.signedinteger]
    categories: tuple[Category, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: RowNumbers) -> CategoricalColumn:
        return CategoricalColumn(self.codes[rows], self.categories)

    def slice(self, start: int, stop: int) -> CategoricalColumn:
        return CategoricalColumn(self.codes[start:stop], self.categories)


@dataclass(frozen=True)
class SparseColumn:
    """A column of numbers that is zero except at the ascending positions `rows`."""

    rows: npt.NDArray[np.integer]
    values: npt.NDArray[np.generic]
    n_rows: int

    def __len__(self) -> int:
        return self.n_rows

    def take(self, rows: RowNumbers) -> SparseColumn:
        _, positions, stored = np.intersect1d(rows, self.rows, assume_unique=True, return_indices=True)
        return SparseColumn(positions, self.values[stored], len(rows))

    def slice(self, start: int, stop: int) -> SparseColumn:
        first, last = np.searchsorted(self.rows, (start, stop))
        return SparseColumn(self.rows[first:last] - start, self.values[first:last], stop - start)


Column = NumericColumn | CategoricalColumn | SparseColumn


@dataclass(frozen=True)
class Table:
    """Columns of equal length, with the names the user knows them by (None for a plain array)."""

    columns: tuple[Column, ...]
    n_rows: int
    names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        return len(self.columns)

    def name_of(self, feature: int) -> str:
        """How messages call a column: its name, or its position in an unnamed array."""
        return repr(self.names[feature]) if self.names is not None else str(feature)

    def take(self, rows: RowNumbers) -> Table:
        return Table(tuple(column.take(rows) for column in self.columns), len(rows), self.names)

    def slice(self, start: int, stop: int) -> Table:
        return Table(tuple(column.slice(start, stop) for column in self.columns), stop - start, self.names)

    @classmethod
    def join(cls, tables: Sequence[Table]) -> Table:
        """The rows of several tables with the same columns, one after the other."""
        first = tables[0]
        if len(tables) == 1:
            return first
        columns = tuple(
            joined_columns([table.columns[feature] for table in tables], first.name_of(feature))
            for feature in range(first.n_features)
        )
        return cls(columns, sum(table.n_rows for table in tables), first.names)


def joined_columns(parts: Sequence[Column], label: str) -> Column:
    """The rows of several columns of one kind, one after the other."""
    kinds = sorted({type(part).__name__ for part in parts})
    if len(kinds) > 1:
        raise TypeError(f"column {label} is of different kinds in different parts of the table: {', '.join(kinds)}.")
    categorical = [part for part in parts if isinstance(part, CategoricalColumn)]
    if categorical:
        categories = categorical[0].categories
        if any(part.categories != categories for part in categorical):
            raise ValueError(f"column {label} has other categories in another part of the table: unify them first.")
        return CategoricalColumn(np.concatenate([part.codes for part in categorical]), categories)
    sparse = [part for part in parts if isinstance(part, SparseColumn)]
    if sparse:
        starts = np.cumsum([0, *(len(part) for part in sparse)])
        rows = np.concatenate([part.rows + start for part, start in zip(sparse, starts[:-1], strict=True)])
        return SparseColumn(rows, np.concatenate([part.values for part in sparse]), int(starts[-1]))
    numeric = [part for part in parts if isinstance(part, NumericColumn)]
    values = np.concatenate([part.values for part in numeric])
    if all(part.missing is None for part in numeric):
        return NumericColumn(values)
    missing = [np.zeros(len(part), bool) if part.missing is None else part.missing for part in numeric]
    return NumericColumn(values, np.concatenate(missing))
