"""Boosting with dropout: trees fit what the iterations that are kept leave over, and weigh what the rules say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.boosting.dropout import TreeWeights, settled_trees
from dmlgbm.gbdt.kernels.binning import chosen_rows
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key, random_shares
from tests.gbdt.ranks.test_rank_equality import make_fit

N_ROWS = 800


def weights_of(n_iterations: int, n_before: int = 0, **options: Any) -> tuple[list[float], list[tuple[int, ...]]]:
    """The weights after so many iterations, and what each of them left out."""
    weights = TreeWeights(TrainParameters(boosting_type="dart", **options), n_before)
    left_out = []
    for _ in range(n_iterations):
        step = weights.next_step()
        weights.take(step)
        left_out.append(step.left_out)
    return weights.weights, left_out


def slow_model(fit: Any) -> tuple[list[list[Any]], list[float]]:
    """Every iteration is a fit of its own, which starts from what the iterations that are kept predict."""
    parameters, rows = fit.parameters, fit.rows
    plain = replace(parameters, boosting_type="gbdt", n_estimators=1)
    base = replace(fit, parameters=plain).locally().booster
    weights = TreeWeights(parameters, 0)
    iterations: list[list[Any]] = []
    for _ in range(parameters.n_estimators):
        step = weights.next_step()
        scores = np.repeat(base.base_scores[:, None], rows.n_rows, axis=1)
        for number, trees in enumerate(iterations):
            if number not in step.left_out:
                model = replace(base, trees=tuple(trees), base_scores=np.zeros(base.n_outputs))
                scores += weights.weights[number] * model.raw_scores(rows.table)
        one = replace(fit, parameters=plain, rows=replace(rows, init_score=scores))
        iterations.append(list(one.locally().booster.trees))
        weights.take(step)
    return iterations, weights.weights


@pytest.mark.parametrize("objective", ["regression", "regression_l1", "binary", "multiclass"])
@pytest.mark.parametrize("xgboost_dart_mode", [False, True])
def test_model_is_that_of_slow_boosting_with_dropout(objective: str, xgboost_dart_mode: bool) -> None:
    options = {"boosting_type": "dart", "n_estimators": 7, "skip_drop": 0.1, "drop_rate": 0.5, "precision": "exact"}
    fit = make_fit(objective, {**options, "xgboost_dart_mode": xgboost_dart_mode, "num_leaves": 6}, n_rows=N_ROWS)
    found = fit.locally().booster
    iterations, weights = slow_model(fit)
    assert sum(weight != 1.0 for weight in weights) >= 4
    expected = [(tree, weight) for trees, weight in zip(iterations, weights, strict=True) for tree in trees]
    for tree, (raw, weight) in zip(found.trees, expected, strict=True):
        np.testing.assert_array_equal(tree.feature, raw.feature)
        np.testing.assert_array_equal(tree.threshold, raw.threshold)
        np.testing.assert_allclose(tree.leaf_value, weight * raw.leaf_value, rtol=1e-6, atol=1e-9)


@given(
    n_iterations=st.integers(1, 40),
    drop_rate=st.floats(0, 1),
    skip_drop=st.floats(0, 1),
    max_drop=st.integers(-1, 5),
    uniform_drop=st.booleans(),
    n_before=st.integers(0, 3),
)
def test_weights_are_those_of_the_rules(n_iterations: int, n_before: int, max_drop: int, **options: Any) -> None:
    rate = 0.3
    weights, left_out = weights_of(n_iterations, n_before, max_drop=max_drop, learning_rate=rate, **options)
    like_xgboost, same = weights_of(
        n_iterations, n_before, max_drop=max_drop, learning_rate=rate, xgboost_dart_mode=True, **options
    )
    if options["uniform_drop"]:
        assert left_out == same, "what is left out does not depend on how it is weighed"
    for own_weights, own_left_out, more in ((weights, left_out, 1.0), (like_xgboost, same, rate)):
        expected: list[float] = []
        for dropped in own_left_out:
            k = len(dropped)
            assert list(dropped) == sorted(set(dropped))
            assert all(0 <= iteration < len(expected) for iteration in dropped)
            assert max_drop <= 0 or k <= max_drop
            expected = [w * k / (k + more) if i in dropped else w for i, w in enumerate(expected)]
            expected.append(1.0 if k == 0 else 1.0 / (k + more))
        np.testing.assert_allclose(own_weights, expected, rtol=1e-12)


def test_shares_of_what_is_left_out() -> None:
    _, left_out = weights_of(400, skip_drop=0.25, drop_rate=0.2, max_drop=0, uniform_drop=True)
    assert 0.2 < np.mean([not dropped for dropped in left_out[100:]]) < 0.32
    shares = [len(dropped) / number for number, dropped in enumerate(left_out) if number >= 100 and dropped]
    assert math.isclose(np.mean(shares), 0.2, rel_tol=0.05)
    weights, _ = weights_of(400, skip_drop=0.5, drop_rate=0.1, max_drop=0)
    by_weight = TreeWeights(TrainParameters(boosting_type="dart", skip_drop=0.0, drop_rate=0.3, max_drop=0), 0)
    by_weight.weights = weights
    chosen = by_weight.next_step().left_out
    assert np.mean(np.array(weights)[list(chosen)]) > 1.2 * np.mean(weights), "heavy iterations are left out more often"


def test_seed_of_what_is_left_out() -> None:
    options: dict[str, Any] = {"skip_drop": 0.0, "drop_rate": 0.3}
    assert weights_of(30, seed=5, **options) == weights_of(30, seed=9, drop_seed=5, **options)
    assert weights_of(30, seed=5, **options) != weights_of(30, seed=9, **options)


@pytest.mark.parametrize("options", [{"drop_rate": 0.0}, {"skip_drop": 1.0}])
def test_without_dropout_the_model_is_that_of_plain_boosting(options: dict[str, float]) -> None:
    plain = make_fit("binary", {"subsample": 0.7, "subsample_freq": 1, "n_estimators": 6}, n_rows=N_ROWS)
    dart = replace(plain, parameters=replace(plain.parameters, boosting_type="dart", **options))
    assert dart.locally().booster.to_bytes() == plain.locally().booster.to_bytes()


def test_trees_of_a_model_that_is_gone_on_from_stay_as_they_are() -> None:
    fit = make_fit("binary", {"boosting_type": "dart", "skip_drop": 0.0, "drop_rate": 0.8, "n_estimators": 5})
    trees = fit.locally().booster.trees
    assert list(settled_trees((), 1, fit.parameters, 3)) == []
    settled = settled_trees(trees, 1, fit.parameters, 3)
    weights, _ = weights_of(5, 3, skip_drop=0.0, drop_rate=0.8)
    for tree, own, weight in zip(trees, settled, weights, strict=True):
        np.testing.assert_array_equal(own.leaf_value, tree.leaf_value * weight)


def test_random_shares_are_the_hashes_that_kernels_draw_rows_by() -> None:
    key = random_key(3, Purpose.DROPPED_ITERATIONS, 8)
    shares = random_shares(key, 1_000)
    for share in (0.01, 0.3, 0.99):
        np.testing.assert_array_equal(np.flatnonzero(shares < share), chosen_rows(0, 1_000, key, share))
