"""Errors about a row, which name it as the user knows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.objectives import RowError


@contextlib.contextmanager
def naming_rows(rows: Rows) -> Iterator[None]:
    """Errors about one of these rows name it by its number in what the user passed."""
    try:
        yield
    except RowError as error:
        if rows.row_numbers is None:
            raise
        raise RowError(error.subject, int(rows.row_numbers[error.row]), error.problem) from None
