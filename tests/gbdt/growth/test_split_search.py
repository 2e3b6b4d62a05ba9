"""The best split of a node is the one that trying them all finds: gain, feature, bin, categories, direction, ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, Table
from dmlgbm.gbdt.growth.grower import TreeGrower
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.growth.quantisation import Quantised
from dmlgbm.gbdt.growth.sampling import chosen_features
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.threads import Workers
from dmlgbm.gbdt.training import train
from tests.reference import trees as naive
from tests.reference.trees import Problem, Split, request_for, whole_numbers

IntArray = npt.NDArray[np.int64]
# How sums are kept: (hessians given, precision, rows up to which a node is packed or None for the usual).
FORMS = {
    "packed": (True, "fast", None),
    "wide": (True, "fast", 0),
    "two words": (True, "exact", None),
    "counts": (False, "fast", None),
    "wide counts": (False, "fast", 0),
}
FREE = {"min_child_samples": 1, "min_child_weight": 1.0, "cat_smooth": 0.0, "cat_l2": 0.0, "min_data_per_group": 1}


def numeric(random: np.random.Generator, n_rows: int) -> NumericColumn:
    values = random.integers(0, random.integers(2, 9), n_rows).astype(np.float64)
    values[random.random(n_rows) < random.choice([0.0, 0.3])] = np.nan
    return NumericColumn(values)


def rare(random: np.random.Generator, n_rows: int, share: float = 0.15) -> NumericColumn:
    """Mostly 1, so that several of these share a column or become sparse entries."""
    return NumericColumn(np.where(random.random(n_rows) < share, random.integers(0, 4, n_rows), 1))


def categorical(random: np.random.Generator, n_rows: int, n_categories: int) -> CategoricalColumn:
    codes = random.integers(-1, n_categories, n_rows).astype(np.int16)
    return CategoricalColumn(codes, tuple(range(n_categories)))


def binned(columns: Sequence[Column], n_rows: int) -> tuple[Table, Dataset]:
    table = Table(tuple(columns), n_rows)
    with Workers(1) as workers:
        return table, bin_table(table, BinningParameters(), workers)


def problem_of(
    random: np.random.Generator, columns: Sequence[Column], n_rows: int, form: str, parameters: dict[str, Any]
) -> tuple[Problem, Dataset, Quantised]:
    """Small gradients: whatever is computed from them in float64 without l1 is rounded once, so ties stay ties."""
    with_hessians, precision, packed_rows = FORMS[form]
    table, dataset = binned(columns, n_rows)
    gradients = random.integers(-8, 9, n_rows)
    hessians = random.integers(1, 5, n_rows) if with_hessians else np.ones(n_rows, np.int64)
    quantised = whole_numbers(gradients, hessians if with_hessians else None, precision)
    if packed_rows is not None:
        packing = quantised.packing.copy()
        packing["packed_rows"], packing["block_rows"] = packed_rows, 7
        quantised = replace(quantised, packing=packing)
    problem = Problem(
        naive.binned_features(table, dataset), gradients, hessians, TrainParameters(num_leaves=2, **(FREE | parameters))
    )
    return problem, dataset, quantised


def grown(problem: Problem, dataset: Dataset, quantised: Quantised, tree: int = 0) -> GrownTree:
    with Workers(1) as workers, TreeGrower(dataset, problem.parameters, workers) as grower:
        return grower.grow(request_for(grower, quantised, tree), None)


def found_split(problem: Problem, tree: GrownTree) -> Split | None:
    """The root's split, in the words of the reference, with the gain as the engine computed it."""
    root = tree.nodes[0]
    if len(tree.splits) == 0:
        return None
    feature = problem.features[int(root["feature"])]
    if root["bin"] < 0:
        left_bins = frozenset(tree.tree.categories[0, : root["n_categories"]].tolist())
    else:
        left_bins = frozenset(range(int(root["bin"]) + 1))
        left_bins |= {feature.missing_bin} if root["missing_left"] else set()
    missing_left = feature.missing_bin in left_bins
    return Split(Fraction(float(root["gain"])), int(root["feature"]), int(root["bin"]), missing_left, left_bins)


