"""What places add to grades is learnt as LightGBM learns it, wherever the rows are, and kept from the trees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dmlgbm import DMLGBMRanker
from dmlgbm.gbdt.objectives import ObjectiveSettings, objective_for
from dmlgbm.gbdt.objectives.ranking import LambdaRank
from tests.gbdt.objectives.test_objectives import derivatives, sample, starts_of_queries
from tests.gbdt.ranks.test_rank_equality import SETTINGS, deal_at_queries, make_fit
from tests.gbdt.ranks.test_rank_resume import checkpoints_of
from tests.reference import objectives as naive
from tests.reference.rank_fits import over_ranks

N_PLACES = 10


def clicks(n_queries: int = 200, seed: int = 0) -> tuple[Any, Any, Any, Any, list[int]]:
    """Rows, clicks, what rows are worth, and the places at which they were shown: the first are clicked more."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_queries * N_PLACES, 4))
    worth = X[:, 0] + X[:, 1] ** 2
    shown = np.concatenate([np.argsort(np.argsort(-column)) for column in X[:, 2].reshape(-1, N_PLACES)])
    seen = random.random(len(X)) < 1.0 / (1.0 + shown)
    y = seen & (worth + 0.5 * random.normal(size=len(X)) > 1.0)
    return X, y.astype(int), worth, shown, [N_PLACES] * n_queries


@pytest.mark.parametrize("name", ["lambdarank", "pairwise"])
@pytest.mark.parametrize("weighted", [False, True, "whole"])
def test_steps_match_the_oracle(name: str, weighted: Any) -> None:
    target, weight, score = sample(name, 400, weighted is True)
    if weighted == "whole":
        weight = np.random.default_rng(1).integers(0, 4, 400).astype(float)
    starts = starts_of_queries(400)
    position = np.concatenate([np.arange(stop - start) for start, stop in pairwise(starts)]) % 7
    settings = ObjectiveSettings(name, learning_rate_of_biases=0.3, position_bias_regularization=0.02)
    objective = objective_for(
        settings, target=target, weight=weight, group_starts=starts, position=position, most_repeated_rows=10_000
    )
    plain = objective_for(settings, target=target, weight=weight, group_starts=starts, most_repeated_rows=10_000)
    assert isinstance(objective, LambdaRank)
    assert objective.biases is not None
    assert (objective.weights.repeats is not None) == (weighted == "whole")
    factor = weight if weighted == "whole" else np.ones(400)
    biases = np.zeros(7)
    for _ in range(3):
        expected = derivatives(plain, score + biases[position])
        for own, other in zip(derivatives(objective, score), expected, strict=True):
            np.testing.assert_allclose(own, other, 1e-5, 1e-7)
        gradient, hessian = (values[0] * factor for values in expected)
        biases = naive.position_biases_after(biases, list(position), gradient, hessian, 0.3, 0.02)
        np.testing.assert_allclose(objective.biases.values, biases, 1e-6, 1e-9)
        score = score * 0.9
    assert np.abs(biases).max() > 0.1


def test_sums_over_places_have_no_order() -> None:
    target, _, score = sample("lambdarank", 400)
    weight = np.exp(np.random.default_rng(1).normal(size=400) * 8.0)  # so that floating-point sums would be rounded
    order = np.random.default_rng(0).permutation(40)
    rows = np.concatenate([np.arange(10 * query, 10 * query + 10) for query in order])
    found = []
    for own in (np.arange(400), rows):
        objective: Any = objective_for(
            ObjectiveSettings("lambdarank"),
            target=target[own],
            weight=weight[own],
            group_starts=np.arange(0, 401, 10),
            position=own % 10,
        )
        for _ in range(4):
            derivatives(objective, np.ascontiguousarray(score[:, own]))
        found.append(objective.biases.values.tobytes())
    assert found[0] == found[1]


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["data", "feature"])
@pytest.mark.parametrize("options", ["plain", "dropout with changing rates", "one-sided", "bayesian"])
def test_ranks_learn_the_same_and_go_on_with_it(options: str, mode: str) -> None:
    n_rows = 1_201
    fit = make_fit("lambdarank", SETTINGS[options] | {"n_estimators": 4}, n_rows=n_rows)
    without = fit.locally().booster.to_bytes()
    fit = replace(fit, rows=replace(fit.rows, position=np.arange(n_rows) % 20))
    expected = fit.locally().booster.to_bytes()
    assert expected != without
    deal = deal_at_queries(fit, 3)
    known, undisturbed = checkpoints_of(fit, deal, tree_learner=mode)
    assert undisturbed.booster.to_bytes() == expected
    fewer = deal_at_queries(fit, 2)
    for checkpoint in (known[1], known[3]):
        resumed = over_ranks(fit, fewer, resume=checkpoint, tree_learner=mode)
        assert {result.booster.to_bytes() for result in resumed} == {expected}


