"""Bins are counts of cuts below a value, for every kind of number, and trees over bins and over values agree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.feature_bins import CategoricalBins, NumericBins, cut_numeric
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, SparseColumn, Table
from dmlgbm.gbdt.kernels.binning import chosen_rows
from dmlgbm.gbdt.kernels.layout import NARROW, WIDE
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import train
from tests.reference.trees import binned_column

EVERYTHING = slice(None)
SPECIAL = [-np.inf, np.inf, np.nan, -0.0, 0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1.0, np.nextafter(1.0, 2.0)]


def table_of(*columns: Column) -> Table:
    return Table(columns, len(columns[0]))


def binned(table: Table, n_threads: int = 1, **parameters: int) -> Dataset:
    with Workers(n_threads) as workers:
        return bin_table(table, BinningParameters(**parameters), workers)


def bins_of(bins: NumericBins, values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint16]:
    out = np.empty(len(values), np.uint16)
    bins.bins_of(NumericColumn(values), 0, len(values), out)
    return out


def searched(cuts: npt.NDArray[np.float64], values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    numbers = values.astype(np.float64)
    return np.where(np.isnan(numbers), len(cuts) + 1, np.searchsorted(cuts, numbers))


@given(
    st.lists(st.sampled_from(SPECIAL) | st.floats(allow_nan=True), min_size=1, max_size=60),
    st.sampled_from([2, 3, 7, 8, 255]),
)
def test_a_bin_is_the_number_of_cuts_below_the_value(numbers: list[float], max_bin: int) -> None:
    values = np.array(numbers)
    bins = cut_numeric(NumericColumn(values), EVERYTHING, max_bin)
    assert np.all(np.diff(bins.cuts) > 0)
    assert len(bins.cuts) + 1 <= max_bin
    np.testing.assert_array_equal(bins_of(bins, values), searched(bins.cuts, values))
    np.testing.assert_array_equal(bins_of(bins, np.array(SPECIAL)), searched(bins.cuts, np.array(SPECIAL)))


@given(st.lists(st.sampled_from(SPECIAL) | st.floats(allow_nan=False), min_size=2, max_size=40))
def test_few_distinct_values_get_a_bin_each(numbers: list[float]) -> None:
    values = np.array(numbers)
    bins = bins_of(cut_numeric(NumericColumn(values), EVERYTHING, 255), values)
    present = values[~np.isnan(values)]
    assert len(np.unique(bins[~np.isnan(values)])) == len(np.unique(present))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("max_bin", [4, 255, 1000])
def test_whole_numbers_of_any_width_get_the_bins_of_their_float_copies(dtype: str, max_bin: int) -> None:
    random = np.random.default_rng(0)
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = random.integers(limits[0], limits[1], 3000, dtype=dtype if dtype != "bool" else "int8", endpoint=True)
    values[: len(limits)] = limits
    values = values.astype(dtype)
    own = cut_numeric(NumericColumn(values), EVERYTHING, max_bin)
    as_floats = cut_numeric(NumericColumn(values.astype(np.float64)), EVERYTHING, max_bin)
    np.testing.assert_array_equal(own.cuts, as_floats.cuts)
    np.testing.assert_array_equal(bins_of(own, values), searched(own.cuts, values))


@given(
    st.lists(st.integers(-50, 50) | st.integers(-70_000, 70_000) | st.sampled_from([np.nan, -0.0]), min_size=1),
    st.sampled_from(["float64", "float32"]),
    st.sampled_from([2, 5, 255]),
    st.booleans(),
)
def test_whole_numbers_in_floats_get_the_bins_of_integers(
    numbers: list[float], dtype: str, max_bin: int, in_rows: bool
) -> None:
    """They are counted instead of sorted, and their bins looked up; others among them are searched for."""
    values = np.array(numbers, dtype)
    if in_rows:  # a column of a row-major matrix that its owner protects
        values = np.stack([values, values], axis=1)[:, 0]
        values.flags.writeable = False
    present = values[~np.isnan(values)]
    column = NumericColumn(np.where(np.isnan(values), 0, values).astype(np.int64), np.isnan(values))
    bins = cut_numeric(NumericColumn(values), EVERYTHING, max_bin)
    np.testing.assert_array_equal(bins.cuts, cut_numeric(column, EVERYTHING, max_bin).cuts)
    np.testing.assert_array_equal(bins_of(bins, values), searched(bins.cuts, values))
    others = np.concatenate([present, [np.inf, -np.inf, 0.25, 1e300, 7.0, np.nan]])
    np.testing.assert_array_equal(bins_of(bins, others), searched(bins.cuts, others))
    if len(present):
        sample = np.arange(0, len(values), 2, dtype=np.uint32)
        expected = cut_numeric(NumericColumn(values[sample].copy()), EVERYTHING, max_bin)
        np.testing.assert_array_equal(cut_numeric(NumericColumn(values), sample, max_bin).cuts, expected.cuts)


def test_single_precision_gets_the_bins_of_its_double_copy() -> None:
    random = np.random.default_rng(1)
    values = np.append(random.normal(size=2000), SPECIAL[:5]).astype(np.float32)
    values[::17] = np.nan
    single = cut_numeric(NumericColumn(values), EVERYTHING, 63)
    double = cut_numeric(NumericColumn(values.astype(np.float64)), EVERYTHING, 63)
    np.testing.assert_array_equal(single.cuts, double.cuts)
    np.testing.assert_array_equal(bins_of(single, values), bins_of(double, values.astype(np.float64)))


def test_negative_zero_is_zero() -> None:
    bins = cut_numeric(NumericColumn(np.array([-1.0, -0.0, 0.0, -0.0, 1.0])), EVERYTHING, 255)
    assert len(bins.cuts) == 2
    assert bins_of(bins, np.array([-0.0, 0.0])).tolist() == [1, 1]


def test_a_mask_makes_values_missing_in_cuts_and_bins() -> None:
    values = np.array([1, 2, 3, 99, 99, 99], np.int32)
    missing = np.array([False, False, False, True, True, True])
    bins = cut_numeric(NumericColumn(values, missing), EVERYTHING, 255)
    assert bins.cuts.tolist() == [1.5, 2.5]
    out = np.empty(4, np.uint8)
    bins.bins_of(NumericColumn(values, missing), 1, 5, out)
    assert out.tolist() == [1, 2, bins.missing_bin, bins.missing_bin]


@pytest.mark.parametrize("max_bin", [2, 16, 255])
def test_bins_hold_about_as_many_rows_each_and_frequent_values_end_their_own(max_bin: int) -> None:
    random = np.random.default_rng(2)
    values = random.normal(size=20_000)
    bins = cut_numeric(NumericColumn(values), EVERYTHING, max_bin)
    counts = np.bincount(bins_of(bins, values))
    assert len(counts) == max_bin
    assert counts.max() <= 2 * len(values) / max_bin
    values[:8000] = 0.125
    bins = cut_numeric(NumericColumn(values), EVERYTHING, max_bin)
    assert len(bins.cuts) + 1 <= max_bin
    if max_bin > 2:
        own = values[bins_of(bins, values) == bins_of(bins, np.array([0.125]))[0]]
        # What is left of the bin before joins it, if that is less than half a bin.
        assert own.max() == 0.125
        assert len(own) < 8000 + 0.5 * len(values) / max_bin


@pytest.mark.parametrize("stored", [[1.0, -2.0, np.nan], [0.0, 3.0, 3.0], [], [-1.0] * 10])
def test_a_sparse_column_gets_the_bins_of_its_dense_copy(stored: list[float]) -> None:
    n_rows = 10
    rows = np.arange(len(stored), dtype=np.int32) if len(stored) == n_rows else np.arange(len(stored)) * 2 + 1
    dense = np.zeros(n_rows)
    dense[rows] = stored
    sparse = SparseColumn(rows, np.array(stored, np.float64), n_rows)
    own = cut_numeric(sparse, EVERYTHING, 255)
    np.testing.assert_array_equal(own.cuts, cut_numeric(NumericColumn(dense), EVERYTHING, 255).cuts)
    np.testing.assert_array_equal(binned_column(sparse, own), searched(own.cuts, dense))


def test_the_sample_of_rows_does_not_depend_on_how_rows_are_chunked() -> None:
    key = random_key(3, Purpose.BIN_SAMPLE)
    whole = chosen_rows(0, 10_000, key, 0.2)
    parts = [chosen_rows(first, 2500, key, 0.2).astype(np.int64) + first for first in range(0, 10_000, 2500)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert 1800 < len(whole) < 2200


def test_bins_are_cut_from_the_sample_alone() -> None:
    values = np.random.default_rng(4).normal(size=5000)
    sample = chosen_rows(0, 5000, random_key(9, Purpose.BIN_SAMPLE), 500 / 5000)
    elsewhere = values.copy()
    elsewhere[np.setdiff1d(np.arange(5000), sample)] += 100.0
    datasets = [binned(table_of(NumericColumn(v)), max_bin=20, sample_rows=500, seed=9) for v in (values, elsewhere)]
    np.testing.assert_array_equal(datasets[0].bins[0].cuts, datasets[1].bins[0].cuts)
    expected = cut_numeric(NumericColumn(values[sample]), EVERYTHING, 20).cuts
    np.testing.assert_array_equal(datasets[0].bins[0].cuts, expected)


def test_columns_without_two_different_values_are_not_used() -> None:
    n = 50
    dataset = binned(
        table_of(
            NumericColumn(np.full(n, 7.0)),
            NumericColumn(np.arange(n)),
            NumericColumn(np.full(n, np.nan)),
            CategoricalColumn(np.zeros(n, np.int8), ("only",)),
            SparseColumn(np.zeros(0, np.int32), np.zeros(0), n),
            NumericColumn(np.where(np.arange(n) % 2, 1.0, np.nan)),
        )
    )
    assert dataset.plan.features.tolist() == [1, 5]


def test_more_than_256_bins_are_stored_in_two_bytes() -> None:
    values = np.random.default_rng(5).permutation(3000).astype(np.float64)
    codes = np.random.default_rng(5).integers(-1, 400, 3000).astype(np.int16)
    table = table_of(NumericColumn(values), CategoricalColumn(codes, tuple(range(400))), NumericColumn(values % 7))
    dataset = binned(table, max_bin=1000)
    assert dataset.plan.layout["storage"].tolist() == [WIDE, WIDE, NARROW]
    for position, feature in enumerate([0, 1]):
        expected = binned_column(table.columns[feature], dataset.bins[feature])
        np.testing.assert_array_equal(dataset.storage.wide[:, position], expected)
        assert expected.max() > 255


@pytest.mark.parametrize("n_categories", [3, 127, 128, 300])
def test_codes_of_any_width_are_bins_and_missing_ones_the_last(n_categories: int) -> None:
    codes = np.arange(-1, min(n_categories, 128), dtype=np.int8)
    bins = CategoricalBins(tuple(range(n_categories)))
    out = np.empty(len(codes), np.uint16)
    bins.bins_of(CategoricalColumn(codes, bins.categories), 0, len(codes), out)
    assert out.tolist() == [n_categories, *range(len(codes) - 1)]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_stored_bins_do_not_depend_on_row_blocks(monkeypatch: pytest.MonkeyPatch, n_threads: int) -> None:
    random = np.random.default_rng(6)
    table = table_of(*(NumericColumn(random.normal(size=1000)) for _ in range(70)))
    whole = binned(table)
    monkeypatch.setattr("dmlgbm.gbdt.data.row_binning._BLOCK_ROWS", 33)
    monkeypatch.setattr("dmlgbm.gbdt.data.row_binning._GROUP_COLUMNS", 8)
    blocks = binned(table, n_threads)
    np.testing.assert_array_equal(whole.storage.narrow, blocks.storage.narrow)
    np.testing.assert_array_equal(blocks.storage.narrow.T, blocks.storage.narrow_by_column)
    np.testing.assert_array_equal(whole.storage.narrow[:, 5], binned_column(table.columns[5], whole.bins[5]))


def awkward_table(random: np.random.Generator, n: int) -> Table:
    numbers = random.choice(np.array(SPECIAL), n)
    close = 1.0 + np.spacing(1.0) * random.integers(0, 40, n)
    many = random.normal(size=n).astype(np.float32)
    many[::9] = np.nan
    rows = np.flatnonzero(random.random(n) < 0.3)
    return table_of(
        NumericColumn(numbers),
        NumericColumn(close),
        NumericColumn(many),
        NumericColumn(random.integers(-100, 100, n).astype(np.int8)),
        NumericColumn(random.integers(0, 2, n).astype(bool)),
        NumericColumn(random.integers(-(2**62), 2**62, n)),
        NumericColumn(random.integers(0, 9, n), random.random(n) < 0.2),
        SparseColumn(rows, random.normal(size=len(rows)), n),
        CategoricalColumn(random.integers(-1, 3, n).astype(np.int8), ("a", "b", "c")),
        CategoricalColumn(random.integers(-1, 300, n).astype(np.int16), tuple(range(300))),
    )


@pytest.mark.parametrize("max_bin", [5, 255, 700])
def test_every_training_row_reaches_its_own_leaf_by_value(max_bin: int) -> None:
    random = np.random.default_rng(max_bin)
    table = awkward_table(random, 1500)
    parameters = TrainParameters(
        n_estimators=8, min_child_samples=2, num_leaves=60, cat_smooth=1.0, min_data_per_group=2, colsample_bytree=0.5
    )
    result = train(
        parameters,
        BinningParameters(max_bin=max_bin),
        Rows(table, random.normal(size=1500)),
        ObjectiveSettings("regression"),
    )
    leaves = result.booster.leaf_indices(table)
    used = np.zeros(table.n_features, bool)
    for number, tree in enumerate(result.booster.trees):
        np.testing.assert_array_equal(np.bincount(leaves[:, number], minlength=tree.n_leaves), tree.leaf_count)
        used[tree.feature] = True
    assert used.all()


def test_categories_beyond_the_most_that_are_told_apart_follow_missing_values_in_prediction_too() -> None:
    random = np.random.default_rng(8)
    codes = random.choice([0, 1, 2, 3, 65_005], 1000).astype(np.int32)
    table = table_of(CategoricalColumn(codes, tuple(range(65_010))))
    parameters = TrainParameters(
        n_estimators=1, num_leaves=4, min_child_samples=1, cat_smooth=0.0, cat_l2=0.0, min_data_per_group=1
    )
    result = train(
        parameters,
        BinningParameters(),
        Rows(table, np.where(codes == 65_005, 5.0, codes % 2)),
        ObjectiveSettings("regression"),
    )
    tree = result.booster.trees[0]
    reached = np.bincount(result.booster.leaf_indices(table)[:, 0], minlength=tree.n_leaves)
    np.testing.assert_array_equal(reached, tree.leaf_count)
