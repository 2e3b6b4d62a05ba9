"""All columns on a way from the root are in one group, and every split is the best one of those that may be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.training import train
from tests.gbdt.growth.test_split_search import FREE, grown, numeric, problem_of, rare
from tests.reference import trees as naive

Groups = tuple[tuple[int, ...], ...]
N_FEATURES = 6
# More than fit into a word.
PAIRS = tuple((a, b) for a in range(13) for b in range(a))


def ways(tree: Tree) -> Iterator[set[int]]:
    """The columns on the way to each leaf."""

    def below(node: int, on_the_way: set[int]) -> Iterator[set[int]]:
        if node < 0:
            yield on_the_way
            return
        for child in (tree.left[node], tree.right[node]):
            yield from below(int(child), on_the_way | {int(tree.feature[node])})

    yield from below(0 if tree.n_nodes else -1, set())


def fitted(n_features: int, groups: Groups | None, n_rows: int = 1500, **options: Any) -> Any:
    random = np.random.default_rng(0)
    x = random.normal(size=(n_rows, n_features))
    target = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2] * x[:, 3]) + x[:, 4] * x[:, 0] + 0.1 * random.normal(size=n_rows)
    table = Table(tuple(NumericColumn(np.ascontiguousarray(x[:, k])) for k in range(n_features)), n_rows)
    parameters = TrainParameters(**{"n_estimators": 6, "interaction_constraints": groups} | options)
    rows = Rows(table, target)
    return train(parameters, BinningParameters(), rows, ObjectiveSettings("regression")).booster


group_strategy = st.lists(st.lists(st.integers(0, N_FEATURES - 1), min_size=1, max_size=4, unique=True), max_size=4)


@given(group_strategy, st.sampled_from([1.0, 0.4]), st.sampled_from(["leafwise", "depthwise"]))
def test_every_way_is_within_a_group(listed: list[list[int]], share: float, policy: str) -> None:
    groups = (*(tuple(group) for group in listed), *((feature,) for feature in range(N_FEATURES)))
    model = fitted(N_FEATURES, groups, 300, n_estimators=3, colsample_bynode=share, grow_policy=policy)
    assert all(any(way <= set(group) for group in groups) for tree in model.trees for way in ways(tree))


def test_many_groups_take_several_words() -> None:
    model = fitted(13, PAIRS)
    lengths = {len(way) for tree in model.trees for way in ways(tree)}
    assert lengths == {1, 2} or lengths == {2}
    assert any(len(way) > 2 for tree in fitted(13, None).trees for way in ways(tree))


def test_a_sample_of_columns_is_drawn_from_those_that_may_be_used() -> None:
    """Otherwise a node of two allowed columns among 13 would mostly have none to split at."""
    model = fitted(13, PAIRS, colsample_bynode=0.3)
    assert min(tree.n_leaves for tree in model.trees) == 31


def test_threads_do_not_change_the_model() -> None:
    options = {"num_leaves": 100, "n_estimators": 3}
    models = [fitted(13, PAIRS, 40_001, n_threads=n_threads, **options) for n_threads in (1, 2, 3)]
    assert len({model.to_bytes() for model in models}) == 1


@given(st.integers(0, 2**32 - 1), st.lists(st.lists(st.integers(0, 4), min_size=1), min_size=1, max_size=3))
def test_every_split_is_the_best_of_the_columns_that_may_be_used(seed: int, listed: list[list[int]]) -> None:
    random = np.random.default_rng(seed)
    columns = [numeric(random, 50) for _ in range(3)] + [rare(random, 50) for _ in range(2)]
    problem, dataset, quantised = problem_of(random, columns, 50, "packed", FREE)
    groups = (*map(tuple, listed), (0,), (1,), (2,), (3,), (4,))
    problem = replace(problem, parameters=replace(problem.parameters, num_leaves=7, interaction_constraints=groups))
    tree = grown(problem, dataset, quantised)
    nodes, original = tree.nodes, dataset.plan.features.tolist()
    here: dict[int, tuple[tuple[int, ...], set[int]]] = {0: (tuple(range(50)), set())}
    for node in tree.splits.tolist():
        rows, way = here.pop(node)
        allowed = {column for group in groups if way <= set(group) for column in group}
        features = [number for number, column in enumerate(original) if column in allowed]
        best = naive.best_split(problem, rows, features)
        assert best is not None
        number = int(nodes["feature"][node])
        assert original[number] in allowed
        assert float(nodes["gain"][node]) == pytest.approx(float(best.gain), rel=1e-9)
        feature = problem.features[number]
        left_bins = set(range(int(nodes["bin"][node]) + 1))
        left_bins |= {feature.missing_bin} if nodes["missing_left"][node] else set()
        left = tuple(row for row in rows if int(feature.bins[row]) in left_bins)
        right = tuple(row for row in rows if row not in set(left))
        first = int(nodes["left"][node])
        here |= {first + k: (side, way | {original[number]}) for k, side in enumerate((left, right))}


@pytest.mark.parity
def test_held_out_error_beside_lightgbm() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    groups = [[0, 1], [2, 3], [0, 4]]
    random = np.random.default_rng(1)
    x = random.normal(size=(8000, 5))
    truth = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2] * x[:, 3]) + x[:, 4] * x[:, 0]
    y = truth + 0.3 * random.normal(size=8000)
    first, second = (
        Table(tuple(NumericColumn(np.ascontiguousarray(column)) for column in half.T), 4000)
        for half in (x[:4000], x[4000:])
    )
    parameters = TrainParameters(interaction_constraints=tuple(map(tuple, groups)))
    model = train(parameters, BinningParameters(), Rows(first, y[:4000]), ObjectiveSettings("regression")).booster
    peer = lightgbm.LGBMRegressor(interaction_constraints=groups, verbose=-1, n_jobs=1).fit(x[:4000], y[:4000])
    ours = np.mean((model.raw_scores(second)[0] - truth[4000:]) ** 2)
    assert ours < 1.1 * np.mean((peer.predict(x[4000:]) - truth[4000:]) ** 2)
