"""Whole trees: the same nodes, in the same order, with the same rows as splitting lists of rows one by one."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgbm.gbdt.callbacks import TrainingState
from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, NumericColumn, Table
from dmlgbm.gbdt.growth.grower import TreeGrower
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.growth.quantisation import Quantised
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import train
from tests.reference import trees as naive
from tests.reference.trees import Problem, request_for, whole_numbers

IntArray = npt.NDArray[np.int64]
FREE = {"min_child_weight": 1.0, "cat_smooth": 1.0, "cat_l2": 1.0, "min_data_per_group": 1}


def table_of(random: np.random.Generator, n_rows: int) -> Table:
    """Numbers with and without missing values, few and many categories, and columns that share their storage."""
    gaps = np.where(random.random(n_rows) < 0.2, np.nan, random.integers(0, 6, n_rows))
    exclusive = np.eye(3)[random.integers(0, 3, n_rows)]
    columns = [NumericColumn(random.normal(size=n_rows)), NumericColumn(gaps)]
    columns += [NumericColumn(exclusive[:, k]) for k in range(3)]
    for n_categories in (3, 9):
        codes = random.integers(-1, n_categories, n_rows).astype(np.int8)
        columns.append(CategoricalColumn(codes, tuple(range(n_categories))))
    return Table(tuple(columns), n_rows)


def binned(table: Table) -> Dataset:
    with Workers(1) as workers:
        return bin_table(table, BinningParameters(), workers)


def quantised_as(form: str, gradients: IntArray, hessians: IntArray) -> Quantised:
    """Packed nodes, wide ones, or wide ones whose smaller children are packed again."""
    if form == "two words":
        return whole_numbers(gradients, hessians, "exact")
    quantised = whole_numbers(gradients, hessians, "fast")
    packing = quantised.packing.copy()
    packing["block_rows"] = 11
    packing["packed_rows"] = {"packed": packing["packed_rows"], "wide": 0, "mixed": len(gradients) // 3}[form]
    return replace(quantised, packing=packing)


def grown(
    dataset: Dataset, quantised: Quantised, parameters: TrainParameters, bag: npt.NDArray[np.uint32] | None = None
) -> GrownTree:
    with Workers(parameters.n_threads) as workers, TreeGrower(dataset, parameters, workers) as grower:
        return grower.grow(request_for(grower, quantised), bag)


def check_tree(tree: GrownTree, problem: Problem, rows: range | list[int]) -> None:
    expected_splits, expected_leaves = naive.grow(problem, rows)
    assert len(tree.splits) == len(expected_splits)
    for node, expected in zip(tree.nodes[tree.splits], expected_splits, strict=True):
        start, stop = node["start"], node["start"] + node["count"]
        assert sorted(tree.rows[start:stop].tolist()) == sorted(expected.rows)
        assert (node["feature"], node["depth"]) == (expected.split.feature, expected.depth)
        assert node["gain"] == pytest.approx(float(expected.split.gain), rel=1e-6)  # a difference of larger numbers
    starts, counts = tree.leaf_ranges()
    leaves = [tuple(tree.rows[a : a + n].tolist()) for a, n in zip(starts.tolist(), counts.tolist(), strict=True)]
    assert leaves == expected_leaves
    if len(tree.splits) == 0:
        return  # a root that is too small to be split is not summed either
    for leaf, own_rows in zip(tree.nodes[tree.leaves], expected_leaves, strict=True):
        assert (leaf["gradient"], leaf["hessian"], leaf["count"]) == naive.sums(problem, own_rows)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["packed", "wide", "mixed", "two words"]),
    st.fixed_dictionaries(
        {
            "num_leaves": st.sampled_from([2, 3, 6, 12]),
            "max_depth": st.sampled_from([-1, -1, 1, 3]),
            "grow_policy": st.sampled_from(["leafwise", "depthwise"]),
            "min_child_samples": st.sampled_from([0, 1, 4]),
            "reg_lambda": st.sampled_from([0.0, 5.0]),
        }
    ),
    st.booleans(),
)
def test_the_same_tree_as_the_reference(seed: int, form: str, changes: dict[str, Any], bagged: bool) -> None:
    random = np.random.default_rng(seed)
    n_rows = int(random.integers(2, 60))
    table = table_of(random, n_rows)
    dataset = binned(table)
    # Large enough that two leaves hardly ever gain the same.
    gradients, hessians = random.integers(-1000, 1001, n_rows), random.integers(1, 200, n_rows)
    parameters = TrainParameters(**(FREE | changes))
    problem = Problem(naive.binned_features(table, dataset), gradients, hessians, parameters)
    bag = np.flatnonzero(random.random(n_rows) < 0.7).astype(np.uint32) if bagged else None
    if bag is not None and len(bag) == 0:
        bag = np.zeros(1, np.uint32)
    tree = grown(dataset, quantised_as(form, gradients, hessians), parameters, bag)
    check_tree(tree, problem, range(n_rows) if bag is None else bag.tolist())


@pytest.mark.parametrize("n_threads", [2, 3, 8])
@pytest.mark.parametrize("grow_policy", ["leafwise", "depthwise"])
@pytest.mark.parametrize("form", ["packed", "wide", "mixed", "two words"])
@pytest.mark.parametrize("num_leaves", [2, 7, 40])
@pytest.mark.parametrize("rows_worth_sharing", [1, 1000])
def test_several_threads_grow_the_same_nodes_as_one(
    monkeypatch: pytest.MonkeyPatch,
    n_threads: int,
    grow_policy: str,
    form: str,
    num_leaves: int,
    rows_worth_sharing: int,
) -> None:
    random = np.random.default_rng(num_leaves)
    table = table_of(random, 900)
    dataset = binned(table)
    quantised = quantised_as(form, random.integers(-1000, 1001, 900), random.integers(1, 200, 900))
    parameters = TrainParameters(num_leaves=num_leaves, grow_policy=grow_policy, min_child_samples=2, **FREE)
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._ROWS_WORTH_SHARING", rows_worth_sharing)
    for bag in (None, np.flatnonzero(random.random(900) < 0.5).astype(np.uint32)):
        alone = grown(dataset, quantised, parameters, bag)
        together = grown(dataset, quantised, replace(parameters, n_threads=n_threads), bag)
        assert described(alone) == described(together)
        assert len(alone.leaves) == num_leaves


def described(tree: GrownTree) -> list[Any]:
    """Everything that can be seen of a tree; node numbers differ between the ways of growing."""
    fields = ["start", "count", "depth", "gradient", "hessian", "path"]
    splits = [
        (*node[[*fields, "gain", "feature", "bin", "missing_left"]].item(), node_categories(tree, number))
        for number, node in zip(tree.splits, tree.nodes[tree.splits], strict=True)
    ]
    leaves = [
        # A leaf that was expanded in vain has its rows in another order.
        (*leaf[fields].item(), sorted(tree.rows[leaf["start"] : leaf["start"] + leaf["count"]].tolist()))
        for leaf in tree.nodes[tree.leaves]
    ]
    return [splits, leaves]


def node_categories(tree: GrownTree, node: int) -> list[int]:
    return (
        tree.tree.categories[node, : tree.nodes[node]["n_categories"]].tolist() if tree.nodes[node]["bin"] < 0 else []
    )


@pytest.mark.parametrize("seed", range(5))
def test_equal_gains_are_split_in_the_same_order_by_several_threads(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Sixteen copies of the same rows below other splits: ties, settled by paths and not by the numbers of nodes."""
    n_rows = 256
    block, within = np.arange(n_rows) // 16, np.arange(n_rows) % 16
    dataset = binned(Table((NumericColumn(block), NumericColumn(within)), n_rows))
    offsets = np.random.default_rng(seed).permutation(16) * 50
    quantised = whole_numbers(offsets[block] + np.where(within < 8, -1, 1), None)
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    for num_leaves in (18, 22, 27, 31):
        parameters = TrainParameters(num_leaves=num_leaves, min_child_samples=1)
        alone, *together = (
            described(grown(dataset, quantised, replace(parameters, n_threads=n_threads))) for n_threads in (1, 2, 3)
        )
        assert [alone, alone] == together
        gains = grown(dataset, quantised, parameters)
        assert len(set(gains.nodes["gain"][gains.splits[15:]].tolist())) == 1


