"""The engine's view of an input table: plain numpy columns, whatever the user passed in.

A `Table` is a list of columns of equal length. Frameworks (pandas, polars, Arrow, scipy) are turned into
tables outside the engine, without copying the values where that is possible; the engine reads them in row
blocks and never asks for a float64 copy of everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Category = str | int | float | bool


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers; NaN is missing, and so is every row where `missing` is true."""

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of category numbers; -1 is missing. `categories[code]` is what the user wrote."""

    codes: npt.NDArray[np.signedinteger]
    categories: tuple[Category, ...]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class SparseColumn:
    """A column of numbers that is zero except at the ascending positions `rows`."""

    rows: npt.NDArray[np.integer]
    values: npt.NDArray[np.generic]
    n_rows: int

    def __len__(self) -> int:
        return self.n_rows


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
