"""Which rows of the whole data set a process holds.

A row is known by its global row number: every random choice about it is a hash of that number, so that it does not
matter who holds the row. A process holds some stretches of consecutive rows, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


class Segment(NamedTuple):
    """Rows start..start + n_rows here are the global rows from `first_row_number` on."""

    start: int
    n_rows: int
    first_row_number: int


def whole_table(n_rows: int) -> tuple[Segment, ...]:
    """All rows in one place."""
    return (Segment(0, n_rows, 0),)


def global_row_number(segments: Sequence[Segment], row: int) -> int:
    """The global number of a row that is here."""
    [(_, _, difference)] = stretches_between(segments, row, row + 1)
    return row + difference


def global_row_numbers(segments: Sequence[Segment], rows: IntArray) -> IntArray:
    """The global numbers of rows that are here."""
    starts = np.array([segment.start for segment in segments], np.int64)
    differences = np.array([segment.first_row_number - segment.start for segment in segments], np.int64)
    return rows + differences[np.searchsorted(starts, rows, side="right") - 1]


def placed_in_turn(stretches: Iterable[tuple[int, int]]) -> tuple[Segment, ...]:
    """Segments for stretches given as (first row number, rows), stored one after the other; neighbours are merged."""
    segments: list[Segment] = []
    end = 0
    for first, n_rows in stretches:
        last = segments[-1] if segments else None
        if n_rows and last is not None and last.first_row_number + last.n_rows == first:
            segments[-1] = last._replace(n_rows=last.n_rows + n_rows)
        elif n_rows:
            segments.append(Segment(end, n_rows, first))
        end += n_rows
    return tuple(segments)


def stretches_between(segments: Sequence[Segment], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The parts of rows start..stop that lie in one segment each: start, stop, the global number of row 0 there."""
    for segment in segments:
        first, last = max(start, segment.start), min(stop, segment.start + segment.n_rows)
        if first < last:
            yield first, last, segment.first_row_number - segment.start
