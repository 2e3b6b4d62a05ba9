"""Metrics over ranks are those of all rows, bit for bit; callbacks run once, and stop everybody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.callbacks import TrainingState
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric, metrics_for
from dmlgbm.gbdt.ranks.rank import RankData, train_rank
from tests.gbdt.ranks.test_rank_equality import SETTINGS, make_fit
from tests.reference.rank_fits import Deal, Fit, even_deal, every_kind_of_column, over_ranks

N_ROWS, N_WATCHED = 900, 331
METRICS = {
    "binary": [
        *("binary_logloss", "binary_error", "auc", "rmse", "average_precision", "aucpr", "accuracy", "f1", "f1_macro"),
        *("balanced_accuracy", "mcc", "brier", "calibration_error"),
    ],
    "multiclass": [
        *(
            "multi_logloss",
            "multi_error",
            "auc_ovr",
            "auc_ovo",
            "average_precision",
            "accuracy",
            "f1_macro",
            "f1_micro",
        ),
        *("f1_weighted", "balanced_accuracy", "mcc", "brier", "calibration_error", "top_2_error"),
    ],
    "regression": ["rmse", "l2", "l1", "quantile", "pinball@0.1", "r2"],
    "poisson": ["poisson", "rmsle"],
    "cox": ["cox_nloglik", "c_index"],
    "aft": ["aft_nloglik", "c_index"],
    "lambdarank": ["ndcg", "map", "mrr", "err", "ndcg@7"],
}


def watched_fit(objective: str, weighted: bool, **options: Any) -> Fit:
    fit = make_fit(objective, {"n_estimators": 6, "learning_rate": 0.4, **options}, n_rows=N_ROWS)
    other = make_fit(objective, {}, seed=1, n_rows=N_WATCHED)
    weight = np.random.default_rng(0).random(N_WATCHED) if weighted else None
    watched = [EvaluationSet.whole(name, replace(other.rows, weight=weight)) for name in ("one", "two")]
    metrics = metrics_for(METRICS[objective], objective_alpha=0.9, eval_at=[1, 5])
    return replace(fit, evaluation_sets=tuple(watched), metrics=tuple(metrics))


def deal_for(fit: Fit, n_ranks: int) -> Deal:
    if fit.rows.group_starts is None:
        return even_deal(N_ROWS, n_ranks)
    bounds = [int(fit.rows.group_starts[(len(fit.rows.group_starts) - 1) * k // n_ranks]) for k in range(n_ranks + 1)]
    return Deal(n_ranks, bounds, range(n_ranks))


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["data", "feature"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("objective", METRICS)
def test_metrics_are_those_of_a_local_fit(objective: str, weighted: bool, mode: str) -> None:
    fit = watched_fit(objective, weighted)
    expected = fit.locally()
    for result in over_ranks(fit, deal_for(fit, 3), tree_learner=mode):
        assert result.evaluations == expected.evaluations
        assert result.booster.to_bytes() == expected.booster.to_bytes()


@pytest.mark.parametrize("n_watched", [1, 5])
def test_ranks_without_watched_rows_know_the_metrics_too(n_watched: int) -> None:
    for objective in ("binary", "multiclass", "poisson", "regression"):
        fit = watched_fit(objective, True, n_estimators=2)
        few = [EvaluationSet.whole("few", one.parts[0].rows.slice(0, n_watched)) for one in fit.evaluation_sets[:1]]
        fit = replace(fit, evaluation_sets=tuple(few))
        expected = fit.locally().evaluations
        for result in over_ranks(fit, even_deal(N_ROWS, 3)):
            np.testing.assert_equal(result.evaluations, expected)  # some are NaN


def test_targets_for_which_a_metric_has_no_value_are_refused_before_training() -> None:
    fit = watched_fit("regression", False)
    metrics = metrics_for(["rmsle"], objective_alpha=0.9, eval_at=[])
    lowest = float(fit.evaluation_sets[0].parts[0].rows.target.min())
    iterations: list[int] = []
    message = f"'rmsle' needs targets above -1, but the evaluation set 'one' has one of {lowest:g}:"
    with pytest.raises(ValueError, match=message):
        over_ranks(
            replace(fit, metrics=tuple(metrics)),
            even_deal(N_ROWS, 3),
            callbacks=[lambda state: iterations.append(state.iteration)],
        )
    assert iterations == []


@pytest.mark.parametrize("n_ranks", [1, 3])
@pytest.mark.parametrize(
    ("objective", "name"),
    [("binary", "average_precision"), ("multiclass", "f1_macro"), ("regression", "r2"), ("lambdarank", "err")],
)
def test_ranks_stop_early_where_a_local_fit_does(objective: str, name: str, n_ranks: int) -> None:
    options = {"n_estimators": 40, "early_stopping_rounds": 2, "learning_rate": 0.8}
    fit = watched_fit(objective, True, **options)
    metrics = tuple(metrics_for([name], objective_alpha=0.9, eval_at=[3]))
    fit = replace(fit, metrics=metrics, evaluation_sets=fit.evaluation_sets[:1])
    expected = fit.locally()
    assert expected.best_iteration is not None
    assert expected.stop_reason is not None
    for result in over_ranks(fit, deal_for(fit, n_ranks)):
        assert (result.best_iteration, result.stop_reason) == (expected.best_iteration, expected.stop_reason)
        assert result.evaluations == expected.evaluations


@pytest.mark.parametrize("mode", ["data", "feature"])
@pytest.mark.parametrize("options", ["forest", "dropout", "one-sided"])
def test_metrics_in_every_way_of_boosting_are_those_of_a_local_fit(options: str, mode: str) -> None:
    fit = watched_fit("binary", True, **SETTINGS[options])
    expected = fit.locally()
    for result in over_ranks(fit, deal_for(fit, 3), tree_learner=mode):
        assert result.evaluations == expected.evaluations
        assert result.booster.to_bytes() == expected.booster.to_bytes()


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_early_stopping_stops_every_rank_at_the_same_iteration(n_ranks: int) -> None:
    random = np.random.default_rng(9)
    table, signal = every_kind_of_column(random, N_WATCHED)
    target = (signal + 3.0 * random.normal(size=N_WATCHED) > 0).astype(np.float64)
    noise = EvaluationSet.whole("noise", Rows(table, target))
    fit = watched_fit("binary", False, n_estimators=40, early_stopping_rounds=2)
    fit = replace(fit, evaluation_sets=(noise,))
    expected = fit.locally()
    assert expected.stop_reason is not None
    for result in over_ranks(fit, even_deal(N_ROWS, n_ranks)):
        assert result.booster.to_bytes() == expected.booster.to_bytes()
        assert result.stop_reason == expected.stop_reason
        assert (result.best_iteration, result.best_score) == (expected.best_iteration, expected.best_score)


def test_a_users_metric_sees_all_rows_in_their_order() -> None:
    fit = watched_fit("regression", True)
    seen: list[np.ndarray] = []

    def in_order(target: np.ndarray, prediction: np.ndarray, weight: np.ndarray | None, groups: object) -> float:
        seen.append(target)
        return float(prediction[0] + 2 * prediction[-1] + (0.0 if weight is None else weight[1]))

    fit = replace(fit, metrics=(Metric("first", in_order, False),))
    expected = fit.locally().evaluations
    seen.clear()
    results = over_ranks(fit, even_deal(N_ROWS, 3))
    assert [result.evaluations for result in results] == [expected] * 3
    assert len(seen) == 2 * fit.parameters.n_estimators, "called once for each set and iteration, on one rank"
    np.testing.assert_array_equal(seen[0], fit.evaluation_sets[0].parts[0].rows.target)


def test_callbacks_run_once_and_stop_every_rank() -> None:
    fit = watched_fit("binary", False)
    iterations = []

    def stop_at_three(state: TrainingState) -> None:
        iterations.append(state.iteration)
        if state.iteration == 3:
            state.stop("three is enough: ≤ 4")

    results = over_ranks(fit, even_deal(N_ROWS, 3), callbacks=[stop_at_three])
    assert iterations == [1, 2, 3]
    assert [result.stop_reason for result in results] == ["three is enough: ≤ 4"] * 3
    assert [result.booster.n_iterations for result in results] == [3] * 3


def test_an_error_in_a_callback_ends_every_rank() -> None:
    def fail(state: TrainingState) -> None:
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        over_ranks(watched_fit("binary", False), even_deal(N_ROWS, 3), callbacks=[fail])


def test_weights_on_some_ranks_only_are_refused() -> None:
    fit = watched_fit("binary", False)
    weighted = replace(fit, rows=replace(fit.rows, weight=np.ones(N_ROWS)))
    _, with_weight = weighted.in_parts([0, 400, N_ROWS])
    plan, without = fit.in_parts([0, 400, N_ROWS])
    data = [RankData.assembled(plan, [with_weight[0]]), RankData.assembled(plan, [without[1]])]
    with pytest.raises(ValueError, match="other ranks have weight"):
        run_threads(lambda c: train_rank(c, data[c.rank], fit.task(plan)), 2)
