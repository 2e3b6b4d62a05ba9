"""Columns of few values share bytes, and the model is the same, bit for bit, as if each had its own."""

from __future__ import annotations

from itertools import chain
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.joint_columns import choose_joints
from dmlgbm.gbdt.data.row_binning import bins_of_rows
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.kernels.binning import chosen_rows
from dmlgbm.gbdt.kernels.layout import NODE, TreeNodes
from dmlgbm.gbdt.kernels.partition import fill_goes_left, partition_rows
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import train
from tests.reference.trees import binned_column

N_ROWS = 2_003


def few_values(random: np.random.Generator, n_rows: int) -> Table:
    """Flags, small numbers with and without missing ones, categories, an exclusive pair, and one of many values."""
    columns: list[NumericColumn | CategoricalColumn] = [
        NumericColumn(random.integers(0, 2, n_rows).astype(float)) for _ in range(9)
    ]
    columns += [NumericColumn(random.integers(0, size, n_rows).astype(float)) for size in (3, 7, 12, 12, 30, 100)]
    columns += [
        NumericColumn(np.where(random.random(n_rows) < 0.1, np.nan, random.integers(0, size, n_rows)))
        for size in (1, 4, 15)
    ]
    columns += [CategoricalColumn(random.integers(-1, 6, n_rows).astype(np.int16), tuple(range(6)))]
    either = random.integers(0, 4, n_rows)
    columns += [NumericColumn((either == k) * 1.0) for k in range(2)]
    columns.append(NumericColumn(random.normal(size=n_rows)))
    return Table(tuple(columns), n_rows)


def binned(table: Table, **parameters: int) -> Dataset:
    with Workers(1) as workers:
        return bin_table(table, BinningParameters(**parameters), workers)


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every column a byte of its own."""
    monkeypatch.setattr(
        "dmlgbm.gbdt.data.storage_plan.choose_joints", lambda n_values: [[k] for k in range(len(n_values))]
    )


@given(st.lists(st.integers(1, 256), max_size=60))
def test_every_column_is_in_one_byte_that_holds_its_values(n_values: list[int]) -> None:
    joints = choose_joints(n_values)
    assert sorted(chain.from_iterable(joints)) == list(range(len(n_values)))
    assert all(prod(n_values[column] for column in joint) <= 256 for joint in joints)
    assert all([n_values[column] for column in joint] == sorted(n_values[k] for k in joint) for joint in joints)
    assert joints == choose_joints(n_values)


@pytest.mark.parametrize(("n_values", "n_bytes"), [([2] * 100, 13), ([12] * 20, 10), ([16] * 8, 4), ([17] * 8, 8)])
def test_few_values_take_few_bytes(n_values: list[int], n_bytes: int) -> None:
    assert len(choose_joints(n_values)) == n_bytes


def test_joint_bytes_hold_the_bins_of_every_feature() -> None:
    table = few_values(np.random.default_rng(0), N_ROWS)
    dataset = binned(table)
    storage, plan = dataset.storage, dataset.plan
    assert storage.narrow.shape[1] < len(plan.features) - 8
    np.testing.assert_array_equal(storage.narrow.T, storage.narrow_by_column)
    for index, feature in enumerate(plan.features.tolist()):
        record = plan.layout[index]
        stored = storage.narrow[:, record["column"]].astype(int)
        if record["values"]:
            stored = stored // record["stride"] % record["values"]
        if record["implicit_bin"] < 0:
            np.testing.assert_array_equal(stored, binned_column(table.columns[feature], dataset.bins[feature]))
    for number, part in enumerate(plan.joints.parts):
        assert part["stride"] * part["values"] <= 256
        np.testing.assert_array_equal(
            storage.digits[number], np.arange(256) // int(part["stride"]) % int(part["values"])
        )


def test_a_missing_value_that_the_sample_does_not_show_gets_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgbm.gbdt.data.dataset.ROWS_FOR_PLAN", 300)
    flags = np.random.default_rng(1).integers(0, 2, (8, N_ROWS)).astype(float)
    table = Table(tuple(NumericColumn(flag) for flag in flags), N_ROWS)
    assert len(binned(table, sample_rows=300, seed=3).plan.narrow_columns) == 1
    seen = chosen_rows(0, N_ROWS, random_key(3, Purpose.BIN_SAMPLE), 300 / N_ROWS)
    flags[5, np.setdiff1d(np.arange(N_ROWS), seen)[700]] = np.nan
    dataset = binned(table, sample_rows=300, seed=3)
    assert dataset.plan.layout["values"].tolist() == [2, 2, 2, 2, 2, 3, 2, 0], "the last one is left alone"
    record = dataset.plan.layout[5]
    stored = dataset.storage.narrow[:, record["column"]] // int(record["stride"]) % int(record["values"])
    np.testing.assert_array_equal(stored, np.where(np.isnan(flags[5]), 2, flags[5]))


@pytest.mark.parametrize("every_row", [True, False])
def test_a_split_of_a_joint_byte_sends_rows_by_their_own_bins(every_row: bool) -> None:
    table = few_values(np.random.default_rng(2), N_ROWS)
    dataset = binned(table)
    layout, directions = dataset.plan.layout, dataset.empty_directions()
    tree = TreeNodes(np.zeros(1, NODE), np.zeros((1, 32), np.int32))
    numbers = np.arange(0, N_ROWS, 1 if every_row else 3, dtype=np.uint32)
    for index, feature in enumerate(dataset.plan.features.tolist()):
        own_bins = np.empty(N_ROWS, np.uint8)
        bins_of_rows(table.columns[feature], dataset.bins[feature], 0, N_ROWS, own_bins)
        for last_left in range(int(layout[index]["bins"]) - 1):
            missing_left = last_left % 2
            tree.nodes["feature"], tree.nodes["bin"], tree.nodes["missing_left"] = index, last_left, missing_left
            left = own_bins[numbers] <= last_left
            left[own_bins[numbers] == layout[index]["missing_bin"]] = missing_left
            by_default = fill_goes_left(layout, tree, 0, directions.goes_left)
            rows, scratch = numbers.copy(), np.empty_like(numbers)
            partition_rows(dataset.binned, index, directions, by_default, rows, scratch, 0, len(rows), every_row)
            np.testing.assert_array_equal(rows, np.concatenate([numbers[left], numbers[~left]]))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"subsample": 0.6, "subsample_freq": 1, "colsample_bynode": 0.5, "n_threads": 2},
        {"precision": "exact", "grow_policy": "depthwise"},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_model_does_not_depend_on_joints(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, object], weighted: bool
) -> None:
    random = np.random.default_rng(3)
    table = few_values(random, N_ROWS)
    target = random.normal(size=N_ROWS)
    for column, bins in zip(table.columns, binned(table).bins, strict=True):
        target += random.normal() * np.asarray(binned_column(column, bins))
    weight = random.random(N_ROWS) if weighted else None
    joint = model_bytes(table, target, weight, **more)
    apart(monkeypatch)
    assert not len(binned(table).plan.joints.parts)
    assert model_bytes(table, target, weight, **more) == joint


def model_bytes(
    table: Table, target: npt.NDArray[np.float64], weight: npt.NDArray[np.float64] | None, **more: object
) -> bytes:
    parameters = TrainParameters(
        n_estimators=8, num_leaves=24, min_child_samples=3, cat_smooth=1.0, min_data_per_group=3, **more
    )
    rows = Rows(table, target, weight)
    return train(parameters, BinningParameters(), rows, ObjectiveSettings("regression")).booster.to_bytes()
