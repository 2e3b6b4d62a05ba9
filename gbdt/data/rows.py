"""Rows to learn from or to watch: their columns, and whatever else is known of each of them.

The one record for it, from the estimators to the ranks. Where rows are kept as bins, which have storage of their own,
their table has no columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import RowNumbers, Table

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows in the engine's types."""

    table: Table
    target: FloatArray
    weight: FloatArray | None = None
    init_score: FloatArray | None = None  # [output, row]: where training starts
    group_starts: IntArray | None = None  # the first row of each query, then the number of rows
    row_numbers: IntArray | None = None  # in what the user passed, where rows were left out
    position: IntArray | None = None  # at which place of its query a row was shown when it was graded

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def take(self, rows: RowNumbers) -> Rows:
        """Some rows, ascending, as copies; queries that keep none of their rows are no longer there."""
        return Rows(
            self.table.take(rows),
            self.target[rows],
            None if self.weight is None else self.weight[rows],
            None if self.init_score is None else np.ascontiguousarray(self.init_score[:, rows]),
            None if self.group_starts is None else kept_queries(self.group_starts, rows),
            None if self.row_numbers is None else self.row_numbers[rows],
            None if self.position is None else self.position[rows],
        )

    def slice(self, start: int, stop: int) -> Rows:
        """Consecutive rows, whole queries, as views."""
        group_starts = self.group_starts
        if group_starts is not None:
            first, last = np.searchsorted(group_starts, (start, stop))
            group_starts = group_starts[first : last + 1] - start
        return Rows(
            self.table.slice(start, stop),
            self.target[start:stop],
            None if self.weight is None else self.weight[start:stop],
            None if self.init_score is None else self.init_score[:, start:stop],
            group_starts,
            None if self.row_numbers is None else self.row_numbers[start:stop],
            None if self.position is None else self.position[start:stop],
        )

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of several parts, one after the other.

        What is known of each row is copied even from a single part, so that it can outlive the frame it is a view of.
        """
        filled = [part for part in parts if part.n_rows]
        if not filled:
            return parts[0] if parts else cls(Table((), 0), np.zeros(0))
        return cls(
            Table.join([part.table for part in filled]),
            np.concatenate([part.target for part in filled]),
            _joined([part.weight for part in filled], "weight"),
            _joined([part.init_score for part in filled], "init_score"),
            _joined_queries(filled),
            _joined([part.row_numbers for part in filled], "row_numbers"),
            _joined([part.position for part in filled], "position"),
        )

    def numbered(self) -> Rows:
        """The rows with their numbers, so that errors name a row as the user knows it after some were left out."""
        return self if self.row_numbers is not None else replace(self, row_numbers=np.arange(self.n_rows))

    def without_columns(self) -> Rows:
        """What is known of the rows besides their columns, which are kept elsewhere as bins."""
        return replace(self, table=Table((), self.n_rows))


def kept_queries(group_starts: IntArray, kept: RowNumbers) -> IntArray:
    """Where the queries that keep a row start among the rows that are kept."""
    sizes = np.diff(np.searchsorted(kept, group_starts))
    return np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)


def _joined(arrays: Sequence[npt.NDArray[Any] | None], name: str) -> npt.NDArray[Any] | None:
    """Along the rows, which are the last axis."""
    given = [array for array in arrays if array is not None]
    if not given:
        return None
    if len(given) < len(arrays):
        raise ValueError(f"{name} is given for some partitions only: give it for all or for none.")
    return np.ascontiguousarray(np.concatenate(given, axis=-1))


def _joined_queries(parts: Sequence[Rows]) -> IntArray | None:
    given = [(part.group_starts, part.n_rows) for part in parts if part.group_starts is not None]
    if not given:
        return None
    if len(given) < len(parts):
        raise ValueError("group_starts is given for some partitions only: give it for all or for none.")
    before = np.cumsum([0, *(n_rows for _, n_rows in given)])
    starts = [group_starts[:-1] + first for (group_starts, _), first in zip(given, before, strict=False)]
    return np.concatenate([*starts, before[-1:]]).astype(np.int64)
