"""One part of a key on one server: its values, the state of its optimiser, and the checks of what is pushed to it.

A dense array is a table with a single row that is always there. The rows of a real table exist from their first push
on; until then they read as the fill value. Rows that exist lie densely in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import NamedTuple

import numpy as np

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server.change_log import ChangeLog
from dmlgbm.collectives.parameter_server.codec import DTYPES, Array
from dmlgbm.collectives.parameter_server.coded_values import decoded
from dmlgbm.collectives.parameter_server.messages import Changes, CodedValues, KeySpec, TableCopy
from dmlgbm.collectives.parameter_server.optimisers import optimiser_from

MOST_PARTS = 1 << 16
_FIRST_ROWS = 16
_WIDEST = 1 << 40


class Contribution(NamedTuple):
    """What one worker pushed."""

    rows: Array | None
    values: Array


def part_bounds(spec: KeySpec, part: int) -> tuple[int, int]:
    """The elements of a flat dense array that belong to a part."""
    size = prod(spec.shape)
    return size * part // spec.parts, size * (part + 1) // spec.parts


def width_of(spec: KeySpec, part: int) -> int:
    """Numbers in a row of the part; the whole part counts as one row of a dense array."""
    start, stop = part_bounds(spec, part)
    return prod(spec.shape) if spec.n_rows else stop - start


def check_spec(spec: KeySpec) -> None:
    """Refuse a description that no store makes."""
    optimiser = optimiser_from(spec.optimiser, spec.settings)
    if spec.dtype not in {dtype.str for dtype in DTYPES}:
        raise ProtocolError(f"dtype {spec.dtype!r} cannot be stored")
    if optimiser.ONLY_REAL and np.dtype(spec.dtype).kind != "f":
        raise ProtocolError(f"optimiser {spec.optimiser!r} needs float32 or float64, not {spec.dtype!r}")
    if min(spec.shape, default=0) < 0 or spec.n_rows < 0 or not 1 <= spec.parts <= MOST_PARTS:
        raise ProtocolError(f"no key has shape {spec.shape}, {spec.n_rows} rows and {spec.parts} parts")
    if prod(spec.shape) > _WIDEST:
        raise ProtocolError(f"shape {spec.shape} has more than {_WIDEST} numbers")
    if not isfinite(spec.fill) or (np.dtype(spec.dtype).kind == "i" and not spec.fill.is_integer()):
        raise ProtocolError(f"fill must be a finite number that {spec.dtype!r} can hold, got {spec.fill}")


class Table:
    """Values and optimiser state of one part of a key."""

    def __init__(self, copy: TableCopy) -> None:
        check_spec(copy.spec)
        self.key, self.part, self.spec = copy.key, copy.part, copy.spec
        self.dtype = np.dtype(copy.spec.dtype)
        self.optimiser = optimiser_from(copy.spec.optimiser, copy.spec.settings)
        self.width = width_of(copy.spec, copy.part)
        n_rows = len(copy.row_numbers) if copy.spec.n_rows else 1
        shapes = ((n_rows, self.width), (self.optimiser.SLOTS, n_rows, self.width), (n_rows,))
        if (copy.values.shape, copy.slots.shape, copy.steps.shape) != shapes or copy.values.dtype != self.dtype:
            raise ProtocolError(f"the copy of key {copy.key!r} has arrays of unexpected size")
        self._position = {row: position for position, row in enumerate(copy.row_numbers.tolist())}
        self._values, self._slots, self._steps = copy.values.copy(), copy.slots.copy(), copy.steps.copy()
        self._changes: ChangeLog | None = None  # made when somebody asks for changes

    @classmethod
    def new(cls, key: str, part: int, spec: KeySpec, value: Array) -> Table:
        """A table without rows, or a dense array with the given values."""
        check_spec(spec)
        width, n_rows = width_of(spec, part), 0 if spec.n_rows else 1
        if value.size != n_rows * width:
            raise ProtocolError(f"part {part} of key {key!r} has {n_rows * width} numbers, got {value.size}")
        slots = np.zeros((optimiser_from(spec.optimiser, spec.settings).SLOTS, n_rows, width), spec.dtype)
        steps = np.zeros(n_rows, np.int64)
        return cls(TableCopy(key, part, spec, np.zeros(0, np.int64), value.reshape(n_rows, width), slots, steps))

    def copy(self) -> TableCopy:
        n_rows = len(self._position) if self.spec.n_rows else 1
        return TableCopy(
            self.key,
            self.part,
            self.spec,
            np.array(list(self._position), np.int64),
            self._values[:n_rows].copy(),
            self._slots[:, :n_rows].copy(),
            self._steps[:n_rows].copy(),
        )

    def plain(self, values: Array | CodedValues) -> Array:
        """What was pushed, decoded; PayloadError where that makes no sense."""
        return decoded(values, self.dtype, self.width) if isinstance(values, CodedValues) else values

    def problem_with(self, rows: Array | None, values: Array | None) -> str:
        """Why a push (or without values a pull) does not fit this key; empty if it does."""
        if (rows is None) != (self.spec.n_rows == 0):
            return "is a table of rows: name the rows" if self.spec.n_rows else "is a dense array and has no rows"
        if rows is not None:
            if rows.ndim != 1 or rows.dtype != np.int64:
                return f"needs row numbers as one axis of int64, got {rows.dtype} {rows.shape}"
            if rows.size and (rows.min() < 0 or rows.max() >= self.spec.n_rows):
                return f"has rows 0 to {self.spec.n_rows - 1}, got {rows.min()} to {rows.max()}"
        if values is None:
            return ""
        if values.dtype != self.dtype:
            return f"holds {self.dtype}, got {values.dtype}"
        expected = self.width * (1 if rows is None else len(rows))
        return "" if values.size == expected else f"takes {expected} numbers here, got {values.size}"

    def apply(self, contributions: Sequence[Contribution], update: int, n_workers: int = 1) -> None:
        """Take one step with what so many workers pushed for it, in the given order, at an update of the shard."""
        if not self.spec.n_rows:
            pushed = contributions[0].values.reshape(1, -1)
            if len(contributions) > 1:
                pushed = pushed.copy()
                for other in contributions[1:]:
                    pushed += other.values.reshape(1, -1)
            self._step(slice(None), self._average(pushed, n_workers))
            if self._changes is not None:
                self._changes.note(pushed[0] != 0 if self.optimiser.ZERO_KEEPS else np.ones(self.width, bool), update)
            return
        rows = np.concatenate([each.rows for each in contributions if each.rows is not None])
        values = np.concatenate([each.values.reshape(-1, self.width) for each in contributions])
        unique, inverse = np.unique(rows, return_inverse=True)
        pushed = np.zeros((len(unique), self.width), self.dtype)
        np.add.at(pushed, inverse, values)
        positions = self._positions_of(unique)
        self._step(positions, self._average(pushed, n_workers))
        if self._changes is not None:
            self._changes.note(positions, update)

    def _average(self, pushed: Array, n_workers: int) -> Array:
        return pushed / self.dtype.type(n_workers) if self.optimiser.AVERAGES and n_workers > 1 else pushed

    def _step(self, positions: slice | Array, pushed: Array) -> None:
        self._steps[positions] += 1
        values, slots = self._values[positions], self._slots[:, positions]
        self.optimiser.step(values, slots, self._steps[positions], pushed)
        if not isinstance(positions, slice):  # chosen rows were copied
            self._values[positions], self._slots[:, positions] = values, slots

    def _positions_of(self, rows: Array) -> Array:
        """Where rows lie, after making those that are new."""
        for row in rows.tolist():
            self._position.setdefault(row, len(self._position))
        self._grow(len(self._position))
        return np.array([self._position[row] for row in rows.tolist()], np.int64)

    def _grow(self, n_rows: int) -> None:
        missing = n_rows - len(self._values)
        if missing <= 0:
            return
        extra = max(missing, len(self._values), _FIRST_ROWS)
        fill = np.full((extra, self.width), self.spec.fill, self.dtype)
        self._values = np.concatenate([self._values, fill])
        self._slots = np.concatenate([self._slots, np.zeros((len(self._slots), *fill.shape), self.dtype)], axis=1)
        self._steps = np.concatenate([self._steps, np.zeros(extra, np.int64)])

    def read(self, rows: Array | None) -> Array:
        """A copy of the values, or of the given rows, which are not made by being read."""
        if rows is None:
            return self._values[0].copy()
        found = np.full((len(rows), self.width), self.spec.fill, self.dtype)
        positions = np.array([self._position.get(row, -1) for row in rows.tolist()], np.int64)
        known = positions >= 0
        found[known] = self._values[positions[known]]
        return found

    def read_changes(self, since: int, update: int) -> Changes:
        """What changed after one update of the shard and up to another, which is the last; all if that is shorter."""
        n_positions = len(self._position) if self.spec.n_rows else self.width
        if self._changes is None:
            self._changes = ChangeLog(n_positions, update)
        positions = self._changes.positions_since(since)
        if not self.spec.n_rows:
            numbers = positions.astype(np.int32 if n_positions < 1 << 31 else np.int64)
            if numbers.nbytes + len(numbers) * self.dtype.itemsize >= self._values[0].nbytes:
                return Changes(update, True, None, self._values[0].copy())
            return Changes(update, False, numbers, self._values[0, positions])
        numbers = np.array(list(self._position), np.int64)[positions]
        return Changes(update, since < self._changes.began, numbers, self._values[positions].reshape(-1))
