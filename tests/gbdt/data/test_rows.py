"""The records of rows and columns: taking, cutting and joining loses nothing and mixes nothing up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, SparseColumn, Table
from dmlgbm.gbdt.objectives import ObjectiveSettings

N_ROWS = 12
STARTS = np.array([0, 3, 4, 9, 12])


def all_kinds() -> Rows:
    """Every kind of column and everything that may be known of a row."""
    random = np.random.default_rng(0)
    table = Table(
        (
            NumericColumn(random.normal(size=N_ROWS)),
            NumericColumn(np.arange(N_ROWS), np.arange(N_ROWS) % 5 == 0),
            CategoricalColumn(np.arange(N_ROWS, dtype=np.int8) % 4 - 1, ("a", "b", "c")),
            SparseColumn(np.array([1, 4, 5, 11]), np.array([1.0, 2.0, 3.0, 4.0]), N_ROWS),
        ),
        N_ROWS,
        ("plain", "gaps", "letters", "sparse"),
    )
    return Rows(table, np.arange(N_ROWS) * 1.0, random.random(N_ROWS), random.normal(size=(2, N_ROWS)), STARTS)


def values_of(table: Table) -> list[list[float]]:
    """The columns as plain numbers, NaN for missing."""
    found = []
    for column in table.columns:
        if isinstance(column, CategoricalColumn):
            found.append(column.codes.tolist())
        elif isinstance(column, SparseColumn):
            dense = np.zeros(len(column))
            dense[column.rows] = column.values
            found.append(dense.tolist())
        else:
            missing = np.zeros(len(column), bool) if column.missing is None else column.missing
            found.append(np.where(missing, -99.0, column.values).tolist())
    return found


def check_equal(one: Rows, other: Rows) -> None:
    assert one.table.names == other.table.names
    assert values_of(one.table) == values_of(other.table)
    for name in ("target", "weight", "init_score", "group_starts", "row_numbers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("bounds", [[0, 12], [0, 3, 12], [0, 3, 3, 4, 9, 12]])
def test_slices_at_queries_join_to_the_rows_they_were_cut_from(bounds: list[int]) -> None:
    rows = all_kinds().numbered()
    check_equal(Rows.join([rows.slice(start, stop) for start, stop in pairwise(bounds)]), rows)


def test_taken_rows_are_those_of_a_slice() -> None:
    rows = all_kinds().numbered()
    check_equal(rows.take(np.arange(3, 9)), rows.slice(3, 9))


def test_taken_rows_keep_their_queries_and_numbers_and_lose_empty_queries() -> None:
    kept = np.array([1, 2, 5, 11])
    rows = all_kinds().numbered().take(kept)
    assert rows.group_starts is not None
    assert rows.group_starts.tolist() == [0, 2, 3, 4], "the query of row 3 has no row left"
    assert rows.row_numbers is not None
    assert rows.row_numbers.tolist() == kept.tolist()
    assert rows.target.tolist() == [1.0, 2.0, 5.0, 11.0]
    assert values_of(rows.table)[3] == [1.0, 0.0, 3.0, 4.0]
    twice = rows.numbered().take(np.array([1, 3]))
    assert twice.row_numbers is not None
    assert twice.row_numbers.tolist() == [2, 11], "numbers stay those of what the user passed"


def test_joined_rows_are_copies_even_of_one_part() -> None:
    rows = all_kinds()
    joined = Rows.join([rows])
    check_equal(joined, rows)
    assert not np.shares_memory(joined.target, rows.target)


@pytest.mark.parametrize("name", ["weight", "init_score", "group_starts"])
def test_what_only_some_parts_have_cannot_be_joined(name: str) -> None:
    rows = all_kinds()
    with pytest.raises(ValueError, match=f"{name} is given for some partitions only"):
        Rows.join([rows.slice(0, 3), replace(rows.slice(3, 12), **{name: None})])


def test_rows_that_are_kept_as_bins_are_as_many_and_have_no_columns() -> None:
    rows = all_kinds().without_columns()
    assert (rows.n_rows, rows.table.n_features) == (N_ROWS, 0)
    assert Rows.join([rows.slice(0, 4), rows.slice(4, 12)]).n_rows == N_ROWS
    assert Rows.join([]).n_rows == 0


def test_columns_are_described_without_their_values() -> None:
    table = all_kinds().table
    columns = Columns.of(table)
    assert columns == Columns(table.names, (None, None, ("a", "b", "c"), None))
    assert columns.n_features == 4
    assert columns == Columns.of(table.slice(0, 1))


@pytest.mark.parametrize(
    ("settings", "n_outputs"),
    [
        (ObjectiveSettings("regression"), 1),
        (ObjectiveSettings("binary", n_classes=2), 1),
        (ObjectiveSettings("multiclass", n_classes=2), 2),
        (ObjectiveSettings("multiclass", n_classes=5), 5),
        (ObjectiveSettings(lambda y, p: (p - y, y), n_classes=2), 1),
        (ObjectiveSettings(lambda y, p: (p - y, y), n_classes=3), 3),
    ],
)
def test_a_row_has_a_score_for_each_class_where_one_does_not_tell_them_apart(
    settings: ObjectiveSettings, n_outputs: int
) -> None:
    assert settings.n_outputs == n_outputs
