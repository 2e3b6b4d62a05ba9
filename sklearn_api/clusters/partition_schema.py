"""What the partitions of a collection are together: columns, categories, class labels and queries of all rows.

The result is what a local fit of the rows in one piece would find: sorted distinct text, the order of a category type
(in order of appearance where partitions disagree, as Dask itself joins them), sorted labels, queries across borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.table import Category
from dmlgbm.sklearn_api.clusters.partitions import ColumnDescription, PartitionDescription
from dmlgbm.sklearn_api.rows.labels import Labels, encoded_labels
from dmlgbm.sklearn_api.rows.targets import IntArray, require_separate_queries
from dmlgbm.sklearn_api.tables.names import column_labels

Numbered = tuple[int, PartitionDescription]


@dataclass(frozen=True)
class ColumnSchema:
    """The columns of all partitions together, and the common type of numbers of each (None for categories)."""

    columns: Columns
    dtypes: tuple[str | None, ...]


@dataclass(frozen=True)
class LabelSummary:
    """All class labels in order, and how many rows that weigh something each has."""

    classes: Labels
    counts: IntArray


def unified_columns(descriptions: Sequence[PartitionDescription], name: str = "X") -> ColumnSchema:
    """One schema for all partitions; partitions that do not fit together raise."""
    filled = [(number, each) for number, each in enumerate(descriptions) if each.n_rows]
    if not filled:
        raise ValueError(f"{name}: Found array with 0 sample(s) in all partitions while a minimum of 1 is required.")
    _require_same_names(descriptions, filled, name)
    names = filled[0][1].names
    labels = column_labels(names, name)
    columns = [
        _unified([(number, each.columns[feature]) for number, each in filled], labels(feature))
        for feature in range(len(filled[0][1].columns))
    ]
    categories = tuple(known for known, _ in columns)
    return ColumnSchema(Columns(names, categories), tuple(dtype for _, dtype in columns))


def merged_labels(descriptions: Sequence[PartitionDescription]) -> LabelSummary:
    """The classes of all partitions."""
    filled = [
        (each.labels, each.label_counts)
        for each in descriptions
        if each.labels is not None and each.label_counts is not None
    ]
    everything = np.concatenate([labels for labels, _ in filled])
    classes, numbers = encoded_labels(everything, len(everything))
    counts = np.zeros(len(classes), np.int64)
    start = 0
    for labels, own_counts in filled:
        positions = numbers[start : start + len(labels)].astype(np.intp)
        counts[positions] += own_counts
        start += len(labels)
    return LabelSummary(classes, counts)


def merged_queries(descriptions: Sequence[PartitionDescription], name: str = "qid") -> IntArray:
    """Where each query starts, counted over all partitions; a query may go on in the next partition."""
    ids: list[Any] = []
    sizes: list[int] = []
    for each in descriptions:
        if each.query_ids is None or each.query_sizes is None:
            continue
        for query, size in zip(each.query_ids, each.query_sizes.tolist(), strict=True):
            if ids and ids[-1] == query:
                sizes[-1] += size
            else:
                ids.append(query)
                sizes.append(size)
    boundaries = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    require_separate_queries(boundaries[:-1], ids, name)
    return boundaries


def _require_same_names(descriptions: Sequence[PartitionDescription], filled: list[Numbered], name: str) -> None:
    first_number, first = filled[0]
    for number, each in enumerate(descriptions):
        if each.names != first.names:
            raise ValueError(_different_names(first_number, first.names, number, each.names, name))
        if each.n_rows and len(each.columns) != len(first.columns):
            raise ValueError(
                f"Partition {first_number} of {name} has {len(first.columns)} columns, but partition {number} has "
                f"{len(each.columns)}: give all partitions the same columns."
            )


def _different_names(
    one: int, names: tuple[str, ...] | None, other: int, others: tuple[str, ...] | None, table: str
) -> str:
    own = [each for each in names or () if each not in (others or ())]
    foreign = [each for each in others or () if each not in (names or ())]
    if own or foreign:
        what = f"column {own[0]!r} is in the first" if own else f"column {foreign[0]!r} is in the second"
    else:
        what = "their order differs"
    return f"Partitions {one} and {other} of {table} have different columns ({what}): give all the same columns."


def _unified(
    columns: list[tuple[int, ColumnDescription]], label: str
) -> tuple[tuple[Category, ...] | None, str | None]:
    """The categories of a column, or the type of its numbers."""
    categorical = [(number, each) for number, each in columns if each.categories is not None]
    if not categorical:
        return None, _common_type(columns, label)
    numbers = [(number, each) for number, each in columns if each.categories is None and not each.all_missing]
    if numbers:
        raise _different_types(categorical[0][0], "text or categories", numbers[0][0], "numbers", label)
    fixed = [(number, each) for number, each in categorical if each.fixed_order]
    if fixed and len(fixed) < len(categorical):
        plain = next(number for number, each in categorical if not each.fixed_order)
        raise _different_types(fixed[0][0], "a category type", plain, "text", label)
    lists = [each.categories or () for _, each in categorical]
    if all(each == lists[0] for each in lists[1:]):
        return lists[0], None
    union = dict.fromkeys(category for categories in lists for category in categories)
    if len({isinstance(category, str) for category in union}) > 1:
        texts = [any(isinstance(category, str) for category in categories) for categories in lists]
        one, other = texts.index(True), texts.index(False)
        raise _different_types(categorical[one][0], "text", categorical[other][0], "numbers", label)
    return tuple(union) if fixed else tuple(sorted(union)), None


def _common_type(columns: list[tuple[int, ColumnDescription]], label: str) -> str:
    sparse = [number for number, each in columns if each.sparse]
    if sparse and len(sparse) < len(columns):
        dense = next(number for number, each in columns if not each.sparse)
        raise _different_types(sparse[0], "sparse numbers", dense, "dense numbers", label)
    return np.result_type(*{each.dtype for _, each in columns}).str


def _different_types(one: int, found: str, other: int, other_found: str, label: str) -> TypeError:
    return TypeError(
        f"The {label} holds {found} in partition {one} but {other_found} in partition {other}: give the column one "
        "type in all partitions, for example with astype."
    )