def check(problem: Problem, tree: GrownTree, exact_ties: bool, features: Sequence[int] | None = None) -> None:
    rows = range(len(problem.gradients))
    splits = list(naive.allowed_splits(problem, rows, features))
    expected, found = naive.best_split(problem, rows, features), found_split(problem, tree)
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    assert float(found.gain) == pytest.approx(float(expected.gain), rel=1e-9, abs=1e-9)
    best = [replace(split, gain=Fraction(0)) for split in splits if split.gain == expected.gain]
    assert replace(found, gain=Fraction(0)) in (best[:1] if exact_ties else best)
    left, right = naive.sides(problem, rows, found)
    root = tree.nodes[0]
    assert (root["left_gradient"], root["left_hessian"], root["left_count"]) == naive.sums(problem, left)
    assert [len(left), len(right)] == tree.leaf_ranges()[1].tolist()
    assert tree.rows.tolist() == [*left, *right]


def not_a_tie_with_nothing(problem: Problem) -> bool:
    """Whether float64 must find the same splits worth their while as fractions do."""
    least = replace(problem, parameters=replace(problem.parameters, min_split_gain=0.0))
    gains = [split.gain for split in naive.allowed_splits(least, range(len(problem.gradients)))]
    best = max(gains, default=Fraction(1))
    limit = Fraction(problem.parameters.min_split_gain)
    return abs(best - limit) > Fraction(1, 10**6) * (1 + limit) and best > Fraction(1, 10**6)


rule_strategy = st.fixed_dictionaries(
    {
        "min_child_samples": st.sampled_from([0, 1, 2, 5, 15]),
        "min_child_weight": st.sampled_from([0.0, 1.0, 6.0, 40.0]),
        "reg_lambda": st.sampled_from([0.0, 1.0, 16.0]),
        "min_split_gain": st.sampled_from([0.0, 0.0, 8.0]),
    }
)


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(FORMS)), st.integers(2, 40), rule_strategy)
def test_thresholds(seed: int, form: str, n_rows: int, rules: dict[str, float]) -> None:
    random = np.random.default_rng(seed)
    columns = [numeric(random, n_rows) for _ in range(3)] + [rare(random, n_rows) for _ in range(3)]
    problem, dataset, quantised = problem_of(random, columns, n_rows, form, rules)
    assume(not_a_tie_with_nothing(problem))
    check(problem, grown(problem, dataset, quantised), exact_ties=True)


@pytest.mark.parametrize("n_rows", [60, 131, 250])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rules", [{}, {"min_child_samples": 15, "min_child_weight": 6.0, "reg_lambda": 1.0}])
def test_thresholds_among_many_bins(form: str, n_rows: int, rules: dict[str, float]) -> None:
    random = np.random.default_rng([n_rows, len(rules)])
    values = random.normal(size=(4, n_rows))
    values[2:, random.random(n_rows) < 0.2] = np.nan
    problem, dataset, quantised = problem_of(
        random, [NumericColumn(column) for column in values], n_rows, form, {**FREE, **rules}
    )
    check(problem, grown(problem, dataset, quantised), exact_ties=True)


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(FORMS)), st.sampled_from([0.5, 3.0, 20.0]), rule_strategy)
def test_thresholds_with_l1(seed: int, form: str, l1: float, rules: dict[str, float]) -> None:
    random = np.random.default_rng(seed)
    columns = [numeric(random, 30) for _ in range(3)]
    problem, dataset, quantised = problem_of(random, columns, 30, form, rules | {"reg_alpha": l1})
    assume(not_a_tie_with_nothing(problem))
    check(problem, grown(problem, dataset, quantised), exact_ties=False)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted(FORMS)),
    st.sampled_from([2, 4, 5, 12]),
    rule_strategy,
    st.fixed_dictionaries(
        {
            "max_cat_to_onehot": st.sampled_from([0, 4, 12]),
            "max_cat_threshold": st.sampled_from([1, 3, 32]),
            "cat_smooth": st.sampled_from([0.0, 1.5, 4.0]),
            "cat_l2": st.sampled_from([0.0, 10.0]),
            "min_data_per_group": st.sampled_from([0, 1, 6]),
            "reg_alpha": st.sampled_from([0.0, 2.0]),
        }
    ),
)
def test_categories(
    seed: int, form: str, n_categories: int, rules: dict[str, float], category_rules: dict[str, float]
) -> None:
    random = np.random.default_rng(seed)
    columns = [categorical(random, 40, n_categories), categorical(random, 40, 3), rare(random, 40)]
    problem, dataset, quantised = problem_of(random, columns, 40, form, rules | category_rules)
    assume(not_a_tie_with_nothing(problem))
    check(problem, grown(problem, dataset, quantised), exact_ties=False)


