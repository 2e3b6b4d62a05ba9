"""Rows of a sparse feature go the same way whether their entries are searched or marked."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgbm.gbdt.data import row_binning
from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.row_binning import bins_of_rows
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.kernels.layout import SPARSE, Directions
from dmlgbm.gbdt.kernels.partition import partition_rows
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.threads import Workers

N_ROWS, N_COLUMNS = 1003, 24


def small_counts() -> Table:
    generator = np.random.default_rng(0)
    counts = np.minimum(generator.poisson(0.2, (N_ROWS, N_COLUMNS)) * generator.integers(1, 9, (N_ROWS, N_COLUMNS)), 20)
    counts = counts.astype(float)
    counts[generator.random(counts.shape) < 0.01] = np.nan
    return Table(tuple(NumericColumn(np.ascontiguousarray(column)) for column in counts.T), n_rows=N_ROWS)


def sparse_dataset() -> Dataset:
    dataset = bin_table(small_counts(), BinningParameters(), Workers(1))
    assert set(dataset.plan.layout["storage"]) == {SPARSE}
    return dataset


def goes_left_by_bin(n_bins: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, n_bins).astype(np.uint8)


def fill(dataset: Dataset, feature: int, by_bin: np.ndarray, directions: Directions) -> int:
    """Write what each stored value does; return what rows without an entry do."""
    record = dataset.plan.layout[feature]
    stored = np.delete(by_bin, record["implicit_bin"])
    directions.goes_left[record["first_value"] : record["first_value"] + len(stored)] = stored
    return int(by_bin[record["implicit_bin"]])


@pytest.mark.parametrize("n_rows", [N_ROWS, 500, 3, 1])
def test_marked_and_searched_rows_go_the_same_way(n_rows: int) -> None:
    table, dataset = small_counts(), sparse_dataset()
    assert len(dataset.storage.entry_rows) == len(dataset.storage.sparse_entries)
    marking = dataset.empty_directions()
    searching = Directions(np.empty_like(marking.goes_left), np.zeros(0, np.uint8))
    chosen = np.sort(np.random.default_rng(1).choice(N_ROWS, n_rows, replace=False)).astype(np.uint32)
    for feature in range(len(dataset.plan.features)):
        own_bins = np.empty(N_ROWS, np.uint8)
        column = dataset.plan.features[feature]
        bins_of_rows(table.columns[column], dataset.bins[column], 0, N_ROWS, own_bins)
        by_bin = goes_left_by_bin(int(dataset.plan.layout[feature]["bins"]), feature)
        left = by_bin[own_bins[chosen]] == 1
        expected = np.concatenate([chosen[left], chosen[~left]])
        for directions in (marking, searching):
            by_default = fill(dataset, feature, by_bin, directions)
            rows, scratch = chosen.copy(), np.empty_like(chosen)
            every_row = n_rows == N_ROWS
            n_left = partition_rows(
                dataset.binned, feature, directions, by_default, rows, scratch, 0, n_rows, every_row
            )
            assert n_left == left.sum()
            np.testing.assert_array_equal(rows, expected)
        assert not marking.marks.any()


def test_rows_of_entries_are_listed_by_stored_value() -> None:
    dataset = sparse_dataset()
    storage, layout = dataset.storage, dataset.plan.layout
    first_position = int(layout["position"].min())
    for feature in range(len(layout)):
        record = layout[feature]
        starts = storage.entry_row_starts[record["position"] - first_position :]
        for value in range(record["bins"] - 1):
            tile_starts, stored = storage.sparse_starts[record["column"]], record["first_value"] + value
            having = [
                row
                for row in range(N_ROWS)
                if stored in storage.sparse_entries[tile_starts[row] : tile_starts[row + 1]]
            ]
            assert storage.entry_rows[starts[value] : starts[value + 1]].tolist() == having


def test_rows_with_many_entries_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_binning, "_MOST_ENTRIES_LISTED", 2)
    dataset = sparse_dataset()
    assert len(dataset.storage.entry_rows) == 0
    assert len(dataset.empty_directions().marks) == 0
