"""What the columns of a table are called and which of them hold categories: all that a model knows of its columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

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

    @property
    def listed_names(self) -> list[str]:
        """The names, and LightGBM's for columns that have none."""
        return [f"Column_{number}" for number in range(self.n_features)] if self.names is None else [*self.names]

    def encode(self, table: Table, handle_unknown: Literal["missing", "error"]) -> Table:
        """The table with its categories numbered as they are here; unknown ones are missing, or an error."""
        columns = tuple(
            column if codes is None else _encoded(column, codes, table.name_of(feature), handle_unknown)
            for feature, (column, codes) in enumerate(zip(table.columns, self._known, strict=True))
        )
        return replace(table, columns=columns)

    @cached_property
    def _known(self) -> tuple[_KnownCategories | None, ...]:
        return tuple(None if known is None else _KnownCategories(known) for known in self.categories)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is made again on first use."""
        return {"names": self.names, "categories": self.categories}


class _KnownCategories:
    """The categories of a column, and what is looked up among them for every table."""

    def __init__(self, categories: tuple[Category, ...]) -> None:
        self.categories = categories
        self.code_of = {category: code for code, category in enumerate(categories)}
        self.is_text = {isinstance(category, str) for category in categories}


def _encoded(
    column: Column, known: _KnownCategories, label: str, handle_unknown: Literal["missing", "error"]
) -> CategoricalColumn:
    if not isinstance(column, CategoricalColumn):
        raise TypeError(f"column {label} was categorical when the model was trained, but now holds numbers.")
    if column.categories == known.categories:
        return column
    _check_same_kind({isinstance(category, str) for category in column.categories}, known.is_text, label)
    codes = np.array([known.code_of.get(category, -1) for category in column.categories] + [-1], np.int32)
    present = np.unique(column.codes)
    unknown = [column.categories[code] for code in present if code >= 0 and codes[code] < 0]
    if unknown and handle_unknown == "error":
        raise ValueError(
            f"column {label} has the category {unknown[0]!r}, which training did not see; "
            'handle_unknown="missing" treats such values as missing.'
        )
    return CategoricalColumn(codes[column.codes], known.categories)


def _check_same_kind(now_text: set[bool], then_text: set[bool], label: str) -> None:
    """Text never equals a number: all values would silently count as unknown."""
    if then_text == {True} and now_text == {False}:
        raise TypeError(f"column {label} held text when the model was trained, but now holds numbers: pass it as text.")
    if then_text == {False} and now_text == {True}:
        raise TypeError(
            f"column {label} held numbers when the model was trained, but now holds text: pass it as numbers."
        )