@pytest.mark.property_long
@pytest.mark.timeout(900)
@settings(max_examples=1000)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(FORMS)), rule_strategy)
def test_all_kinds_of_features_many_times(seed: int, form: str, rules: dict[str, float]) -> None:
    random = np.random.default_rng(seed)
    n_rows = int(random.integers(2, 80))
    columns: list[Column] = [numeric(random, n_rows), categorical(random, n_rows, 3), categorical(random, n_rows, 20)]
    columns += [rare(random, n_rows) for _ in range(8)]
    problem, dataset, quantised = problem_of(random, columns, n_rows, form, rules)
    assume(not_a_tie_with_nothing(problem))
    check(problem, grown(problem, dataset, quantised), exact_ties=False)


@pytest.mark.parametrize("form", FORMS)
def test_sparse_entries(form: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(3):
        columns = [rare(random, 300, 0.3) for _ in range(18)]
        problem, dataset, quantised = problem_of(random, columns, 300, form, {"min_child_samples": 3})
        assert dataset.plan.sparse_tiles
        check(problem, grown(problem, dataset, quantised), exact_ties=True)


def test_ties_go_to_the_lower_feature_then_missing_right_then_the_lower_bin() -> None:
    values = np.array([0.0, 0.0, 2.0, 2.0, np.nan, np.nan])
    gradients = np.array([3, 3, -3, -3, 0, 0])
    for columns in ([values, values], [values, -values]):
        table, dataset = binned([NumericColumn(column) for column in columns], 6)
        parameters = TrainParameters(num_leaves=2, **FREE)
        problem = Problem(naive.binned_features(table, dataset), gradients, np.ones(6, np.int64), parameters)
        root = grown(problem, dataset, whole_numbers(gradients, None)).nodes[0]
        assert (root["feature"], root["missing_left"], root["bin"]) == (0, 0, 0)


def test_ties_between_a_category_and_a_threshold_go_to_the_lower_feature() -> None:
    """Both features split the rows alike, so their gains are the same number, whatever its last digit."""
    random = np.random.default_rng(4)
    for _ in range(50):
        gradients, hessians = random.integers(-1000, 1001, 30), random.integers(1, 200, 30)
        values = random.integers(0, 2, 30)
        values[:2] = 0, 1
        columns = [NumericColumn(values), CategoricalColumn(values.astype(np.int8), ("a", "b"))]
        for order in (columns, columns[::-1]):
            table, dataset = binned(order, 30)
            parameters = TrainParameters(num_leaves=2, **FREE)
            problem = Problem(naive.binned_features(table, dataset), gradients, hessians, parameters)
            assert grown(problem, dataset, whole_numbers(gradients, hessians)).nodes[0]["feature"] == 0


def test_an_empty_bin_inside_a_node_leaves_the_threshold_at_its_lower_end() -> None:
    """Only rows of the bag count: bins 1 and 2 are empty, so thresholds 0, 1 and 2 are alike."""
    values = np.array([0.0, 1.0, 2.0, 3.0])
    _, dataset = binned([NumericColumn(values)], 4)
    parameters = TrainParameters(num_leaves=2, **FREE)
    with Workers(1) as workers, TreeGrower(dataset, parameters, workers) as grower:
        request = request_for(grower, whole_numbers(np.array([5, 9, 9, -5]), None))
        tree = grower.grow(request, np.array([0, 3], np.uint32))
    assert tree.nodes[0]["bin"] == 0


def test_missing_values_alone_can_be_split_off() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, np.nan, np.nan])
    gradients = np.array([1, 1, 1, 1, -9, -9])
    _, dataset = binned([NumericColumn(values)], 6)
    parameters = TrainParameters(num_leaves=2, **FREE)
    problem = Problem((), gradients, np.ones(6, np.int64), parameters)
    root = grown(problem, dataset, whole_numbers(gradients, None)).nodes[0]
    assert (root["bin"], root["missing_left"], root["left_count"]) == (3, 0, 4)


