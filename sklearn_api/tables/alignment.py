"""The columns of a table to predict, in the order of the table that was fitted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from dmlgbm.gbdt.data.table import Table
from dmlgbm.sklearn_api.tables.names import did_you_mean

_NAMES_IN_MESSAGES = 5


def reordered(
    table: Table, expected_names: tuple[str, ...] | None, n_features: int, *, estimator_name: str, name: str = "X"
) -> Table:
    """`table` with its columns matched by name to the fitted ones, or by position where one side has no names."""
    if table.names is not None and expected_names is not None:
        return table if table.names == expected_names else _matched(table, expected_names, estimator_name, name)
    if table.n_features != n_features:
        raise ValueError(
            f"{name} has {table.n_features} features, but {estimator_name} is expecting {n_features} features as input"
        )
    # scikit-learn's words, so that filters written for its warnings keep working.
    fitted = f"but {estimator_name} was fitted"
    if table.names is not None:
        warnings.warn(f"{name} has feature names, {fitted} without feature names", stacklevel=3)
    elif expected_names is not None:
        warnings.warn(f"{name} does not have valid feature names, {fitted} with feature names", stacklevel=3)
    return table


def _matched(table: Table, expected_names: tuple[str, ...], estimator_name: str, name: str) -> Table:
    assert table.names is not None
    position_of = {column: position for position, column in enumerate(table.names)}
    absent = [column for column in expected_names if column not in position_of]
    expected = set(expected_names)
    unknown = [column for column in table.names if column not in expected]
    if absent or unknown:
        raise ValueError(_mismatch(absent, unknown, estimator_name, name))
    columns = tuple(table.columns[position_of[column]] for column in expected_names)
    return Table(columns, table.n_rows, expected_names)


def _mismatch(absent: list[str], unknown: list[str], estimator_name: str, name: str) -> str:
    complaints = []
    if absent:
        complaints.append(f"lacks {_columns(absent, ())} that {estimator_name} was fitted with")
    if unknown:
        complaints.append(f"has {_columns(unknown, absent)} that {estimator_name} was not fitted with")
    return f"{name} {' and '.join(complaints)}."


def _columns(names: list[str], meant: Sequence[str]) -> str:
    """The first few names, each with the one of `meant` that it resembles."""
    shown = ", ".join(f"{column!r}{did_you_mean(column, meant)}" for column in names[:_NAMES_IN_MESSAGES])
    n_left_out = len(names) - _NAMES_IN_MESSAGES
    return f"the column{'s' * (len(names) > 1)} {shown}{f' and {n_left_out} more' if n_left_out > 0 else ''}"
