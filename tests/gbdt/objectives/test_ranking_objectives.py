"""Losses of queries agree with naive oracles and with other libraries, and draw the same wherever their rows are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dmlgbm import DMLGBMRanker
from dmlgbm.gbdt.data.row_numbers import Segment
from dmlgbm.gbdt.objectives import ObjectiveSettings, objective_for
from dmlgbm.gbdt.threads import Workers
from tests.gbdt.objectives.test_objectives import NOISE_KEY, WEIGHTED, derivatives, make, sample, starts_of_queries
from tests.reference import objectives as naive

GAINS = (0.0, 1.0, 1.0, 5.0)


@pytest.mark.parametrize("name", ["lambdarank", "pairwise"])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("gains", [None, GAINS])
@WEIGHTED
def test_pairs_match_the_oracle(name: str, normalised: bool, gains: Any, weighted: bool) -> None:
    target, weight, score = sample(name, 600, weighted)
    starts = starts_of_queries(600)
    score[0, starts[10] : starts[11]] = 1.5
    target[starts[11] : starts[12]] = 0.0
    target[starts[12] : starts[13]] = 2.0
    options: Any = {"truncation_level": 4, "normalised_pairs": normalised, "label_gain": gains}
    gradients, hessians = derivatives(make(name, target, weight, group_starts=starts, **options), score)
    even = {"gains": range(4), "all_alike": True} if name == "pairwise" else {"gains": gains}
    for start, stop in pairwise(starts):
        factor = 1.0 if weight is None else weight[start:stop]
        label = list(target[start:stop].astype(int))
        gradient, hessian = naive.lambdarank_of_query(
            label, list(score[0, start:stop]), 4, normalised=normalised, **even
        )
        np.testing.assert_allclose(gradients[0, start:stop], gradient * factor, 1e-6, 1e-7)
        np.testing.assert_allclose(hessians[0, start:stop], hessian * factor, 1e-6, 1e-7)


@WEIGHTED
def test_cross_entropy_matches_the_oracle(weighted: bool) -> None:
    target, weight, score = sample("rank_xendcg", 600, weighted)
    starts = starts_of_queries(600)
    gradients, hessians = derivatives(make("rank_xendcg", target, weight, group_starts=starts), score)
    for start, stop in pairwise(starts):
        factor = 1.0 if weight is None else weight[start:stop]
        draws = [naive.drawn(int(NOISE_KEY), number) for number in range(start, stop)]
        label = list(target[start:stop].astype(int))
        gradient, hessian = naive.cross_entropy_of_query(label, list(score[0, start:stop]), draws)
        np.testing.assert_allclose(gradients[0, start:stop], gradient * factor, 1e-5, 1e-6)
        np.testing.assert_allclose(hessians[0, start:stop], hessian * factor, 1e-6, 1e-7)


def test_draws_belong_to_global_row_numbers() -> None:
    """The rows of two stretches of queries get what they get among all rows."""
    target, _, score = sample("rank_xendcg", 600)
    starts = starts_of_queries(600)
    everywhere = derivatives(make("rank_xendcg", target, group_starts=starts), score)
    first, second = slice(starts[3], starts[9]), slice(starts[15], starts[22])
    here = np.r_[first, second]
    sizes = np.concatenate([np.diff(starts[3:10]), np.diff(starts[15:23])])
    length = int(starts[9] - starts[3])
    part = objective_for(
        ObjectiveSettings("rank_xendcg"),
        target=target[here],
        weight=None,
        group_starts=np.concatenate([[0], np.cumsum(sizes)]),
        segments=(Segment(0, length, int(starts[3])), Segment(length, len(here) - length, int(starts[15]))),
    )
    for own, whole in zip(derivatives(part, np.ascontiguousarray(score[:, here])), everywhere, strict=True):
        assert own.tobytes() == np.ascontiguousarray(whole[:, here]).tobytes()


def test_each_iteration_draws_anew_and_each_seed_too() -> None:
    target, _, score = sample("rank_xendcg", 600)
    objective = make("rank_xendcg", target, group_starts=starts_of_queries(600))
    other = np.full(score.shape, np.nan, np.float32)
    with Workers(1) as workers:
        objective.compute_gradients(score, other, np.empty_like(other), workers, np.uint64(1))
    assert (derivatives(objective, score)[0] != other).mean() > 0.9

    X, y, sizes = queries(40)
    models = [DMLGBMRanker(objective="xendcg", n_estimators=3, random_state=seed) for seed in (1, 1, 2)]
    one, again, another = (model.fit(X, y, group=sizes).booster_.to_bytes() for model in models)
    assert one == again != another


def test_scores_far_apart_stay_finite() -> None:
    score = np.array([[0.0, 1e4, -1e4, 700.0, 5.0]])
    for name in ("lambdarank", "pairwise", "rank_xendcg"):
        objective = make(name, [0.0, 1.0, 3.0, 0.0, 2.0], group_starts=np.array([0, 5]))
        for values in derivatives(objective, score):
            assert np.isfinite(values).all(), name


def queries(n_queries: int, seed: int = 0) -> tuple[Any, Any, list[int]]:
    """Rows, grades and sizes of queries whose order can be learnt."""
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 40, n_queries)
    X = random.normal(size=(sizes.sum(), 8))
    signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * random.normal(size=len(X))
    return X, np.digitize(signal, [0.0, 1.0, 2.0, 3.0]), list(sizes)


def test_gains_of_labels_reach_training_metrics_and_score() -> None:
    X, y, sizes = queries(40)
    settings: Any = {"n_estimators": 4, "num_leaves": 7, "eval_at": (3,)}
    sets: Any = {"eval_set": [(X, y)], "eval_group": [sizes]}
    usual = DMLGBMRanker(**settings).fit(X, y, group=sizes, **sets)
    spelt_out = DMLGBMRanker(label_gain=[0, 1, 3, 7, 15], **settings).fit(X, y, group=sizes, **sets)
    linear = DMLGBMRanker(label_gain=np.arange(5), **settings).fit(X, y, group=sizes, **sets)
    assert usual.booster_.to_bytes() == spelt_out.booster_.to_bytes() != linear.booster_.to_bytes()
    assert usual.evals_result_ == spelt_out.evals_result_
    first = int(sizes[0])
    order = np.argsort(-linear.predict(X[:first]), kind="stable")
    discount = 1.0 / np.log2(np.arange(2.0, first + 2.0))
    expected = (y[:first][order] * discount).sum() / (np.sort(y[:first])[::-1] * discount).sum()
    assert linear.score(X[:first], y[:first], group=[first]) == pytest.approx(expected, rel=1e-12)
    assert linear.evals_result_ != usual.evals_result_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"label_gain": [0, 3, 1]}, r"label_gain=\[0, 3, 1\] must hold the gain of label 0"),
        ({"label_gain": []}, r"label_gain=\[\] must hold"),
        ({"label_gain": [0.0, float("inf")]}, "finite numbers"),
        ({"label_gain": 3}, "label_gain must be None or a list of numbers"),
        ({"label_gain": ["0", "1"]}, "label_gain must be None or a list of numbers"),
        ({"label_gain": [0.0, 1.0]}, "labels that are whole numbers from 0 to 1"),
        ({"lambdarank_norm": 1}, "lambdarank_norm must be True or False"),
        ({"objective": "rank:map"}, "objective='rank:map' is not known"),
        ({"objective": "binary"}, "it takes 'lambdarank', 'rank_xendcg', 'pairwise'"),
    ],
)
def test_bad_settings_are_named(parameters: dict[str, Any], message: str) -> None:
    X, y, sizes = queries(5)
    with pytest.raises((ValueError, TypeError), match=message):
        DMLGBMRanker(**parameters).fit(X, y, group=sizes)


def test_labels_of_evaluation_rows_need_a_gain() -> None:
    X, y, sizes = queries(10)
    sets: Any = {"eval_set": [(X, np.full(len(X), 4))], "eval_group": [sizes]}
    with pytest.raises(ValueError, match="label_gain has the gains of labels 0 to 3, but there are rows of label 4"):
        DMLGBMRanker(label_gain=GAINS, n_estimators=1).fit(X, np.minimum(y, 3), group=sizes, **sets)


@pytest.mark.parametrize("name", ["lambdarank", "pairwise", "rank_xendcg"])
def test_needs_queries_and_whole_grades(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' needs to know which rows form a query"):
        make(name, [1.0])
    with pytest.raises(ValueError, match=f"row 1 is 0.5, but objective '{name}' needs labels"):
        make(name, [0.0, 0.5], group_starts=np.array([0, 2]))


@pytest.mark.parity
@pytest.mark.parametrize("options", [{"lambdarank_norm": False}, {"label_gain": [0.0, 1.0, 1.0, 5.0]}])
def test_first_step_with_options_matches_lightgbm(options: dict[str, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    target, _, _ = sample("lambdarank", 2000)
    starts = starts_of_queries(2000)
    side = np.random.default_rng(3).integers(0, 2, (2000, 1)).astype(float)
    settings: Any = {"num_leaves": 2, "learning_rate": 1.0, "n_estimators": 1, "n_jobs": 1, **options}
    settings |= {"lambdarank_truncation_level": 3, "min_child_weight": 0.0}
    theirs = lightgbm.LGBMRanker(**settings, verbose=-1).fit(side, target, group=np.diff(starts))
    ours = DMLGBMRanker(**settings).fit(side, target, group=np.diff(starts))
    np.testing.assert_allclose(ours.predict(side[:50]), theirs.predict(side[:50]), 1e-4)


@pytest.mark.parity
@pytest.mark.medium
def test_ranks_as_well_as_the_library_that_has_the_loss() -> None:
    """NDCG@10 of queries that were not learnt from, at most 0.01 below."""
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    X, y, sizes = queries(300)
    X_test, y_test, sizes_test = queries(150, seed=1)
    common: Any = {"n_estimators": 40, "learning_rate": 0.1, "n_jobs": 1}
    peers = {
        "lambdarank": lightgbm.LGBMRanker(**common, verbose=-1),
        "rank_xendcg": lightgbm.LGBMRanker(objective="rank_xendcg", **common, verbose=-1),
        "pairwise": xgboost.XGBRanker(objective="rank:pairwise", max_leaves=31, max_depth=0, **common),
    }
    for objective, peer in peers.items():
        ours = DMLGBMRanker(objective=objective, **common).fit(X, y, group=sizes)
        theirs = peer.fit(X, y, group=sizes)
        reached = [ndcg_at_10(model.predict(X_test), y_test, sizes_test) for model in (ours, theirs)]
        assert reached[0] > reached[1] - 0.01, (objective, reached)
        assert reached[0] > ndcg_at_10(np.zeros(len(X_test)), y_test, sizes_test) + 0.1, "it has learnt something"


def ndcg_at_10(prediction: Any, grades: Any, sizes: list[int]) -> float:
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    found = []
    for start, stop in pairwise(bounds):
        gain = 2.0 ** grades[start:stop] - 1.0
        order = np.argsort(-prediction[start:stop], kind="stable")[:10]
        discount = 1.0 / np.log2(np.arange(2.0, len(order) + 2.0))
        best = (np.sort(gain)[::-1][:10] * discount).sum()
        if best > 0:
            found.append((gain[order] * discount).sum() / best)
    return float(np.mean(found))