def test_missing_values_that_were_never_met_follow_the_larger_side() -> None:
    parameters = TrainParameters(num_leaves=2, **FREE)
    for n_low, expected in ((2, 0), (4, 1), (3, 1)):
        values = np.repeat([0.0, 1.0], [n_low, 6 - n_low])
        gradients = np.where(values == 0.0, 5, -5)
        _, dataset = binned([NumericColumn(values)], 6)
        problem = Problem((), gradients, np.ones(6, np.int64), parameters)
        assert grown(problem, dataset, whole_numbers(gradients, None)).nodes[0]["missing_left"] == expected


@pytest.mark.parametrize("n_rows", [10, 11])
def test_min_child_samples_is_exact(n_rows: int) -> None:
    values = np.arange(n_rows, dtype=np.float64)
    gradients = np.where(values == 0, 100, 0)
    for least in (1, 3, 5, 6):
        parameters = {"min_child_samples": least}
        problem = Problem(
            (), gradients, np.ones(n_rows, np.int64), TrainParameters(num_leaves=2, **(FREE | parameters))
        )
        _, dataset = binned([NumericColumn(values)], n_rows)
        tree = grown(problem, dataset, whole_numbers(gradients, None))
        assert tree.leaf_ranges()[1].tolist() == ([least, n_rows - least] if 2 * least <= n_rows else [n_rows])


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.9])
def test_a_tree_may_use_a_share_of_the_features(share: float) -> None:
    chosen = [chosen_features(20, share, seed=0, tree=tree) for tree in range(200)]
    assert {len(c) for c in chosen} == {round(20 * share)}
    assert all(np.all(np.diff(c) > 0) for c in chosen)
    used = np.bincount(np.concatenate(chosen), minlength=20) / 200
    assert used.min() > 0.5 * share
    assert len({c.tobytes() for c in chosen}) > 10


@pytest.mark.parametrize("parameters", [{"colsample_bytree": 0.4}, {"colsample_bynode": 0.4}])
def test_sampled_features_are_the_only_ones_searched(parameters: dict[str, float]) -> None:
    """Whichever split is found is the best one among the two features of five that were drawn."""
    random = np.random.default_rng(1)
    columns = [numeric(random, 60) for _ in range(5)]
    problem, dataset, quantised = problem_of(random, columns, 60, "packed", parameters)
    rows = range(60)
    best_of = {f: naive.best_split(problem, rows, [f]) for f in range(5)}
    order = sorted(best_of, key=lambda f: best_of[f].gain, reverse=True)
    found = []
    for tree in range(200):
        split = found_split(problem, grown(problem, dataset, quantised, tree))
        found.append(split.feature)
        assert replace(split, gain=best_of[split.feature].gain) == best_of[split.feature]
    # Of two features out of five, the best one of all is drawn 4 times in 10, the second best wins 3 times in 10, ...
    shares = np.bincount(found, minlength=5)[order] / 200
    np.testing.assert_allclose(shares, [0.4, 0.3, 0.2, 0.1, 0.0], atol=0.1)
    assert shares[4] == 0.0


def test_nodes_of_one_tree_draw_different_features() -> None:
    random = np.random.default_rng(2)
    values = random.normal(size=(2000, 8))
    table = Table(tuple(NumericColumn(values[:, f]) for f in range(8)), 2000)
    settings = ObjectiveSettings("regression")
    parameters = TrainParameters(n_estimators=1, num_leaves=31, colsample_bynode=0.125)
    result = train(parameters, BinningParameters(), Rows(table, values.sum(axis=1)), settings)
    assert len(set(result.booster.trees[0].feature.tolist())) >= 5


@pytest.mark.parametrize("precision", ["fast", "exact"])
def test_rows_that_are_all_alike_are_not_split(precision: str) -> None:
    """Two groups of rows: one split explains everything, and rounding errors are no gain."""
    random = np.random.default_rng(3)
    values = random.normal(size=(500, 3))
    values[:, 0] = values[:, 0] > 0.3
    table = Table(tuple(NumericColumn(values[:, f]) for f in range(3)), 500)
    parameters = TrainParameters(n_estimators=3, min_child_samples=1, precision=precision)
    settings = ObjectiveSettings("regression")
    result = train(parameters, BinningParameters(), Rows(table, 0.1 + 0.3 * values[:, 0]), settings)
    assert [tree.n_leaves for tree in result.booster.trees] == [2, 2, 2]