@pytest.mark.parametrize("n_threads", [1, 3])
def test_one_grower_grows_one_tree_after_the_other(monkeypatch: pytest.MonkeyPatch, n_threads: int) -> None:
    """What an earlier, larger tree leaves in the buffers does not show in the next one."""
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    random = np.random.default_rng(4)
    dataset = binned(table_of(random, 300))
    parameters = TrainParameters(num_leaves=20, min_child_samples=2, **FREE)
    words = [quantised_as("mixed", random.integers(-999, 999, 300), random.integers(1, 200, 300)) for _ in range(3)]
    words[1] = quantised_as("mixed", np.where(np.arange(300) == 0, 5, 0), np.ones(300, np.int64))
    with Workers(n_threads) as workers, TreeGrower(dataset, parameters, workers) as grower:
        in_turn = [described(grower.grow(request_for(grower, quantised), None)) for quantised in words]
    assert in_turn == [described(grown(dataset, quantised, parameters)) for quantised in words]


def test_threads_that_wait_for_the_next_tree_end_with_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgbm.gbdt.growth.grower._CELLS_WORTH_A_THREAD", 1)
    waiting: list[int] = []

    def stop_in_the_middle(state: TrainingState) -> None:
        waiting.append(sum(thread.name == "dmlgbm-tree" for thread in threading.enumerate()))
        if state.iteration == 2:
            raise KeyboardInterrupt

    parameters = TrainParameters(n_estimators=3, n_threads=3, min_child_samples=2)
    table, target = table_of(np.random.default_rng(9), 300), np.arange(300.0)
    with pytest.raises(KeyboardInterrupt):
        train(
            parameters,
            BinningParameters(),
            Rows(table, target),
            ObjectiveSettings("regression"),
            callbacks=[stop_in_the_middle],
        )
    assert waiting == [2, 2]
    assert not any(thread.name == "dmlgbm-tree" for thread in threading.enumerate())


