"""Prediction gives the bits of the naive reference, whatever the layout, tile, thread count or input type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, SparseColumn, Table
from dmlgbm.gbdt.kernels.predict import LANES
from dmlgbm.gbdt.kernels.ranked_predict import RANKED_COMPARISON
from dmlgbm.gbdt.machine_code import intrinsics
from dmlgbm.gbdt.model import forest as forest_module
from dmlgbm.gbdt.model import ranked_forest as ranked_module
from dmlgbm.gbdt.model.forest import Forest
from dmlgbm.gbdt.model.row_major import RowMajor
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.threads import Workers
from tests.reference import predict as naive

FloatArray = npt.NDArray[np.float64]
# Exact in float32, with ties, both zeros and both infinities.
VALUES = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf])
N_NUMERIC = 4
CATEGORY_COUNTS = {4: 3, 5: 70}
N_FEATURES = 6
ODD_SIZES = [0, 1, 15, 16, 17, LANES - 1, LANES, LANES + 1, 3 * LANES + 20]


def random_tree(random: np.random.Generator, n_leaves: int, features: Sequence[int] = range(N_FEATURES)) -> Tree:
    """Grown by splitting leaves at random; thresholds are values of the table and numbers between them."""
    n_nodes = n_leaves - 1
    children = np.zeros((0, 2), np.int64)
    for node in range(n_nodes):
        leaf = int(random.integers(node + 1))
        children[children == ~leaf] = node
        children = np.vstack((children, [~leaf, ~(node + 1)]))
    feature = random.choice(features, n_nodes).astype(np.int32)
    sets = [
        random.choice(CATEGORY_COUNTS[f], int(random.integers(CATEGORY_COUNTS[f] + 1)), replace=False)
        if f in CATEGORY_COUNTS
        else np.zeros(0, np.int64)
        for f in feature.tolist()
    ]
    return Tree(
        feature=feature,
        threshold=random.choice(np.append(VALUES, [0.25, 1e-300, np.nextafter(1.0, 0.0)]), n_nodes),
        missing_left=random.integers(0, 2, n_nodes).astype(np.uint8),
        categorical=np.isin(feature, list(CATEGORY_COUNTS)).astype(np.uint8),
        left=children[:, 0].astype(np.int32),
        right=children[:, 1].astype(np.int32),
        gain=np.zeros(n_nodes),
        count=np.zeros(n_nodes, np.int64),
        category_start=np.append(0, np.cumsum([len(s) for s in sets])).astype(np.int32),
        categories=np.concatenate([np.zeros(0), *sets]).astype(np.int32),
        leaf_value=random.normal(size=n_leaves) * 10.0 ** random.integers(-8, 8, n_leaves),
        leaf_count=np.zeros(n_leaves, np.int64),
        leaf_weight=np.zeros(n_leaves),
    )


def random_rows(random: np.random.Generator, n_rows: int) -> FloatArray:
    """Numbers, then category codes; NaN is missing."""
    numbers = random.choice(np.append(VALUES, np.nan), (n_rows, N_NUMERIC))
    codes = np.stack([random.integers(-1, n, n_rows) for n in CATEGORY_COUNTS.values()], axis=1).astype(float)
    return np.hstack((numbers, np.where(codes < 0, np.nan, codes)))


def table_of(rows: FloatArray) -> Table:
    columns: list[Column] = [NumericColumn(rows[:, f]) for f in range(N_NUMERIC)]
    for f, n_categories in CATEGORY_COUNTS.items():
        codes = np.where(np.isnan(rows[:, f]), -1, rows[:, f]).astype(np.int8)
        columns.append(CategoricalColumn(codes, tuple(range(n_categories))))
    return Table(tuple(columns), len(rows))


def random_trees(random: np.random.Generator, n_trees: int, most_leaves: int = 90) -> list[Tree]:
    return [random_tree(random, int(random.integers(1, most_leaves + 1))) for _ in range(n_trees)]


def forest_of(trees: Sequence[Tree], n_outputs: int = 1) -> Forest:
    return Forest.from_trees(trees, n_outputs, N_FEATURES, CATEGORY_COUNTS)


def scores_of(forest: Forest, table: Table, n_threads: int = 1) -> FloatArray:
    with Workers(n_threads) as workers:
        return forest.raw_scores(table, np.linspace(-1.0, 1.0, forest.n_outputs), workers=workers)


def leaves_of(forest: Forest, table: Table) -> npt.NDArray[np.int32]:
    with Workers(1) as workers:
        return forest.leaf_indices(table, workers)


def same_bits(left: FloatArray, right: FloatArray) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 5), st.integers(1, 3), st.integers(0, 40), st.sampled_from([3, 90, 200])
)
def test_every_row_gets_the_bits_of_the_reference(
    seed: int, n_trees: int, n_outputs: int, n_rows: int, most_leaves: int
) -> None:
    random = np.random.default_rng(seed)
    trees, rows = random_trees(random, n_trees, most_leaves), random_rows(random, n_rows)
    base_scores = random.normal(size=n_outputs)
    first_tree = int(random.integers(n_trees + 1))
    last_tree = int(random.integers(first_tree, n_trees + 1))
    forest, table = forest_of(trees, n_outputs), table_of(rows)
    with Workers(1) as workers:
        scores = forest.raw_scores(
            table, base_scores, first_tree=first_tree, n_trees=last_tree - first_tree, workers=workers
        )
    expected = [naive.raw_scores(trees, row, base_scores.tolist(), first_tree, last_tree) for row in rows.tolist()]
    assert same_bits(scores, np.array(expected).reshape(n_rows, n_outputs).T.copy())
    expected_leaves = [[naive.leaf_of(tree, row) for tree in trees] for row in rows.tolist()]
    np.testing.assert_array_equal(leaves_of(forest, table), np.reshape(expected_leaves, (n_rows, n_trees)))


@pytest.mark.parametrize("n_rows", ODD_SIZES)
def test_walking_and_clearing_bits_agree(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(n_rows)
    # 64 and 65 leaves: one full segment, and one leaf in the next.
    trees = [random_tree(random, n_leaves) for n_leaves in (1, 2, 63, 64, 65, 128, 129, 300)]
    table = table_of(random_rows(random, n_rows))
    cleared = leaves_of(forest_of(trees), table)
    monkeypatch.setattr(forest_module, "_MOST_SEGMENTS", 0)
    np.testing.assert_array_equal(cleared, leaves_of(forest_of(trees), table))


@pytest.mark.parametrize("n_rows", ODD_SIZES)
@pytest.mark.parametrize("n_trees", [0, 7])
def test_trees_laid_out_to_be_walked_give_the_same_bits(n_trees: int, n_rows: int) -> None:
    random = np.random.default_rng(n_rows)
    trees, table = random_trees(random, n_trees), table_of(random_rows(random, n_rows))
    walked = Forest.from_trees(trees, 2, N_FEATURES, CATEGORY_COUNTS, walked=True)
    assert same_bits(scores_of(walked, table), scores_of(forest_of(trees, 2), table))
    np.testing.assert_array_equal(leaves_of(walked, table), leaves_of(forest_of(trees, 2), table))


@pytest.fixture
def ranks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions rank the rows, however few they are and however few trees look at the ranks."""
    monkeypatch.setattr(forest_module, "_ROWS_WORTH_RANKS", 0)
    monkeypatch.setattr(ranked_module, "_GAIN_OF_TREE", math.inf)


