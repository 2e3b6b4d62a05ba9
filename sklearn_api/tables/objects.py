"""Columns of Python objects: told apart by the types they hold, never by trying to parse them.

A column is all numbers, all text, all dates or all durations, with missing markers anywhere; the string "12" is
text. Anything else is an error that names the row to look at. Dates and durations are read to the microsecond,
which is all that Python's own types hold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, date, timedelta
from decimal import Decimal
from enum import Enum
from numbers import Complex, Real

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn
from dmlgbm.sklearn_api.tables.instants import instants_from_numpy


class _Kind(Enum):
    NUMBER = "numbers"
    TEXT = "strings"
    INSTANT = "dates"
    DURATION = "durations"


_TYPES_OF_KIND: tuple[tuple[tuple[type, ...], _Kind], ...] = (
    ((str,), _Kind.TEXT),
    # numpy's timedelta64 calls itself an integer, so durations come before numbers.
    ((timedelta, np.timedelta64), _Kind.DURATION),
    ((Real, Decimal, np.bool_), _Kind.NUMBER),
    ((date, np.datetime64), _Kind.INSTANT),
)


def object_column(values: npt.NDArray[np.object_], label: str) -> NumericColumn | CategoricalColumn:
    """The column that an array of Python objects means."""
    objects = values.tolist()
    missing_types = _missing_types()
    kinds = _kinds_of(objects, missing_types)
    if None in kinds:
        raise _unsupported(objects, missing_types, label)
    if len(kinds) > 1 and _Kind.NUMBER in kinds:
        objects = [None if _is_nan(value) else value for value in objects]
        kinds = _kinds_of(objects, missing_types)
    if len(kinds) > 1:
        raise _mixed(objects, missing_types, label)
    if _Kind.TEXT in kinds:
        return _text_column(objects, missing_types)
    # numpy reads None as NaN or NaT, but not the markers of pandas.
    objects = [None if type(value) in missing_types else value for value in objects]
    if _Kind.DURATION in kinds:
        return instants_from_numpy(np.array(objects, dtype="timedelta64[us]"), label)
    if _Kind.INSTANT in kinds:
        return instants_from_numpy(np.array([_in_utc(value) for value in objects], dtype="datetime64[us]"), label)
    try:
        return NumericColumn(np.array(objects, dtype=np.float64))
    except OverflowError as error:
        raise ValueError(f"The {label} holds an integer too large for a float64: scale the column down.") from error


def missing_column(n_rows: int) -> NumericColumn:
    """A column in which every row is missing."""
    return NumericColumn(np.full(n_rows, np.nan, dtype=np.float32))


def is_missing(value: object) -> bool:
    """Whether a single value is one of the markers: None, NaN, NA, NaT."""
    return type(value) in _missing_types() or _is_nan(value)


def _text_column(objects: list[object], missing_types: frozenset[type]) -> CategoricalColumn:
    distinct = dict.fromkeys(objects)
    missing_markers = [value for value in distinct if type(value) in missing_types]
    for marker in missing_markers:
        del distinct[marker]
    categories = sorted(str(value) for value in distinct)
    code_of: dict[object, int] = {category: code for code, category in enumerate(categories)}
    code_of.update(dict.fromkeys(missing_markers, -1))
    return CategoricalColumn(np.fromiter(map(code_of.__getitem__, objects), np.int32, len(objects)), tuple(categories))


def _missing_types() -> frozenset[type]:
    # pandas' own markers can only be met if pandas was imported.
    pandas = sys.modules.get("pandas")
    markers = (None,) if pandas is None else (None, pandas.NA, pandas.NaT)
    return frozenset(map(type, markers))


def _kinds_of(objects: Sequence[object], missing_types: frozenset[type]) -> set[_Kind | None]:
    return {_kind_of(value_type) for value_type in set(map(type, objects)) - missing_types}


def _kind_of(value_type: type) -> _Kind | None:
    return next((kind for types, kind in _TYPES_OF_KIND if issubclass(value_type, types)), None)


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating | Decimal) and bool(value != value)


def _in_utc(value: object) -> object:
    zone = getattr(value, "tzinfo", None)
    return value if zone is None else value.astimezone(UTC).replace(tzinfo=None)  # type: ignore[attr-defined]


def _unsupported(objects: Sequence[object], missing_types: frozenset[type], label: str) -> Exception:
    row, value = next(
        (row, value)
        for row, value in enumerate(objects)
        if type(value) not in missing_types and _kind_of(type(value)) is None
    )
    if isinstance(value, Complex):
        return ValueError(f"Complex data not supported: the {label} holds {value!r} in row {row}.")
    return TypeError(
        f"The {label} holds a {type(value).__name__} in row {row}: every argument must be a string or a number, "
        "or a date."
    )


def _mixed(objects: Sequence[object], missing_types: frozenset[type], label: str) -> TypeError:
    first_row: dict[_Kind | None, int] = {}
    for row, value in enumerate(objects):
        if type(value) not in missing_types:
            first_row.setdefault(_kind_of(type(value)), row)
    (one, one_row), (other, other_row) = list(first_row.items())[:2]
    assert one is not None
    assert other is not None
    return TypeError(
        f"The {label} mixes {one.value} (row {one_row}: {objects[one_row]!r}) and {other.value} "
        f"(row {other_row}: {objects[other_row]!r}): convert all of them to strings or all of them to numbers."
    )