@pytest.mark.parametrize("changes", [{"num_leaves": 5}, {"max_depth": 3}, {"max_depth": 1}, {"num_leaves": 2}])
@pytest.mark.parametrize("grow_policy", ["leafwise", "depthwise"])
def test_limits_are_respected_and_reached(changes: dict[str, int], grow_policy: str) -> None:
    random = np.random.default_rng(5)
    table = table_of(random, 800)
    parameters = TrainParameters(n_estimators=3, grow_policy=grow_policy, min_child_samples=5, **(FREE | changes))
    result = train(
        parameters, BinningParameters(), Rows(table, random.normal(size=800)), ObjectiveSettings("regression")
    )
    for tree in result.booster.trees:
        if parameters.max_depth > 0:
            assert tree.depth == parameters.max_depth
        else:
            assert tree.n_leaves == parameters.num_leaves


def test_depthwise_trees_are_flat_and_leafwise_ones_gain_more_alone() -> None:
    """One half of the rows is worth splitting again and again, the other hardly."""
    random = np.random.default_rng(6)
    values = random.random((2000, 1))
    target = np.where(values[:, 0] < 0.5, 0.01 * values[:, 0], 100.0 * values[:, 0])
    table = Table((NumericColumn(values[:, 0]),), 2000)
    depths = {}
    for grow_policy in ("leafwise", "depthwise"):
        parameters = TrainParameters(n_estimators=1, num_leaves=8, grow_policy=grow_policy)
        settings = ObjectiveSettings("regression")
        depths[grow_policy] = (
            train(parameters, BinningParameters(), Rows(table, target), settings).booster.trees[0].depth
        )
    assert depths["depthwise"] == 3
    assert depths["leafwise"] > 3


@pytest.mark.parametrize("least", [1, 7, 20])
@pytest.mark.parametrize("objective", ["regression", "binary"])
def test_every_leaf_holds_the_rows_that_reach_it_and_enough_of_them(least: int, objective: str) -> None:
    random = np.random.default_rng(least)
    table = table_of(random, 700)
    parameters = TrainParameters(n_estimators=5, num_leaves=50, min_child_samples=least, **(FREE | {"cat_smooth": 0.0}))
    parameters = replace(parameters, min_child_weight=1e-3)
    target = random.integers(0, 2, 700).astype(np.float64)
    result = train(parameters, BinningParameters(), Rows(table, target), ObjectiveSettings(objective))
    leaves = result.booster.leaf_indices(table)
    for number, tree in enumerate(result.booster.trees):
        np.testing.assert_array_equal(np.bincount(leaves[:, number], minlength=tree.n_leaves), tree.leaf_count)
        assert tree.leaf_count.min() >= least
        assert tree.count[0] == 700
        for node in range(tree.n_nodes):
            below = [
                tree.count[child] if child >= 0 else tree.leaf_count[~child]
                for child in (tree.left[node], tree.right[node])
            ]
            assert tree.count[node] == sum(below)


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_tiny_tables_give_a_tree(n_rows: int) -> None:
    table = Table((NumericColumn(np.arange(n_rows)), NumericColumn(np.zeros(n_rows))), n_rows)
    parameters = TrainParameters(n_estimators=2, min_child_samples=1, learning_rate=1.0)
    target = np.arange(n_rows) * 10.0
    result = train(parameters, BinningParameters(), Rows(table, target), ObjectiveSettings("regression"))
    np.testing.assert_allclose(result.booster.raw_scores(table)[0], target)


def test_a_table_without_a_usable_column_gives_trees_of_one_leaf() -> None:
    table = Table((NumericColumn(np.zeros(30)),), 30)
    result = train(
        TrainParameters(n_estimators=2),
        BinningParameters(),
        Rows(table, np.arange(30.0)),
        ObjectiveSettings("regression"),
    )
    assert [tree.n_leaves for tree in result.booster.trees] == [1, 1]
    np.testing.assert_allclose(result.booster.raw_scores(table)[0], 14.5)


def test_trees_do_not_depend_on_the_copy_of_bins_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    table = table_of(random, 500)
    quantised = quantised_as("packed", random.integers(-1000, 1001, 500), random.integers(1, 200, 500))
    parameters = TrainParameters(num_leaves=20, min_child_samples=2, **FREE)
    with_copy = grown(binned(table), quantised, parameters)
    monkeypatch.setattr("dmlgbm.gbdt.data.row_binning._MOST_COLUMNS_COPIED", 0)
    dataset = binned(table)
    assert dataset.storage.narrow_by_column.size == 0 < dataset.storage.narrow.size
    assert described(grown(dataset, quantised, parameters)) == described(with_copy)