def numeric_trees(random: np.random.Generator, leaves: Sequence[int]) -> list[Tree]:
    return [random_tree(random, n_leaves, range(N_NUMERIC)) for n_leaves in leaves]


@pytest.mark.usefixtures("ranks_always")
@pytest.mark.parametrize("n_rows", ODD_SIZES)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_ranks_give_the_bits_of_values(n_rows: int, n_outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(n_rows)
    # 8 and 9 leaves: one full plane, and one leaf in the next; 256 and 257: all planes that there can be, and no plane.
    trees = numeric_trees(random, (1, 2, 8, 9, 31, 64, 65, 255, 256, 257)) + random_trees(random, 5)
    table = table_of(random_rows(random, n_rows))
    forest = forest_of(trees, n_outputs)
    ranked = forest._ranked_if_worth_it(n_rows, len(trees))
    assert ranked is not None
    assert np.diff(ranked.first_plane)[:10].tolist() == [1, 1, 1, 2, 4, 8, 9, 32, 32, 0]
    scores = scores_of(forest, table)
    monkeypatch.setattr(forest_module, "_ROWS_WORTH_RANKS", 1_000_000)
    by_values = forest_of(trees, n_outputs)
    assert by_values._ranked_if_worth_it(n_rows, len(trees)) is None
    assert same_bits(scores, scores_of(by_values, table))


@pytest.mark.usefixtures("ranks_always")
@pytest.mark.parametrize("n_thresholds", [1, 4, 5, 48, 49, 254, 255, 256, 600])
def test_values_at_beside_and_between_any_number_of_thresholds(n_thresholds: int) -> None:
    random = np.random.default_rng(n_thresholds)
    thresholds = np.sort(random.normal(size=n_thresholds))
    trees = []
    for start in range(0, n_thresholds, 60):
        some = thresholds[start : start + 60]
        tree = random_tree(random, len(some) + 1, [0])
        trees += [replace(tree, threshold=some), replace(tree, threshold=some[::-1])]
    values = np.concatenate(
        [thresholds, np.nextafter(thresholds, np.inf), np.nextafter(thresholds, -np.inf), VALUES, [np.nan]]
    )
    columns = [NumericColumn(values)] * N_NUMERIC + [CategoricalColumn(np.zeros(len(values), int), (0,))] * 2
    expected = [naive.raw_scores(trees, [value] * N_FEATURES, [0.0], 0, len(trees)) for value in values.tolist()]
    forest = forest_of(trees)
    with Workers(1) as workers:
        scores = forest.raw_scores(Table(tuple(columns), len(values)), np.zeros(1), workers=workers)
    assert "_ranked" in vars(forest)
    assert same_bits(scores, np.array(expected).T.copy())


def test_few_rows_or_few_trees_are_not_ranked() -> None:
    random = np.random.default_rng(0)
    few, many = forest_of(numeric_trees(random, [60])), forest_of(numeric_trees(random, [60] * 40))
    assert few._ranked_if_worth_it(1_000_000, 1) is None
    assert many._ranked_if_worth_it(20, 40) is None
    assert many._ranked_if_worth_it(1_000_000, 40) is not None
    assert many._ranked_if_worth_it(20, 40) is not None, "what is laid out already costs nothing"
    often = forest_of(numeric_trees(random, [60] * 40))
    assert [often._ranked_if_worth_it(3_000, 40) is not None for _ in range(4)] == [False, False, True, True]
    assert many._ranked_if_worth_it(1_000_000, 1) is None
    assert forest_of([])._ranked_if_worth_it(1_000_000, 0) is not None
    with Workers(1) as workers:
        table = table_of(random_rows(random, 9_000))
        assert forest_of([]).raw_scores(table, np.ones(1), workers=workers).tolist() == [[1.0] * 9_000]


def test_code_for_ranks_is_made_for_the_rows_of_a_tile() -> None:
    assert intrinsics._LANES == LANES
    assert [RANKED_COMPARISON.fields[name][1] for name in ("first_rank", "beyond", "kept")] == [0, 4, 5]  # type: ignore[index]
    assert RANKED_COMPARISON.itemsize == 8


def test_more_leaves_than_are_worth_comparing() -> None:
    random = np.random.default_rng(5)
    tree, rows = random_tree(random, 1000), random_rows(random, 200)
    expected = [[naive.leaf_of(tree, row)] for row in rows.tolist()]
    np.testing.assert_array_equal(leaves_of(forest_of([tree]), table_of(rows)), expected)


def test_more_categories_than_are_worth_a_table() -> None:
    n_categories = 10_000
    tree = replace(
        random_tree(np.random.default_rng(0), 2, [5]),
        missing_left=np.array([1], np.uint8),
        category_start=np.array([0, 2], np.int32),
        categories=np.array([9_999, 64], np.int32),
    )
    codes = np.append(np.arange(-1, n_categories), n_categories + 5)
    columns = [NumericColumn(np.zeros(len(codes)))] * 5 + [CategoricalColumn(codes, tuple(range(n_categories)))]
    forest = Forest.from_trees([tree], 1, 6, {5: n_categories})
    is_left = leaves_of(forest, Table(tuple(columns), len(codes)))[:, 0] == 0
    assert codes[is_left].tolist() == [-1, 64, 9_999]


@pytest.mark.parametrize("n_rows", ODD_SIZES)
def test_threads_blocks_and_row_subsets_do_not_matter(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(n_rows)
    forest, rows = forest_of(random_trees(random, 12), n_outputs=2), random_rows(random, n_rows)
    expected = scores_of(forest, table_of(rows))
    subset = random.permutation(n_rows)[: n_rows // 2]
    assert same_bits(scores_of(forest, table_of(rows[subset])), expected[:, subset].copy())
    monkeypatch.setattr(forest_module, "_VISITS_WORTH_A_THREAD", 1)
    monkeypatch.setattr(forest_module, "_MOST_ROWS_PER_BLOCK", LANES)
    for n_threads in (1, 2, 3):
        assert same_bits(scores_of(forest, table_of(rows), n_threads), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_type_and_memory_order_of_the_input_do_not_matter(dtype: type, order: str) -> None:
    random = np.random.default_rng(1)
    forest, rows = forest_of(random_trees(random, 9)), random_rows(random, 300)
    expected = scores_of(forest, table_of(rows))
    assert same_bits(scores_of(forest, table_of(np.array(rows, dtype, order=order))), expected)  # type: ignore[call-overload]


@pytest.mark.parametrize("n_rows", [LANES, 2 * LANES + 9, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_views_of_one_matrix_are_read_row_by_row(n_rows: int, dtype: type) -> None:
    random = np.random.default_rng(n_rows)
    wide = np.zeros((2 * n_rows, 9), dtype)
    rows = random_rows(random, n_rows)
    wide[::2, [7, 1, 2, 4]] = rows[:, :N_NUMERIC]
    trees = [random_tree(random, 40, range(N_NUMERIC)) for _ in range(9)]
    views = [NumericColumn(wide[::2, column]) for column in (7, 1, 2, 4)]
    row_major = RowMajor.of(views)
    assert row_major is not None
    np.testing.assert_array_equal(row_major.matrix[:, row_major.columns], rows[:, :N_NUMERIC])
    table = table_of(rows)
    viewed = Table((*views, *table.columns[N_NUMERIC:]), n_rows)
    assert same_bits(scores_of(forest_of(trees), viewed), scores_of(forest_of(trees), table))
    np.testing.assert_array_equal(leaves_of(forest_of(trees), viewed), leaves_of(forest_of(trees), table))


def test_columns_that_are_no_rows_of_one_matrix_are_read_one_by_one() -> None:
    matrix, other = np.zeros((6, 4)), np.zeros((6, 4))
    assert RowMajor.of([NumericColumn(matrix[:, 0]), NumericColumn(matrix[:, 1])]) is not None
    column_major = np.zeros((6, 4), order="F")
    unaligned = np.zeros(6 * 4 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(6, 4)
    for columns in (
        [],
        [NumericColumn(matrix[:, 0])],
        [NumericColumn(matrix[:, 0]), NumericColumn(other[:, 1])],
        [NumericColumn(matrix[:, 0]), NumericColumn(np.zeros(6))],
        [NumericColumn(matrix[:, 0]), NumericColumn(matrix[:, 1], np.zeros(6, bool))],
        [NumericColumn(matrix[:3, 0]), NumericColumn(matrix[3:, 1])],
        [NumericColumn(matrix[:, 0]), NumericColumn(matrix[::-1, 1])],
        [NumericColumn(matrix[:, 0]), CategoricalColumn(np.zeros(6, int), (1,))],
        [NumericColumn(column_major[:, 0]), NumericColumn(column_major[:, 1])],
        [NumericColumn(unaligned[:, 0]), NumericColumn(unaligned[:, 1])],
        [NumericColumn(matrix.view(np.int64)[:, 0]), NumericColumn(matrix.view(np.int64)[:, 1])],
    ):
        assert RowMajor.of(columns) is None


def test_rows_that_are_not_aligned_are_read() -> None:
    random = np.random.default_rng(3)
    trees, rows = [random_tree(random, 40, range(N_NUMERIC)) for _ in range(9)], random_rows(random, 300)
    unaligned = np.zeros(rows.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(rows.shape)
    unaligned[:] = rows
    assert not unaligned.flags.aligned
    assert same_bits(scores_of(forest_of(trees), table_of(unaligned)), scores_of(forest_of(trees), table_of(rows)))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.int64])
def test_integers_with_a_mask_are_numbers_with_nan(dtype: type) -> None:
    random = np.random.default_rng(2)
    forest = forest_of([random_tree(random, 40, range(N_NUMERIC)) for _ in range(9)])
    numbers, missing = random.integers(0, 2, (N_NUMERIC, 150)), random.random((N_NUMERIC, 150)) < 0.3
    rows = np.vstack((np.where(missing, np.nan, numbers), np.zeros((2, 150)))).T
    masked = [NumericColumn(n.astype(dtype), m) for n, m in zip(numbers, missing, strict=True)]
    table = table_of(rows)
    masked_table = Table((*masked, *table.columns[N_NUMERIC:]), 150)
    assert same_bits(scores_of(forest, masked_table), scores_of(forest, table))


@pytest.mark.parametrize("n_rows", ODD_SIZES)
def test_sparse_columns_are_dense_columns(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest_module, "_MOST_ROWS_PER_BLOCK", LANES)
    random = np.random.default_rng(n_rows)
    forest, rows = forest_of(random_trees(random, 9)), random_rows(random, n_rows)
    rows[:, :N_NUMERIC][random.random((n_rows, N_NUMERIC)) < 0.7] = 0.0
    table = table_of(rows)
    sparse: list[Column] = []
    for feature in range(N_NUMERIC):
        stored = np.flatnonzero(rows[:, feature]).astype(np.int32)
        sparse.append(SparseColumn(stored, rows[stored, feature].astype(np.float32), n_rows))
    sparse_table = Table((*sparse, *table.columns[N_NUMERIC:]), n_rows)
    assert same_bits(scores_of(forest, sparse_table), scores_of(forest, table))


def test_a_forest_that_uses_no_feature() -> None:
    table = table_of(random_rows(np.random.default_rng(0), 20))
    assert scores_of(forest_of([]), table).tolist() == [[-1.0] * 20]
    leaf = replace(random_tree(np.random.default_rng(0), 1), leaf_value=np.array([0.5]))
    assert scores_of(forest_of([leaf]), table).tolist() == [[-0.5] * 20]
    assert leaves_of(forest_of([]), table).shape == (20, 0)


def test_errors_name_what_is_wrong() -> None:
    random = np.random.default_rng(0)
    tree, table = random_tree(random, 60), table_of(random_rows(random, 3))
    swapped = Table((table.columns[5], *table.columns[1:5], table.columns[0]), 3, tuple("abcdef"))
    with pytest.raises(TypeError, match="column 'a' is categorical, but was numeric"):
        scores_of(forest_of([tree]), swapped)
    with pytest.raises(ValueError, match="the table has 5 columns, but the model was fitted on 6"):
        scores_of(forest_of([tree]), Table(table.columns[:5], 3))
    with pytest.raises(ValueError, match="categorical_sizes"):
        Forest.from_trees([tree], 1, N_FEATURES, {})
    with Workers(1) as workers, pytest.raises(ValueError, match="n_trees=2 leave the 1 trees"):
        forest_of([tree]).raw_scores(table, np.zeros(1), n_trees=2, workers=workers)
