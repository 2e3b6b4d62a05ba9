"""Column names: which of them count, how messages call a column, and what the user may have meant by a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

CategoricalFeature = Literal["auto"] | Sequence[str | int] | Sequence[bool]
Labels = Callable[[int], str]
"""Turns a column's position into what messages call it, such as "column 'age' of X"."""


def feature_names(raw_names: Iterable[object], table_name: str) -> tuple[str, ...] | None:
    """The names if all of them are strings, None if none is (scikit-learn's rule); a mixture is an error."""
    names = tuple(raw_names)
    n_strings = sum(isinstance(name, str) for name in names)
    if n_strings == 0:
        return None
    if n_strings < len(names):
        types = sorted({type(name).__qualname__ for name in names})
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{types} as feature name / column name types. Convert them all to strings, for example by "
            f"{table_name}.columns = {table_name}.columns.astype(str)."
        )
    strings = tuple(str(name) for name in names)
    if len(set(strings)) < len(strings):
        duplicate = next(name for name in strings if strings.count(name) > 1)
        raise ValueError(
            f"{table_name} has {strings.count(duplicate)} columns named {duplicate!r}: rename them so that every "
            "column has its own name."
        )
    return strings


def given_names(
    names: tuple[str, ...], raw_names: Iterable[object], n_features: int, table_name: str
) -> tuple[str, ...] | None:
    """The names that the user gives to columns that have none."""
    own = feature_names(raw_names, table_name)
    if own is not None and own != names:
        raise ValueError(f"feature_name is for arrays, but {table_name} has column names: rename its columns instead.")
    if len(names) != n_features:
        raise ValueError(f"feature_name lists {len(names)} names, but {table_name} has {n_features} columns.")
    return feature_names(names, "feature_name")


def column_labels(names: tuple[str, ...] | None, table_name: str) -> Labels:
    """How messages call each column: by its name, or by its position in a table without names."""
    if names is None:
        return lambda position: f"column {position} of {table_name}"
    return lambda position: f"column {names[position]!r} of {table_name}"


def categorical_positions(
    categorical_feature: CategoricalFeature, names: tuple[str, ...] | None, n_features: int, table_name: str
) -> frozenset[int]:
    """The positions that `categorical_feature` lists, by name or by position; none for "auto"."""
    if isinstance(categorical_feature, str):
        if categorical_feature == "auto":
            return frozenset()
        raise ValueError(
            'categorical_feature must be "auto" or a list of column names or positions, '
            f"got {categorical_feature!r}; for one column write [{categorical_feature!r}]."
        )
    if not isinstance(categorical_feature, Iterable):
        raise TypeError(
            f'categorical_feature must be "auto" or a list of column names or positions, got {categorical_feature!r}.'
        )
    entries = list(categorical_feature)
    if entries and all(isinstance(entry, bool | np.bool_) for entry in entries):
        if len(entries) != n_features:
            raise ValueError(
                f"categorical_feature is a mask of {len(entries)} columns, but {table_name} has {n_features}."
            )
        return frozenset(position for position, entry in enumerate(entries) if entry)
    return frozenset(_position_of(entry, names, n_features, table_name) for entry in entries)


def _position_of(entry: object, names: tuple[str, ...] | None, n_features: int, table_name: str) -> int:
    if isinstance(entry, str):
        if names is None:
            raise ValueError(
                f"categorical_feature lists {entry!r}, but {table_name} has no string column names: list positions."
            )
        if entry not in names:
            guess = did_you_mean(entry, names)
            raise ValueError(f"categorical_feature lists {entry!r}, which is not a column of {table_name}{guess}.")
        return names.index(entry)
    # A bool is an int to Python: one among positions would silently mean column 0 or 1.
    if isinstance(entry, bool) or not isinstance(entry, int | np.integer):
        raise TypeError(f"categorical_feature must list column names or positions, got {entry!r}.")
    if not 0 <= entry < n_features:
        raise ValueError(
            f"categorical_feature lists position {int(entry)}, but {table_name} has {n_features} columns "
            f"(positions 0 to {n_features - 1})."
        )
    return int(entry)


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: " (did you mean 'age'?)", or nothing."""
    by_lower_case: dict[str, str] = {}
    for name in known:  # the first of several spellings is ours
        by_lower_case.setdefault(name.lower(), name)
    matches = difflib.get_close_matches(unknown.lower(), by_lower_case, n=1)
    return f" (did you mean {by_lower_case[matches[0]]!r}?)" if matches else ""
