"""What the columns of a table are called and which of them hold categories: all that a model knows of its columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dmlgbm.gbdt.data.table import CategoricalColumn, Category, Column, Table

Categories = tuple[tuple[Category, ...] | None, ...]
"""Of each column, None for numbers."""


@dataclass(frozen=True)
class Columns:
    """Columns in their order; other tables are matched to them."""

    names: tuple[str, ...] | None
    categories: Categories

    @classmethod
    def of(cls, table: Table) -> Columns:
        """The columns of a table."""
        return cls(
            table.names, tuple(c.categories if isinstance(c, CategoricalColumn) else None for c in table.columns)
        )

    @property
    def n_features(self) -> int:
        return len(self.categories)

    def encode(self, table: Table, handle_unknown: Literal["missing", "error"]) -> Table:
        """The table with its categories numbered as they are here; unknown ones are missing, or an error."""
        columns = tuple(
            column if known is None else _encoded(column, known, table.name_of(feature), handle_unknown)
            for feature, (column, known) in enumerate(zip(table.columns, self.categories, strict=True))
        )
        return replace(table, columns=columns)


def _encoded(
    column: Column, known: tuple[Category, ...], label: str, handle_unknown: Literal["missing", "error"]
) -> CategoricalColumn:
    if not isinstance(column, CategoricalColumn):
        raise TypeError(f"column {label} was categorical when the model was trained, but now holds numbers.")
    if column.categories == known:
        return column
    _check_same_kind(column.categories, known, label)
    code_of = {category: code for code, category in enumerate(known)}
    codes = np.array([code_of.get(category, -1) for category in column.categories] + [-1], np.int32)
    present = np.unique(column.codes)
    unknown = [column.categories[code] for code in present if code >= 0 and codes[code] < 0]
    if unknown and handle_unknown == "error":
        raise ValueError(
            f"column {label} has the category {unknown[0]!r}, which training did not see; "
            'handle_unknown="missing" treats such values as missing.'
        )
    return CategoricalColumn(codes[column.codes], known)


def _check_same_kind(categories: tuple[Category, ...], known: tuple[Category, ...], label: str) -> None:
    """Text never equals a number: all values would silently count as unknown."""
    now_text = [isinstance(category, str) for category in categories]
    then_text = [isinstance(category, str) for category in known]
    if not now_text or not then_text:
        return
    if all(then_text) and not any(now_text):
        raise TypeError(f"column {label} held text when the model was trained, but now holds numbers: pass it as text.")
    if all(now_text) and not any(then_text):
        raise TypeError(
            f"column {label} held numbers when the model was trained, but now holds text: pass it as numbers."
        )
