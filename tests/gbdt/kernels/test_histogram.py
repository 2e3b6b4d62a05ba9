"""Histograms hold exactly the integer sums of their rows, in every form and every mixture of forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.row_numbers import whole_table
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.growth.quantisation import Quantised, quantise
from dmlgbm.gbdt.kernels.histogram import add_planes, build_histogram, subtract_tile
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.threads import Workers
from tests.reference.trees import binned_features, whole_numbers

IntArray = npt.NDArray[np.int64]
N_ROWS = 203
# Hessians and precision of every packing; "counts" have no hessians.
PACKINGS = {
    "packed": (True, "fast"),
    "two words": (True, "exact"),
    "counts": (False, "fast"),
    "exact counts": (False, "exact"),
}


def mixed_table(random: np.random.Generator, n_rows: int) -> Table:
    """Columns for every kind of storage: one byte, two bytes, a shared byte, joint bytes, and sparse entries."""
    exclusive = np.eye(4)[random.integers(0, 4, n_rows)]
    columns = [NumericColumn(exclusive[:, k]) for k in range(4)]
    columns += [NumericColumn((random.random(n_rows) < 0.25) * random.integers(1, 4, n_rows)) for _ in range(18)]
    columns.append(NumericColumn(np.where(random.random(n_rows) < 0.1, np.nan, random.normal(size=n_rows))))
    columns.append(CategoricalColumn(random.integers(-1, 300, n_rows).astype(np.int16), tuple(range(300))))
    columns += [NumericColumn(random.integers(0, size, n_rows).astype(float)) for size in (2, 2, 3, 5, 12)]
    columns.append(NumericColumn(np.where(random.random(n_rows) < 0.1, np.nan, random.integers(0, 4, n_rows))))
    columns.append(CategoricalColumn(random.integers(-1, 6, n_rows).astype(np.int16), tuple(range(6))))
    return Table(tuple(columns), n_rows)


TABLE = mixed_table(np.random.default_rng(0), N_ROWS)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    with Workers(1) as workers:
        made = bin_table(TABLE, BinningParameters(), workers)
    assert made.plan.wide_columns
    assert made.plan.sparse_tiles
    parts = [made.plan.parts_of(column) for column in range(len(made.plan.narrow_columns))]
    assert {len(parts_of_one) for parts_of_one in parts} >= {1, 3}
    assert any(len(members) > 1 for parts_of_one in parts for members in parts_of_one)
    return made


def integers(random: np.random.Generator, n_rows: int, packing: str) -> tuple[Quantised, IntArray, IntArray]:
    with_hessians, precision = PACKINGS[packing]
    gradients = random.integers(-1024, 1025, n_rows)
    hessians = random.integers(0, 257, n_rows) if with_hessians else np.ones(n_rows, np.int64)
    return whole_numbers(gradients, hessians if with_hessians else None, precision), gradients, hessians


def smaller_blocks(quantised: Quantised, block_rows: int) -> Quantised:
    packing = quantised.packing.copy()
    packing["block_rows"] = block_rows
    return replace(quantised, packing=packing)


def built(dataset: Dataset, quantised: Quantised, rows: IntArray | None, packed: bool) -> IntArray:
    """The planes of some rows (None: all, read in order), with rubbish from before where planes are not used."""
    n_positions = dataset.plan.n_positions
    planes = np.full((3, n_positions), 77, np.int64)
    every_row = rows is None
    numbers = np.zeros(dataset.n_rows, np.uint32) if rows is None else rows.astype(np.uint32)
    n_rows = dataset.n_rows if rows is None else len(rows)
    block = np.empty(dataset.plan.joints.end, np.int64)
    build_histogram(dataset.storage, quantised.packed, numbers, 0, n_rows, every_row, block, packed, planes)
    return planes


def check_every_bin(
    dataset: Dataset, quantised: Quantised, planes: IntArray, packed: bool, rows: IntArray, sums: list[IntArray]
) -> None:
    """Compare all bins of all features, those that are not stored included, with sums over rows."""
    layout = dataset.plan.layout
    by_position = unpacked(quantised, planes[0]) if packed else planes
    for record, feature in zip(layout, binned_features(TABLE, dataset), strict=True):
        implicit = int(record["implicit_bin"])
        n_stored = feature.n_bins - (implicit >= 0)
        for plane, values in enumerate(sums):
            loaded = by_position[plane, record["position"] : record["position"] + n_stored]
            if implicit >= 0:
                loaded = np.insert(loaded, implicit, values[rows].sum() - loaded.sum())
            expected = np.zeros(feature.n_bins, np.int64)
            np.add.at(expected, feature.bins[rows], values[rows])
            np.testing.assert_array_equal(loaded, expected)


def unpacked(quantised: Quantised, words: IntArray) -> IntArray:
    """Gradients, hessians and counts out of packed sums, in arithmetic without bits."""
    packing = {name: int(quantised.packing[0][name]) for name in quantised.packing.dtype.names}
    gradients, rest = np.divmod(words, 1 << packing["gradient_shift"])
    counts = rest % (packing["count_mask"] + 1)
    hessians = (rest - counts) // packing["hessian_factor"] if packing["hessian_factor"] else counts
    return np.stack((gradients, hessians, counts))


def forms_of(packing: str) -> list[bool]:
    return [False] if packing == "two words" else [True, False]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("block_rows", [1, 7, 64, N_ROWS])
def test_all_rows(dataset: Dataset, packing: str, block_rows: int) -> None:
    quantised, gradients, hessians = integers(np.random.default_rng(1), N_ROWS, packing)
    quantised = smaller_blocks(quantised, block_rows)
    every = np.arange(N_ROWS)
    for packed in forms_of(packing):
        planes = built(dataset, quantised, None, packed)
        sums = [gradients, hessians, np.ones(N_ROWS, np.int64)]
        check_every_bin(dataset, quantised, planes, packed, every, sums)
        np.testing.assert_array_equal(planes, built(dataset, quantised, every, packed))


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("n_chosen", [0, 1, 3, 4, 5, 8, 9, 12, 13, 21, 100])
def test_some_rows(dataset: Dataset, packing: str, n_chosen: int) -> None:
    random = np.random.default_rng(n_chosen)
    quantised, gradients, hessians = integers(random, N_ROWS, packing)
    rows = np.sort(random.choice(N_ROWS, n_chosen, replace=False))
    for packed in forms_of(packing):
        planes = built(dataset, smaller_blocks(quantised, 10), rows, packed)
        check_every_bin(dataset, quantised, planes, packed, rows, [gradients, hessians, np.ones(N_ROWS, np.int64)])


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_largest_sums_that_a_packing_allows_do_not_touch(packing: str) -> None:
    """As many rows as a block may have, all with the largest gradient and hessian `quantise` can make, in one bin."""
    with_hessians, precision = PACKINGS[packing]
    n_rows = 70_000
    table = Table((NumericColumn(np.arange(n_rows) % 50_000 == 49_999),), n_rows)
    for sign in (1.0, -1.0):
        largest = np.full(n_rows, sign * np.nextafter(np.float32(2.0), np.float32(0.0)), np.float32)
        with Workers(1) as workers:
            dataset = bin_table(table, BinningParameters(), workers)
            quantised = quantise(
                largest,
                np.abs(largest) if with_hessians else largest[:0],
                precision=precision,
                segments=whole_table(len(largest)),
                seed=0,
                tree=0,
                workers=workers,
            )
        planes = built(dataset, quantised, None, False)
        assert planes[2].tolist() == [n_rows - 1, 1, 0]
        gradient = planes[0, :2] / quantised.gradient_scale
        np.testing.assert_allclose(gradient, sign * 2.0 * np.array([n_rows - 1, 1]), rtol=2e-3)
        if with_hessians:
            hessian = planes[1, :2] / quantised.hessian_scale
            np.testing.assert_allclose(hessian, 2.0 * np.array([n_rows - 1, 1]), rtol=2e-3)
        n_packed = int(quantised.packing["packed_rows"][0])
        if n_packed:
            rows = np.arange(min(n_packed, 49_000))
            words = built(dataset, quantised, rows, True)[0, 0]
            wide = built(dataset, quantised, rows, False)
            shift, mask = int(quantised.packing["gradient_shift"][0]), int(quantised.packing["count_mask"][0])
            assert (words >> shift, words & mask) == (wide[0, 0], len(rows))


def test_parts_of_the_rows_add_up(dataset: Dataset) -> None:
    quantised, _, _ = integers(np.random.default_rng(2), N_ROWS, "packed")
    total = built(dataset, quantised, np.arange(90), False)
    add_planes(total, built(dataset, quantised, np.arange(90, N_ROWS), False))
    np.testing.assert_array_equal(total, built(dataset, quantised, None, False))


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    ("parent_packed", "child_packed", "sibling_packed"),
    [(True, True, True), (False, True, True), (False, True, False), (False, False, False)],
)
def test_the_other_child_is_the_parent_less_the_child(
    dataset: Dataset, packing: str, parent_packed: bool, child_packed: bool, sibling_packed: bool
) -> None:
    if packing == "two words" and child_packed:
        pytest.skip("two words are never packed")
    random = np.random.default_rng(3)
    quantised, gradients, hessians = integers(random, N_ROWS, packing)
    in_child = random.random(N_ROWS) < 0.4
    planes = built(dataset, quantised, None, parent_packed)
    child = built(dataset, quantised, np.flatnonzero(in_child), child_packed)
    subtract_tile(quantised.packing, planes, parent_packed, child, child_packed, sibling_packed, 0, planes.shape[1])
    rest = np.flatnonzero(~in_child)
    sums = [gradients, hessians, np.ones(N_ROWS, np.int64)]
    check_every_bin(dataset, quantised, planes, sibling_packed, rest, sums)


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50),
    st.sampled_from(["fast", "auto", "exact"]),
    st.booleans(),
)
def test_rounded_gradients_are_within_one_step(numbers: list[float], precision: str, with_hessians: bool) -> None:
    gradients = np.array(numbers, np.float32)
    hessians = np.abs(gradients) if with_hessians else gradients[:0]
    with Workers(1) as workers:
        quantised = quantise(
            gradients,
            hessians,
            precision=precision,
            segments=whole_table(len(gradients)),
            seed=1,
            tree=2,
            workers=workers,
        )
    packing = quantised.packing[0]
    rounded = quantised.words[0] >> packing["gradient_shift"]
    assert np.all(np.abs(rounded - gradients.astype(np.float64) * quantised.gradient_scale) < 1.0)
    np.testing.assert_array_equal(quantised.words[-1] & packing["count_mask"], 1)
    if with_hessians:
        rounded = (quantised.words[-1] >> packing["hessian_shift"]) & packing["hessian_mask"]
        assert np.all(np.abs(rounded - hessians.astype(np.float64) * quantised.hessian_scale) < 1.0)


def test_rounding_is_unbiased() -> None:
    """Outliers make the steps so large that most gradients are a fraction of one."""
    gradients = np.full(50_000, 0.1, np.float32)
    gradients[0] = 1000.0
    with Workers(1) as workers:
        quantised = quantise(
            gradients, gradients, precision="fast", segments=whole_table(50_000), seed=0, tree=0, workers=workers
        )
    rounded = quantised.words[0, 1:] >> quantised.packing["gradient_shift"][0]
    assert set(np.unique(rounded).tolist()) == {0, 1}
    assert rounded.mean() / quantised.gradient_scale == pytest.approx(0.1, rel=0.02)
