"""Which columns of a Spark frame are read, and how: the one record that driver and executors share about a frame.

A Spark ML vector column is one column of the frame and many of the model: its elements are called `features[0]`,
`features[1]` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ELEMENT = re.compile(r"(?s)(.+)\[\d+\]")


@dataclass(frozen=True)
class FrameColumns:
    """The feature columns of a frame by name, and the columns with what belongs to its rows by purpose."""

    features: tuple[str, ...]
    vectors: Mapping[str, str]  # "y" to the name of its column

    def selected(self, frame: Any) -> Any:
        """The frame with these columns only, features first, under names that Spark never reads as paths."""
        names = (*self.features, *self.vectors.values())
        return frame.select(*[each.alias(f"c{position}") for position, each in enumerate(columns_named(frame, names))])


def all_but(frame: Any, vectors: Mapping[str, str], name: str) -> FrameColumns:
    """Every column that has no other purpose is a feature."""
    _require_distinct(frame, name)
    for purpose, column in vectors.items():
        _require_column(frame, column, purpose, name)
    features = tuple(each for each in frame.columns if each not in vectors.values())
    if not features:
        raise ValueError(f"{name} has no column left for features beside {', '.join(map(repr, vectors.values()))}.")
    return FrameColumns(features, vectors)


def columns_of_model(
    frame: Any,
    feature_names: Sequence[str] | None,
    n_features: int,
    vectors: Mapping[str, str] | None = None,
    name: str = "X",
) -> FrameColumns:
    """The columns that a model knows, wherever they stand in the frame; others are left alone."""
    require_classic(frame)
    _require_distinct(frame, name)
    beside = vectors or {}
    for purpose, column in beside.items():
        _require_column(frame, column, purpose, name)
    if feature_names is None:
        return FrameColumns(_unnamed(frame, n_features, beside, name), beside)
    known = set(frame.columns)
    found: dict[str, None] = {}
    missing = []
    for feature in feature_names:
        element = _ELEMENT.fullmatch(feature)
        if feature in known:
            found[feature] = None
        elif element is not None and element[1] in known:
            found[element[1]] = None
        else:
            missing.append(feature)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{name} has no column {missing[0]!r}{more}, which the model was fitted with.")
    return FrameColumns(tuple(found), beside)


def vector_columns(frame: Any) -> list[str]:
    """The columns of Spark ML's vector type."""
    return [field.name for field in frame.schema.fields if type(field.dataType).__name__ == "VectorUDT"]


def _quoted(column: str) -> str:
    """A column's name as Spark reads it, whatever characters it has."""
    return "`" + column.replace("`", "``") + "`"


def _unnamed(frame: Any, n_features: int, beside: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The columns for a model without feature names: the one vector column, or all columns in their order."""
    vectors = [each for each in vector_columns(frame) if each not in beside.values()]
    if len(vectors) == 1:
        return (vectors[0],)
    others = tuple(each for each in frame.columns if each not in beside.values())
    if vectors or len(others) != n_features:
        raise ValueError(
            f"{name} has {len(others)} columns, {len(vectors)} of them vectors, but the model was fitted with "
            f"{n_features} features without names: select one vector column, or those {n_features} columns."
        )
    return others


def require_classic(frame: Any) -> None:
    """Refuse frames of Spark Connect."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise TypeError(
            "X is a DataFrame of Spark Connect, whose clients have neither barrier stages nor broadcasts: use a "
            "classic session (SparkSession.builder.master(...)), or bring the rows here with X.toPandas()."
        )


def columns_named(frame: Any, names: Sequence[str]) -> list[Any]:
    """Columns by name; vectors as the structure below Spark ML's type."""
    from pyspark.sql import functions

    vectors = vector_columns(frame)
    columns = {name: functions.col(_quoted(name)) for name in names}
    return [functions.unwrap_udt(each) if name in vectors else each for name, each in columns.items()]


def _require_column(frame: Any, column: object, purpose: str, name: str) -> None:
    if not isinstance(column, str):
        raise TypeError(
            f"{purpose} must be the name of a column of {name}, because {name} is a Spark DataFrame, got a "
            f"{type(column).__name__}."
        )
    if column not in frame.columns:
        raise ValueError(f"{purpose}={column!r} is not a column of {name}, which has {', '.join(frame.columns)}.")


def _require_distinct(frame: Any, name: str) -> None:
    names = frame.columns
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise ValueError(f"{name} has {names.count(twice)} columns named {twice!r}: rename or drop all but one.")
