"""With `extra_trees` a node takes the best of one threshold a column, drawn by (seed, tree, node, column)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.gbdt.growth.split_rules import node_key
from dmlgbm.gbdt.kernels.elementwise_math import hash_counter
from dmlgbm.gbdt.kernels.threshold_search import FIRST_DRAW
from tests.gbdt.growth.test_split_search import FORMS, categorical, grown, numeric, problem_of, rare
from tests.reference import trees as naive
from tests.reference.trees import Problem


def gain_of_drawn(problem: Problem, number: int, missing_left: bool, tree: int) -> Fraction | None:
    """The gain of the threshold that is drawn for a column of the root, with missing values on one side."""
    feature, rows = problem.features[number], range(len(problem.gradients))
    tried = [
        naive._gain(problem, rows, feature, left_bins, Fraction(0))
        for _, left_bins, _ in naive._thresholds(rows, feature)
    ]
    n_missing = sum(int(feature.bins[row]) == feature.missing_bin for row in rows)
    n_right = feature.missing_bin - 1 + (1 if n_missing else 0)
    own = tried[n_right:] if missing_left else tried[:n_right]
    allowed = [gain for gain in own if gain is not None]
    if not allowed:
        return None
    key = node_key(problem.parameters, tree)
    return allowed[int(hash_counter(key, FIRST_DRAW + np.uint64(number))) % len(allowed)]


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted(FORMS)),
    st.integers(10, 60),
    st.sampled_from([1, 4]),
    st.integers(0, 3),
)
def test_the_root_takes_the_best_of_the_drawn_thresholds(
    seed: int, form: str, n_rows: int, least: int, tree: int
) -> None:
    random = np.random.default_rng(seed)
    columns = [numeric(random, n_rows) for _ in range(3)] + [rare(random, n_rows) for _ in range(2)]
    problem, dataset, quantised = problem_of(random, columns, n_rows, form, {"min_child_samples": least})
    problem = replace(problem, parameters=replace(problem.parameters, extra_trees=True))
    found = grown(problem, dataset, quantised, tree)
    drawn = [gain_of_drawn(problem, k, side, tree) for k in range(len(problem.features)) for side in (False, True)]
    best = max((gain for gain in drawn if gain is not None), default=Fraction(0))
    if best > Fraction(1, 10**6):
        assert float(found.nodes["gain"][0]) == pytest.approx(float(best), rel=1e-9)
    else:
        assert len(found.splits) == 0


@pytest.mark.parametrize("n_categories", [3, 12])
def test_one_set_of_categories_is_tried_a_direction(n_categories: int) -> None:
    """Over many trees the drawn sets differ, and none gains more than the best of all."""
    random = np.random.default_rng(1)
    options: dict[str, Any] = {"min_child_samples": 1, "min_data_per_group": 1, "cat_smooth": 0.0}
    problem, dataset, quantised = problem_of(random, [categorical(random, 300, n_categories)], 300, "packed", options)
    best = naive.best_split(problem, range(300))
    assert best is not None
    problem = replace(problem, parameters=replace(problem.parameters, extra_trees=True))
    found = [grown(problem, dataset, quantised, tree) for tree in range(40)]
    gains = [float(each.nodes["gain"][0]) for each in found if len(each.splits)]
    assert len({round(gain, 6) for gain in gains}) > 1
    assert max(gains) == pytest.approx(float(best.gain), rel=1e-9)


def table(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n_rows, 6))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * random.normal(size=n_rows)


def test_seeds_draw_and_threads_do_not() -> None:
    x, y = table(40_001)
    options: dict[str, Any] = {"n_estimators": 3, "num_leaves": 60, "extra_trees": True}
    first = DMLGBMRegressor(**options, n_jobs=1).fit(x, y).booster_.to_bytes()
    assert DMLGBMRegressor(**options, n_jobs=2).fit(x, y).booster_.to_bytes() == first
    assert DMLGBMRegressor(**options, random_state=1).fit(x, y).booster_.to_bytes() != first
    assert DMLGBMRegressor(**{**options, "extra_trees": False}).fit(x, y).booster_.to_bytes() != first
    assert DMLGBMRegressor(n_estimators=3, num_leaves=60, extra_tree=np.True_).fit(x, y).booster_.to_bytes() == first


def test_a_value_that_is_no_flag_is_named() -> None:
    with pytest.raises(TypeError, match="extra_trees must be True or False"):
        DMLGBMClassifier(extra_trees=1).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parity
def test_held_out_error_beside_lightgbm() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    (x, y), (x_test, y_test) = table(6000), table(6000, 1)
    model = DMLGBMRegressor(extra_trees=True, n_jobs=1).fit(x, y)
    peer = lightgbm.LGBMRegressor(extra_trees=True, verbose=-1, n_jobs=1).fit(x, y)
    assert np.mean((model.predict(x_test) - y_test) ** 2) < 1.05 * np.mean((peer.predict(x_test) - y_test) ** 2)
