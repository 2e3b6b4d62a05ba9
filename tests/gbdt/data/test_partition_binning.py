"""Binning a table part by part is binning the table: the same bins, the same storage, the same rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dmlgbm.gbdt.data.dataset import bin_table
from dmlgbm.gbdt.data.partition_binning import (
    assembled,
    bin_partition,
    candidate_rows,
    plan_bins,
    sample_candidates,
    sample_rows,
    summarise_columns,
)
from dmlgbm.gbdt.data.row_numbers import Segment, placed_in_turn, stretches_between
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, SparseColumn, Table, joined_columns
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.threads import Workers
from tests.reference.rank_fits import binned_parts, every_kind_of_column

N_ROWS = 3_001
BOUNDS = [0, 1, 1, 700, 2_222, N_ROWS]


@pytest.mark.parametrize(
    "binning",
    [BinningParameters(), BinningParameters(sample_rows=700, max_bin=40, seed=5), BinningParameters(max_bin=300)],
    ids=["all rows", "a sample", "two bytes"],
)
def test_parts_give_the_bins_and_rows_of_the_whole(binning: BinningParameters, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("dmlgbm.gbdt.data.dataset", "dmlgbm.gbdt.data.bin_sample"):
        monkeypatch.setattr(f"{module}.ROWS_FOR_PLAN", 1_000)
    table, _ = every_kind_of_column(np.random.default_rng(0), N_ROWS)
    with Workers(1) as workers:
        whole = bin_table(table, binning, workers)
    plan, parts = binned_parts(table, BOUNDS, binning)
    made = assembled(plan, parts)
    assert not parts
    assert made.segments == whole.segments == (Segment(0, N_ROWS, 0),)
    for one, other in zip(made.bins, whole.bins, strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(getattr(one, "cuts", []), getattr(other, "cuts", []))
    for one, other in zip(made.storage, whole.storage, strict=True):
        np.testing.assert_array_equal(one, other)


def test_some_parts_in_any_order_know_their_row_numbers() -> None:
    table, _ = every_kind_of_column(np.random.default_rng(1), N_ROWS)
    plan, parts = binned_parts(table, BOUNDS, BinningParameters())
    whole = assembled(plan, list(parts))
    some = assembled(plan, [parts[4], parts[0], parts[1]])
    assert some.segments == (Segment(0, 1, 0), Segment(1, N_ROWS - 2_222, 2_222))
    rows = np.r_[0, 2_222:N_ROWS]
    np.testing.assert_array_equal(some.storage.narrow, whole.storage.narrow[rows])
    np.testing.assert_array_equal(some.storage.narrow_by_column, whole.storage.narrow[rows].T)
    np.testing.assert_array_equal(some.storage.wide, whole.storage.wide[rows])
    for tile in range(len(plan.storage.sparse_tiles)):
        for position, row in enumerate(rows.tolist()):
            own, all_rows = some.storage.sparse_starts[tile], whole.storage.sparse_starts[tile]
            np.testing.assert_array_equal(
                some.storage.sparse_entries[own[position] : own[position + 1]],
                whole.storage.sparse_entries[all_rows[row] : all_rows[row + 1]],
            )


def test_a_clash_in_one_part_is_named_there_and_ends_sharing_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgbm.gbdt.data.bin_sample.ROWS_FOR_PLAN", 50)
    away = np.zeros((3, N_ROWS))
    away[0, ::10], away[1, 1::10], away[2, 2::10] = 1.0, 1.0, 1.0
    away[1, 2_500] = 1.0  # row 2500 is away in the first column too
    table = Table(tuple(NumericColumn(column) for column in away), N_ROWS)
    binning = BinningParameters()
    sample = sample_rows(table, first_row_number=0, n_total_rows=N_ROWS, parameters=binning)
    summaries = summarise_columns([sample], binning)
    plan = plan_bins(summaries)
    parts = [bin_partition(table.slice(a, b), plan, first_row_number=a) for a, b in ((0, 2_000), (2_000, N_ROWS))]
    assert not parts[0].clashing
    assert parts[1].clashing
    assert parts[1].n_rows == 0
    agreed = plan_bins(summaries, parts[1].clashing)
    for column in range(len(agreed.storage.narrow_columns)):
        for part in agreed.storage.parts_of(column):
            members = {int(agreed.storage.features[position]) for position in part}
            assert len(members) == 1 or not members & parts[1].clashing


def test_candidates_of_parts_hold_the_sample_before_the_number_of_rows_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dmlgbm.gbdt.data.bin_sample.ROWS_FOR_PLAN", 300)
    table, _ = every_kind_of_column(np.random.default_rng(3), N_ROWS)
    binning = BinningParameters(sample_rows=500, seed=4)
    n_candidates = 0
    for start, stop in pairwise(BOUNDS):
        part = table.slice(start, stop)
        rows = candidate_rows(stop - start, start, stop, binning)  # nobody knows of rows after these
        n_candidates += len(rows)
        small = part.take(rows)
        found = sample_candidates(
            small, rows, stop - start, first_row_number=start, n_total_rows=N_ROWS, parameters=binning
        )
        expected = sample_rows(part, first_row_number=start, n_total_rows=N_ROWS, parameters=binning)
        np.testing.assert_array_equal(found.cutting, expected.cutting)
        np.testing.assert_array_equal(found.planning, expected.planning)
        for one, other in zip(found.table.columns, expected.table.columns, strict=True):
            for name in vars(other):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert n_candidates < N_ROWS


def test_wide_tables_can_be_summarised_block_by_block() -> None:
    table, _ = every_kind_of_column(np.random.default_rng(2), 500)
    binning = BinningParameters()
    sample = sample_rows(table, first_row_number=0, n_total_rows=500, parameters=binning)
    together = summarise_columns([sample], binning)
    blocks = [summarise_columns([sample.of_columns(a, a + 7)], binning) for a in range(0, table.n_features, 7)]
    apart = [summary for block in blocks for summary in block]
    assert len(apart) == len(together)
    for one, other in zip(apart, together, strict=True):
        np.testing.assert_array_equal(getattr(one.bins, "cuts", []), getattr(other.bins, "cuts", []))
        assert one.sampled.usual_bin == other.sampled.usual_bin


def test_columns_of_different_kinds_cannot_be_joined() -> None:
    numbers, sparse = NumericColumn(np.zeros(3)), SparseColumn(np.zeros(0, np.int64), np.zeros(0), 3)
    with pytest.raises(TypeError, match="column 'size' is of different kinds"):
        joined_columns([numbers, sparse], "'size'")
    one, other = (CategoricalColumn(np.zeros(2, np.int8), categories) for categories in (("a",), ("b",)))
    with pytest.raises(ValueError, match="column 'colour' has other categories"):
        joined_columns([one, other], "'colour'")


def test_neighbouring_stretches_become_one_segment() -> None:
    segments = placed_in_turn([(10, 5), (15, 0), (15, 5), (30, 2)])
    assert segments == (Segment(0, 10, 10), Segment(10, 2, 30))
    assert list(stretches_between(segments, 8, 12)) == [(8, 10, 10), (10, 12, 20)]
