"""The rows to train on or to watch: a file, cut into features, target, weights and queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.command_line import tables, text_columns
from dmlgbm.sklearn_api.rows.given_rows import GivenRows


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns are no ordinary features."""

    target: str
    weight: str | None
    query: str | None
    dropped: Sequence[str]
    categorical: Sequence[str]
    position: str | None = None

    def features_among(self, names: Sequence[str]) -> list[str]:
        """The columns without any other role."""
        others = {self.target, self.weight, self.query, self.position, *self.dropped}
        return [name for name in names if name not in others]


def read_training_table(file: tables.TableFile, roles: ColumnRoles, *, target_is_text: bool) -> Any:
    """The columns of the training file that have a role."""
    names, path = file.column_names(), file.path
    given = {"--weight": roles.weight, "--qid": roles.query, "--position": roles.position}
    wanted = [("--target", roles.target), *((option, name) for option, name in given.items() if name is not None)]
    wanted += [("--drop", name) for name in roles.dropped] + [("--categorical", name) for name in roles.categorical]
    for option, name in wanted:
        require_column(name, names, path, option)
    _require_one_role(wanted)
    features = roles.features_among(names)
    if not features:
        raise ValueError(f"{path} has no column left to learn from.")
    table = file.read_columns([*features, *_row_columns(roles)])
    if not file.is_csv:
        return table
    # Weights are checked row by row later; queries and categories may be any text.
    unchecked = {
        roles.query,
        roles.weight,
        roles.position,
        *roles.categorical,
        roles.target if target_is_text else None,
    }
    checked = [name for name in table.column_names if name not in unchecked]
    return text_columns.numbers_read(table, checked, file, target=roles.target)


def read_table_like(file: tables.TableFile, training: Any, roles: ColumnRoles) -> Any:
    """The columns of the training table in another file, with the same kinds of values."""
    names = file.column_names()
    for name in training.column_names:
        require_column(name, names, file.path)
    text = {name for name in training.column_names if text_columns.is_text(training[name])}
    table = file.read_columns(training.column_names, text_columns=text)
    numbers = [name for name in training.column_names if name not in text and name != roles.query]
    return text_columns.with_numbers(table, numbers, file) if file.is_csv else table


def given_rows(table: Any, file: tables.TableFile, roles: ColumnRoles, *, classify: bool) -> GivenRows:
    """Cut a table by the roles of its columns; a row without target, weight or query is an error."""
    path = file.path
    for name in _row_columns(roles):
        _require_complete(table[name], name, path)
    if not classify:
        table = text_columns.with_numbers(table, [roles.target], file)
    target = _labels(table[roles.target]) if classify else _numbers(table[roles.target], roles.target, path)
    table = text_columns.with_numbers(
        table, [name for name in (roles.weight, roles.position) if name is not None], file
    )
    weight, position = (
        None if name is None else _numbers(table[name], name, path) for name in (roles.weight, roles.position)
    )
    query = None if roles.query is None else _labels(table[roles.query])
    features = table.select(roles.features_among(table.column_names))
    return GivenRows(features, target, weight, qid=query, position=position)


def require_column(name: str, names: Collection[str], path: str, option: str | None = None) -> None:
    """An error with a suggestion, if a file does not have a column."""
    if name in names:
        return
    from dmlgbm.sklearn_api.tables.names import did_you_mean

    asked_by = f" for {option}" if option else ""
    raise ValueError(f"{path} has no column {name!r}{asked_by}{did_you_mean(name, names)}.")


def _row_columns(roles: ColumnRoles) -> list[str]:
    return [name for name in (roles.target, roles.weight, roles.query, roles.position) if name is not None]


def _require_one_role(wanted: Sequence[tuple[str, str]]) -> None:
    option_of: dict[str, str] = {}
    for option, name in wanted:
        if option_of.setdefault(name, option) != option:
            raise ValueError(f"Column {name!r} is given to both {option_of[name]} and {option}: choose one.")


def _require_complete(column: Any, name: str, path: str) -> None:
    from pyarrow import compute

    missing = compute.is_null(column, nan_is_null=True)
    row = compute.index(missing, True).as_py()
    if row >= 0:
        raise ValueError(
            f"Column {name!r} of {path} has no value in row {row} (counted from 0): fill it in or remove the row."
        )


def _labels(column: Any) -> npt.NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy()


def _numbers(column: Any, name: str, path: str) -> npt.NDArray[np.float64]:
    import pyarrow as pa

    types, kind = pa.types, column.type
    if not any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)):
        raise ValueError(f"Column {name!r} of {path} holds {kind} values where numbers are needed.")
    return column.to_numpy().astype(np.float64)
