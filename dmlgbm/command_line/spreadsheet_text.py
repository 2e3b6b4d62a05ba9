"""Text that a spreadsheet would run: a value of a CSV file that begins like a formula.

A label such as =HYPERLINK(...) comes from whoever filled the training table, and is opened by whoever reads the
predictions. A single quote before it makes spreadsheets show it as text.
"""

from __future__ import annotations

import warnings
from typing import Any

_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def without_formulas(table: Any) -> Any:
    """The table with a quote before all text, and all names of columns, that begin like a formula and are no number."""
    import pyarrow as pa

    columns = [_escaped(column) for column in table.columns]
    names = [_escaped(pa.chunked_array([[name]]))[0].as_py() for name in table.column_names]
    pairs = zip(table.column_names, names, table.columns, columns, strict=True)
    changed = [name for name, new_name, old, new in pairs if new_name != name or not new.equals(old)]
    if changed:
        warnings.warn(
            f"Column {changed[0]!r} has text that a spreadsheet would run as a formula: it is written with a ' before "
            "it. --formulas keep writes it as it is.",
            stacklevel=2,
        )
    return pa.table(columns, names=names)


def _escaped(column: Any) -> Any:
    """The column itself if there is nothing to escape."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    formula = compute.match_substring_regex(column, _FORMULA)
    escape = compute.and_not(formula, compute.match_substring_regex(column, _NUMBER))
    if not compute.any(escape).as_py():
        return column
    return compute.if_else(escape, compute.binary_join_element_wise("'", column, ""), column)
