"""Parameters that speak of columns: what may be written, and what it means for the columns of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.sklearn_api.tables.names import column_labels, did_you_mean

Number = TypeVar("Number", int, float)
Directions: TypeAlias = tuple[int, ...] | Mapping[str, int]
"""1, -1 or 0 for each column, or for some of them by name."""

MonotoneConstraints: TypeAlias = Sequence[int] | Mapping[str, int] | str | None
"""The same as users write it."""

Factors: TypeAlias = tuple[float, ...] | Mapping[str, float]
"""What gains are multiplied by, for each column, or for some of them by name."""
FeatureContributions: TypeAlias = Sequence[float] | Mapping[str, float] | str | None
"""The same as users write it."""
GroupsInAWord: TypeAlias = Literal["pairwise", "no_interactions"]
Groups: TypeAlias = tuple[tuple[Any, ...], ...] | GroupsInAWord
"""Columns, by name or position, that may meet on a way from the root."""
InteractionConstraints: TypeAlias = Sequence[Sequence[int | str]] | str | None
"""The same as users write it."""

_GROUPS_IN_A_WORD = ("pairwise", "no_interactions")
_DIRECTIONS = "1 (must not fall), -1 (must not rise) or 0"


def checked_directions(value: Any) -> Directions | None:
    """What `monotone_constraints` says; None if it says nothing of any column."""
    listed = _checked_values("monotone_constraints", value, _direction)
    return listed if any(_values(listed)) else None


def checked_factors(value: Any) -> Factors | None:
    """What `feature_contri` says; None if it changes nothing."""
    listed = _checked_values("feature_contri", value, _factor)
    return None if all(factor == 1.0 for factor in _values(listed)) else listed


def directions_of(directions: Directions | None, columns: Columns) -> tuple[int, ...] | None:
    """The direction of each column of a table."""
    by_column = _by_column("monotone_constraints", directions, columns, 0)
    for position, direction in enumerate(by_column or ()):
        if direction and columns.categories[position] is not None:
            label = column_labels(columns.names, "X")(position)
            raise ParameterError(
                f"monotone_constraints asks for an order in {label}, whose categories have none: give it 0, or pass "
                "the column as numbers."
            )
    return by_column


def factors_of(factors: Factors | None, columns: Columns) -> tuple[float, ...] | None:
    """What the gains of each column of a table are multiplied by."""
    return _by_column("feature_contri", factors, columns, 1.0)


def _checked_values(
    parameter: str, value: Any, checked: Callable[[Any], Number]
) -> tuple[Number, ...] | Mapping[str, Number] | None:
    """A value for each column, by position or by name."""
    if value is None:
        return None
    if isinstance(value, str):
        value = _listed(parameter, value)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(
                    f"{parameter} has the key {name!r}: its keys are column names; write a list for columns without "
                    "names."
                )
        return {str(name): checked(entry) for name, entry in value.items()}
    if not isinstance(value, Sequence | np.ndarray) or np.ndim(value) != 1:
        raise TypeError(f"{parameter} must be a list by column or a dict by column name, got {value!r:.80}.")
    return tuple(checked(entry) for entry in value)


def _values(listed: tuple[Number, ...] | Mapping[str, Number] | None) -> Iterable[Number]:
    return listed.values() if isinstance(listed, Mapping) else listed or ()


def _by_column(
    parameter: str, listed: tuple[Number, ...] | Mapping[str, Number] | None, columns: Columns, otherwise: Number
) -> tuple[Number, ...] | None:
    """The value of each column of a table; `otherwise` for those that a dict does not name."""
    if listed is None:
        return None
    if isinstance(listed, Mapping):
        if columns.names is None:
            raise ParameterError(f"{parameter} goes by column names, but X has none: write a list by position.")
        for name in listed:
            if name not in columns.names:
                guess = did_you_mean(name, columns.names)
                raise ParameterError(f"{parameter} names {name!r}, which is not a column of X{guess}.")
        return tuple(listed.get(name, otherwise) for name in columns.names)
    if len(listed) != columns.n_features:
        raise ParameterError(
            f"{parameter} lists {len(listed)} columns, but X has {columns.n_features}: give one number for each, or a "
            "dict by column name."
        )
    return listed


def checked_groups(value: Any) -> Groups | None:
    """What `interaction_constraints` says, as far as can be told without columns."""
    if value is None:
        return None
    if isinstance(value, str) and value in _GROUPS_IN_A_WORD:
        return cast(GroupsInAWord, value)
    if isinstance(value, str):
        value = _listed_groups(value)
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise TypeError(
            "interaction_constraints must be a list of lists of columns, 'pairwise' or 'no_interactions', got "
            f"{value!r}."
        )
    groups = []
    for group in value:
        if isinstance(group, str | Mapping) or not isinstance(group, Iterable):
            raise TypeError(f"interaction_constraints has the entry {group!r}: each one must be a list of columns.")
        groups.append(tuple(group))
    return tuple(groups) or None


def groups_of(groups: Groups | None, columns: Columns) -> tuple[tuple[int, ...], ...] | None:
    """The positions of columns that may meet on a way from the root; None if all may."""
    n_columns = columns.n_features
    if groups is None or n_columns == 0:
        return None
    by_position: list[tuple[int, ...]]
    if groups == "pairwise":
        by_position = [*combinations(range(n_columns), 2)] or [(0,)]
    elif groups == "no_interactions":
        by_position = [(column,) for column in range(n_columns)]
    else:
        by_position = [tuple(sorted({_position(entry, columns) for entry in group})) for group in groups]
    missing = set(range(n_columns)).difference(*by_position)
    if missing:
        label = column_labels(columns.names, "X")(min(missing))
        raise ParameterError(
            f"interaction_constraints has no group with {label}: add it to a group, give it one of its own, or drop "
            "the column."
        )
    return None if any(len(group) == n_columns for group in by_position) else tuple(by_position)


def _position(entry: object, columns: Columns) -> int:
    if isinstance(entry, str):
        if columns.names is None:
            raise ParameterError(
                f"interaction_constraints lists {entry!r}, but X has no string column names: list positions."
            )
        if entry not in columns.names:
            guess = did_you_mean(entry, columns.names)
            raise ParameterError(f"interaction_constraints lists {entry!r}, which is not a column of X{guess}.")
        return columns.names.index(entry)
    if isinstance(entry, bool | np.bool_) or not isinstance(entry, int | np.integer):
        raise TypeError(f"interaction_constraints must list column names or positions, got {entry!r}.")
    if not 0 <= entry < columns.n_features:
        raise ParameterError(
            f"interaction_constraints lists position {int(entry)}, but X has {columns.n_features} columns (positions "
            f"0 to {columns.n_features - 1})."
        )
    return int(entry)


def _listed_groups(text: str) -> Any:
    """Lists in a text, as XGBoost ("[[0, 1], [2]]") and LightGBM ("[0,1],[2]") take them."""
    for candidate in (text, f"[{text}]"):
        try:
            groups = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(groups, list) and all(isinstance(group, list) for group in groups):
            return groups
    raise ParameterError(
        f"interaction_constraints={text!r:.80} is neither 'pairwise' nor 'no_interactions' nor lists such as "
        "'[0,1],[2]'."
    )


def _listed(parameter: str, text: str) -> list[Any]:
    """Numbers in a text, as XGBoost ("(1,-1)") and LightGBM ("1,-1") take them."""
    try:
        entries = [float(entry) for entry in text.strip().strip("()[]").split(",") if entry.strip()]
    except ValueError:
        raise ParameterError(f"{parameter}={text!r:.80} is no list of numbers such as '(1,0,1)'.") from None
    return [int(entry) if entry.is_integer() else entry for entry in entries]


def _direction(entry: Any) -> int:
    if isinstance(entry, bool | np.bool_) or not isinstance(entry, int | np.integer) or entry not in (-1, 0, 1):
        raise ParameterError(f"monotone_constraints has the entry {entry!r}: each one must be {_DIRECTIONS}.")
    return int(entry)


def _factor(entry: Any) -> float:
    is_number = isinstance(entry, int | float | np.integer | np.floating) and not isinstance(entry, bool)
    if not is_number or not 0 <= entry < float("inf"):
        raise ParameterError(f"feature_contri has the entry {entry!r}: each one must be finite and at least 0.")
    return float(entry)
