"""The record of a table and everything that comes with its rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.objectives import RowError


@dataclass(frozen=True)
class RowData:
    """What a model learns from or is evaluated on, checked and in the engine's own types."""

    table: Table
    target: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64] | None = None
    init_score: npt.NDArray[np.float64] | None = None
    group_starts: npt.NDArray[np.int64] | None = None
    row_numbers: npt.NDArray[np.int64] | None = None  # in what the user passed, where rows were left out


@contextlib.contextmanager
def naming_rows(row_numbers: npt.NDArray[np.int64] | None) -> Iterator[None]:
    """Errors about a row name it by its number in what the user passed."""
    try:
        yield
    except RowError as error:
        if row_numbers is None:
            raise
        raise RowError(error.subject, int(row_numbers[error.row]), error.problem) from None