def test_trees_explain_what_places_do_not() -> None:
    X, y, _, shown, sizes = clicks()
    settings: Any = {"n_estimators": 40, "num_leaves": 15, "min_child_samples": 10, "n_jobs": 1}
    plain = DMLGBMRanker(**settings).fit(X, y, group=sizes)
    unbiased = DMLGBMRanker(**settings).fit(X, y, group=sizes, position=shown)
    test_X, _, test_worth, _, test_sizes = clicks(seed=1)
    grades = np.digitize(test_worth, [0.0, 1.0, 2.0])
    assert unbiased.score(test_X, grades, group=test_sizes) > plain.score(test_X, grades, group=test_sizes)
    # The third column decides about places and is worth nothing.
    assert unbiased.feature_importances_[2] < plain.feature_importances_[2]


def test_weightless_rows_and_rows_set_aside_take_their_places_along() -> None:
    X, y, _, shown, sizes = clicks(40)
    weight = np.repeat([1.0, 0.0, 1.0, 2.0], 100)
    kept = weight > 0
    settings: Any = {"n_estimators": 5, "num_leaves": 7}
    fitted = DMLGBMRanker(**settings).fit(X, y, group=sizes, position=shown, sample_weight=weight)
    left = {"sample_weight": weight[kept], "position": shown[kept], "group": sizes[:30]}
    assert DMLGBMRanker(**settings).fit(X[kept], y[kept], **left).booster_.to_bytes() == fitted.booster_.to_bytes()
    early = DMLGBMRanker(early_stopping=True, **settings).fit(X, y, group=sizes, position=shown)
    assert early.n_iter_ >= 1


@pytest.mark.parametrize(
    ("position", "parameters", "message"),
    [
        (np.full(50, -1), {}, "position holds -1 in row 0: positions are whole numbers from 0 to 65535"),
        (np.full(50, 0.5), {}, "position holds 0.5 in row 0"),
        (np.full(50, 70_000), {}, "position holds 70000 in row 0"),
        (np.zeros(49), {}, "position has 49 values for 50 rows"),
        (
            np.zeros(50),
            {"boosting_type": "rf"},
            "position does not fit boosting_type='rf': what places add is learnt along",
        ),
        (np.zeros(50), {"objective": "rank_xendcg"}, "position is for objectives 'lambdarank' and 'pairwise', not for"),
        (np.zeros(50), {"objective": lambda y, score: (score, score)}, "not for 'custom': leave it out"),
        (
            None,
            {"lambdarank_position_bias_regularization": -1.0},
            "lambdarank_position_bias_regularization=-1.0 is out",
        ),
    ],
)
def test_bad_positions_are_named(position: Any, parameters: dict[str, Any], message: str) -> None:
    X, y, _, _, _ = clicks(5)
    with pytest.raises(ValueError, match=message):
        DMLGBMRanker(**parameters).fit(X, y, group=[10] * 5, position=position)


@pytest.mark.parity
@pytest.mark.parametrize("regularization", [0.0, 0.5])
def test_positions_act_as_in_lightgbm(regularization: float) -> None:
    """Leaves of one split, so that rounding decides about none of them."""
    lightgbm = pytest.importorskip("lightgbm")
    X, y, _, shown, sizes = clicks(100)
    X = (X[:, :1] > 0.3).astype(float)
    common: Any = {"num_leaves": 2, "learning_rate": 0.5, "min_child_samples": 1}
    common["lambdarank_position_bias_regularization"] = regularization
    data = lightgbm.Dataset(X, y, group=sizes, position=shown.astype(np.int32))
    theirs = lightgbm.train({"objective": "lambdarank", "verbose": -1, "num_threads": 1, **common}, data, 8)
    ours = DMLGBMRanker(n_estimators=8, n_jobs=1, **common).fit(X, y, group=sizes, position=shown)
    plain = DMLGBMRanker(n_estimators=8, n_jobs=1, **common).fit(X, y, group=sizes)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), 2e-3)
    assert np.abs(ours.predict(X) / plain.predict(X) - 1.0).max() > 0.01
