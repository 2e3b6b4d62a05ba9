"""Text where numbers are meant: what a CSV file holds between its commas.

pyarrow reads a column as text as soon as one value is no number. As categories, the other values would be lost to the
model without a word; so a column that is mostly numbers is an error that names the value and its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlgbm.command_line.tables import TableFile

_MOSTLY = 0.5


def is_text(column: Any) -> bool:
    """Whether a column holds strings."""
    import pyarrow as pa

    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def numbers_read(table: Any, names: Sequence[str], file: TableFile, *, target: str) -> Any:
    """The table of a CSV file, after a check that text columns among `names` are text indeed."""
    for name in names:
        column = table[name]
        if not is_text(column):
            continue
        numbers, first_text_row = _spelt_numbers(column, file.decimal)
        n_values = len(column) - column.null_count
        n_numbers = len(numbers) - numbers.null_count
        if first_text_row is None:
            table = _replaced(table, name, numbers)
        elif n_numbers > _MOSTLY * n_values:
            option = "--task classification" if name == target else f"--categorical {name}"
            raise ValueError(
                f"{_complaint(column, first_text_row, name, file.path)}, but {n_numbers:,} of its {n_values:,} values "
                f"are numbers: correct it, or add {option} if they are all names."
            )
    return table


def with_numbers(table: Any, names: Sequence[str], file: TableFile) -> Any:
    """The table with the given columns as numbers, where they are text; other text than numbers is an error."""
    for name in names:
        column = table[name]
        if is_text(column):
            numbers, first_text_row = _spelt_numbers(column, file.decimal)
            if first_text_row is not None:
                complaint = _complaint(column, first_text_row, name, file.path)
                raise ValueError(f"{complaint}, where a number is needed: correct it.")
            table = _replaced(table, name, numbers)
    return table


def _spelt_numbers(column: Any, decimal: str) -> tuple[Any, int | None]:
    """What the text of each row spells as a number, null where it spells none, and the first row of that kind."""
    import pyarrow as pa
    from pyarrow import compute

    distinct = column.unique()
    number_of = pa.array([_number(text, decimal) for text in distinct.to_pylist()], pa.float64())
    numbers = compute.take(number_of, compute.index_in(column, value_set=distinct))
    row = compute.index(compute.and_(compute.is_null(numbers), compute.is_valid(column)), True).as_py()
    return numbers, None if row < 0 else row


def _number(text: str | None, decimal: str) -> float | None:
    try:
        if text is None or (decimal != "." and "." in text):  # a point between thousands is no decimal mark
            return None
        return float(text.replace(decimal, "."))
    except ValueError:
        return None


def _complaint(column: Any, row: int, name: str, path: str) -> str:
    return f"Column {name!r} of {path} holds {column[row].as_py()!r} in row {row} (counted from 0)"


def _replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)
