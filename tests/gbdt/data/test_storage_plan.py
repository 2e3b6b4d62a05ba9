"""However a feature is stored (alone, in a shared column, as sparse entries), the model is the same, bit for bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.storage_plan import StoragePlan
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.kernels.binning import chosen_rows
from dmlgbm.gbdt.kernels.layout import NARROW, SPARSE, WIDE
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import train
from dmlgbm.sklearn_api.tables import table_from
from tests.reference.trees import binned_column

FloatArray = npt.NDArray[np.float64]
FORMS = ("alone", "shared", "sparse")


@pytest.fixture
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kind of storage features that could have any get."""
    store_as(monkeypatch, request.param)
    return str(request.param)


def store_as(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("dmlgbm.gbdt.data.storage_plan._SHARED_SHARE", 0.5 if form == "shared" else -1.0)
    monkeypatch.setattr("dmlgbm.gbdt.data.storage_plan._SPARSE_SHARE", 0.5 if form == "sparse" else -1.0)
    monkeypatch.setattr("dmlgbm.gbdt.data.storage_plan._FEWEST_SPARSE_FEATURES", 1)


def one_hot(random: np.random.Generator, n_rows: int, sizes: tuple[int, ...]) -> FloatArray:
    return np.hstack([np.eye(size)[random.integers(0, size, n_rows)] for size in sizes])


def binned(table: Table, n_threads: int = 1, **parameters: int) -> Dataset:
    with Workers(n_threads) as workers:
        return bin_table(table, BinningParameters(**parameters), workers)


def unstored(dataset: Dataset, position: int) -> npt.NDArray[np.int64]:
    """The bins of a feature, read back from storage as the layout describes it."""
    record = dataset.plan.layout[position]
    storage, column = dataset.storage, int(record["column"])
    first, n_stored = int(record["first_value"]), int(record["bins"]) - (record["implicit_bin"] >= 0)
    bins = np.empty(dataset.n_rows, np.int64)
    for row in range(dataset.n_rows):
        if record["storage"] == SPARSE:
            start, stop = storage.sparse_starts[column, row : row + 2]
            values = storage.sparse_entries[start:stop].astype(int).tolist()
            assert values == sorted(set(values))
        else:
            values = [int((storage.narrow if record["storage"] == NARROW else storage.wide)[row, column])]
            if record["values"] > 0:
                values = [values[0] // int(record["stride"]) % int(record["values"])]
        own = [value - first for value in values if first <= value < first + n_stored]
        assert len(own) <= 1
        bins[row] = record["implicit_bin"] if not own else own[0]
        if own and 0 <= record["implicit_bin"] <= own[0]:
            bins[row] += 1
    return bins


def sparse_table(random: np.random.Generator, n_rows: int, n_columns: int = 20) -> Table:
    """Columns that are mostly at one value (not always zero, sometimes missing), and a few that are not."""
    columns = []
    for number in range(n_columns):
        usual = [0.0, 2.0, np.nan][number % 3]
        others = random.choice([-1.0, 0.0, 1.0, 3.0, np.nan], n_rows)
        columns.append(NumericColumn(np.where(random.random(n_rows) < 0.9, usual, others)))
    codes = np.where(random.random(n_rows) < 0.8, 1, random.integers(-1, 5, n_rows)).astype(np.int8)
    columns.append(CategoricalColumn(codes, tuple("abcde")))
    columns.append(NumericColumn(random.normal(size=n_rows)))
    return Table(tuple(columns), n_rows)


@pytest.mark.parametrize("form", FORMS, indirect=True)
@pytest.mark.parametrize("kind", ["one-hot", "mostly usual"])
def test_storage_holds_the_bins_of_every_feature(form: str, kind: str) -> None:
    random = np.random.default_rng(0)
    table = table_from(one_hot(random, 200, (3, 7, 12))) if kind == "one-hot" else sparse_table(random, 200)
    dataset = binned(table)
    for position, feature in enumerate(dataset.plan.features.tolist()):
        expected = binned_column(table.columns[feature], dataset.bins[feature])
        np.testing.assert_array_equal(unstored(dataset, position), expected)
    assert form_of(dataset.plan) == ("shared" if form == "shared" else form)


def form_of(plan: StoragePlan) -> str:
    if plan.sparse_tiles:
        return "sparse"
    return "shared" if max(part_sizes(plan)) > 1 else "alone"


def part_sizes(plan: StoragePlan) -> list[int]:
    """How many features share each column, also where columns are joined."""
    return [len(part) for column in range(len(plan.narrow_columns)) for part in plan.parts_of(column)]


def test_one_hot_columns_share_a_column_and_the_rest_stay_apart() -> None:
    random = np.random.default_rng(1)
    exclusive, common = one_hot(random, 500, (6,)), random.normal(size=(500, 2))
    plan = binned(table_from(np.hstack((common[:, :1], exclusive, common[:, 1:])))).plan
    assert sorted(plan.narrow_columns) == [(0,), (1, 2, 3, 4, 5, 6), (7,)]


def test_many_rarely_used_columns_become_sparse_entries() -> None:
    random = np.random.default_rng(2)
    values = (random.random((400, 30)) < 0.2).astype(np.float64)
    assert set(binned(table_from(values)).plan.layout["storage"].tolist()) == {SPARSE}
    assert set(binned(table_from(values[:, :10])).plan.layout["storage"].tolist()) == {NARROW}


def test_positions_of_stored_bins_never_overlap() -> None:
    random = np.random.default_rng(3)
    dense = random.normal(size=(600, 3))
    table = table_from(np.hstack((one_hot(random, 600, (5, 8)), random.random((600, 25)) < 0.2, dense)))
    dataset = binned(table, max_bin=500)
    taken = [
        position
        for record in dataset.plan.layout
        for position in range(record["position"], record["position"] + record["bins"] - (record["implicit_bin"] >= 0))
    ]
    assert len(taken) == len(set(taken))
    assert max(taken) < dataset.plan.n_positions
    assert set(dataset.plan.layout["storage"].tolist()) == {NARROW, WIDE, SPARSE}


def test_a_shared_column_never_holds_more_values_than_a_byte() -> None:
    """Three columns of 101 distinct values, in turn away from zero: two fit into one byte, the third does not."""
    values = np.zeros((300, 3))
    values[np.arange(300), np.arange(300) % 3] = 1.0 + np.arange(300) // 3
    dataset = binned(table_from(values))
    assert sorted(map(len, dataset.plan.narrow_columns)) == [1, 2]
    for position in range(3):
        np.testing.assert_array_equal(unstored(dataset, position), values[:, position])


def model_bytes(table: Table, target: FloatArray, binning: BinningParameters | None = None, **more: object) -> bytes:
    parameters = TrainParameters(
        n_estimators=6, num_leaves=12, min_child_samples=3, cat_smooth=1.0, min_data_per_group=3, **more
    )
    settings = ObjectiveSettings("regression")
    return train(parameters, binning or BinningParameters(), Rows(table, target), settings).booster.to_bytes()


@pytest.mark.parametrize("more", [{}, {"subsample": 0.6, "subsample_freq": 1, "colsample_bynode": 0.5}])
@pytest.mark.parametrize("kind", ["one-hot", "mostly usual"])
def test_the_model_does_not_depend_on_the_storage(
    monkeypatch: pytest.MonkeyPatch, kind: str, more: dict[str, float]
) -> None:
    random = np.random.default_rng(4)
    table = table_from(one_hot(random, 600, (3, 7, 12))) if kind == "one-hot" else sparse_table(random, 600)
    target = random.normal(size=600) + sum(i * np.asarray(binned_column(c, b)) for i, (c, b) in enumerate(
        zip(table.columns, binned(table).bins, strict=True)
    ))  # fmt: skip
    models = set()
    for form in FORMS:
        store_as(monkeypatch, form)
        models.add(model_bytes(table, target, **more))
    assert len(models) == 1


@pytest.mark.parametrize("sizes", [(4, 9), (40, 30, 20)])
def test_dense_and_sparse_input_give_the_same_model(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(5)
    values = np.hstack((one_hot(random, 500, sizes), (random.random((500, 30)) < 0.2) * random.normal(size=(500, 30))))
    target = values @ random.normal(size=values.shape[1]) + 0.1 * random.normal(size=500)
    inputs = [values, np.asfortranarray(values), scipy.sparse.csr_matrix(values), scipy.sparse.csc_array(values)]
    assert len({model_bytes(table_from(X), target) for X in inputs}) == 1


@pytest.mark.parametrize("n_threads", [1, 2])
def test_features_that_clash_only_outside_the_sample_are_taken_apart(
    monkeypatch: pytest.MonkeyPatch, n_threads: int
) -> None:
    random = np.random.default_rng(6)
    n_rows, binning = 4000, BinningParameters(sample_rows=300, seed=11)
    monkeypatch.setattr("dmlgbm.gbdt.data.dataset.ROWS_FOR_PLAN", 300)
    monkeypatch.setattr("dmlgbm.gbdt.data.row_binning._BLOCK_ROWS", 256)
    values = one_hot(random, n_rows, (6,))
    assert one_column_for_all(binned(table_from(values), sample_rows=300, seed=11).plan)
    seen = chosen_rows(0, n_rows, random_key(11, Purpose.BIN_SAMPLE), 300 / n_rows)
    unseen = np.setdiff1d(np.arange(n_rows), seen)
    # In blocks that different threads bin.
    for feature, row in ((1, unseen[5]), (3, unseen[700]), (5, unseen[-1])):
        values[row] = 0.0
        values[row, [0, feature]] = 1.0
    table, target = table_from(values), random.normal(size=n_rows)
    dataset = binned(table, n_threads, sample_rows=300, seed=11)
    assert not one_column_for_all(dataset.plan)
    for position in range(6):
        np.testing.assert_array_equal(unstored(dataset, position), values[:, position])
    clashing = model_bytes(table, target, binning, n_threads=n_threads)
    store_as(monkeypatch, "alone")
    assert clashing == model_bytes(table, target, binning)


def one_column_for_all(plan: StoragePlan) -> bool:
    return part_sizes(plan) == [6]


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_a_usual_bin_that_only_the_sample_knows_still_trains_right(form: str) -> None:
    """The usual value of the sample is rare outside it, and there are rows of bins the sample saw once."""
    random = np.random.default_rng(7)
    values = np.where(random.random((3000, 3)) < 0.7, 0.0, random.integers(0, 4, (3000, 3)))
    table = table_from(values)
    dataset = binned(table, sample_rows=50)
    for position, feature in enumerate(dataset.plan.features.tolist()):
        expected = binned_column(table.columns[feature], dataset.bins[feature])
        np.testing.assert_array_equal(unstored(dataset, position), expected)
