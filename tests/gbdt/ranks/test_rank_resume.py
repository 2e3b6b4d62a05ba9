"""A fit that goes on from its last finished iteration ends in the model of the undisturbed fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.callbacks import Evaluation
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.rank import Checkpoint, CountedIteration, RankData
from dmlgbm.gbdt.ranks.run_so_far import RunSoFar
from tests.gbdt.ranks.test_rank_equality import SETTINGS, deal_at_queries, make_fit
from tests.gbdt.ranks.test_rank_evaluation import watched_fit
from tests.reference.rank_fits import Fit, even_deal, every_kind_of_column, over_ranks, random_deal

N_ROWS = 1_201


def checkpoints_of(fit: Fit, deal: Any, **options: Any) -> tuple[list[Checkpoint], Any]:
    """What is known after every iteration of an undisturbed fit, and its result."""
    known = [Checkpoint()]
    results = over_ranks(fit, deal, on_iteration=lambda report: known.append(known[-1].extended(report)), **options)
    return known, results[0]


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["data", "feature", "voting"])
@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression_l1"])
def test_resuming_after_any_iteration_changes_nothing(objective: str, mode: str) -> None:
    fit = make_fit(objective, SETTINGS["sampled"] | {"n_estimators": 4}, n_rows=N_ROWS)
    deal = random_deal(np.random.default_rng(0), N_ROWS, 2, 5)
    known, undisturbed = checkpoints_of(fit, deal, tree_learner=mode)
    assert len(known) == 5
    for checkpoint in known:
        resumed = over_ranks(fit, deal, resume=checkpoint, tree_learner=mode)
        assert {result.booster.to_bytes() for result in resumed} == {undisturbed.booster.to_bytes()}


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["data", "feature", "voting"])
@pytest.mark.parametrize("options", ["forest", "dropout", "one-sided", "dropout with changing rates"])
def test_resuming_in_every_way_of_boosting_changes_nothing(options: str, mode: str) -> None:
    fit = watched_fit("multiclass", weighted=False, **SETTINGS[options])
    n_rows = fit.rows.n_rows
    deal = random_deal(np.random.default_rng(0), n_rows, 2, 5)
    known, undisturbed = checkpoints_of(fit, deal, tree_learner=mode)
    for checkpoint in known[1:-1]:
        others = deal if mode == "voting" else random_deal(np.random.default_rng(7), n_rows, 3, 4)
        for result in over_ranks(fit, others, resume=checkpoint, tree_learner=mode):
            assert result.booster.to_bytes() == undisturbed.booster.to_bytes()
            assert result.evaluations == undisturbed.evaluations


def test_the_client_puts_together_the_model_of_a_run_with_dropout() -> None:
    fit = make_fit("multiclass", SETTINGS["dropout"], n_rows=N_ROWS)
    client = RunSoFar(fit.parameters, None, [])
    shorter = []
    results = over_ranks(fit, even_deal(N_ROWS, 2), on_iteration=lambda report: shorter.append(added(client, report)))
    assert client.result().booster.to_bytes() == results[0].booster.to_bytes()
    four = replace(fit, parameters=replace(fit.parameters, n_estimators=4))
    assert shorter[3] == four.locally().booster.to_bytes()


def added(client: RunSoFar, report: CountedIteration) -> bytes:
    client.add(report)
    return client.booster_so_far().to_bytes()


def test_resuming_with_the_rows_dealt_anew() -> None:
    """A worker is lost: fewer ranks go on, with other rows."""
    fit = make_fit("binary", {"n_estimators": 5}, n_rows=N_ROWS)
    known, undisturbed = checkpoints_of(fit, even_deal(N_ROWS, 3))
    resumed = over_ranks(fit, random_deal(np.random.default_rng(3), N_ROWS, 2, 7), resume=known[3])
    assert resumed[0].booster.to_bytes() == undisturbed.booster.to_bytes()


def test_resuming_with_first_scores_of_the_user() -> None:
    scores = np.random.default_rng(2).normal(size=(1, N_ROWS))
    fit = make_fit("binary", {"n_estimators": 4}, n_rows=N_ROWS, init_score=scores)
    known, undisturbed = checkpoints_of(fit, even_deal(N_ROWS, 2))
    resumed = over_ranks(fit, even_deal(N_ROWS, 2), resume=known[2])
    assert resumed[0].booster.to_bytes() == undisturbed.booster.to_bytes()


@pytest.mark.parametrize("objective", ["lambdarank", "rank_xendcg"])
def test_queries_stay_together(objective: str) -> None:
    fit = make_fit(objective, {"n_estimators": 4}, n_rows=N_ROWS)
    deal = deal_at_queries(fit, 2)
    known, undisturbed = checkpoints_of(fit, deal)
    assert over_ranks(fit, deal, resume=known[2])[0].booster.to_bytes() == undisturbed.booster.to_bytes()


def early_stopping_fit() -> Fit:
    random = np.random.default_rng(9)
    table, signal = every_kind_of_column(random, 400)
    target = (signal + 2.0 * random.normal(size=400) > 0).astype(np.float64)
    watched = EvaluationSet.whole("valid", Rows(table, target))
    return make_fit(
        "binary",
        {"n_estimators": 30, "early_stopping_rounds": 3, "learning_rate": 0.5},
        n_rows=N_ROWS,
        evaluation_sets=(watched,),
        metrics=tuple(metrics_for(["binary_logloss", "auc"], objective_alpha=0.9, eval_at=[])),
    )


def test_early_stopping_remembers_what_was_measured() -> None:
    fit = early_stopping_fit()
    known, undisturbed = checkpoints_of(fit, even_deal(N_ROWS, 2))
    assert undisturbed.stop_reason is not None
    for checkpoint in known:
        resumed = over_ranks(fit, even_deal(N_ROWS, 2), resume=checkpoint)[0]
        assert resumed.booster.to_bytes() == undisturbed.booster.to_bytes()
        assert resumed.evaluations == undisturbed.evaluations
        assert (resumed.best_iteration, resumed.best_score) == (undisturbed.best_iteration, undisturbed.best_score)
        assert resumed.stop_reason == undisturbed.stop_reason


def test_a_checkpoint_survives_being_saved() -> None:
    fit = early_stopping_fit()
    known, _ = checkpoints_of(fit, even_deal(N_ROWS, 2))
    read = Checkpoint.from_bytes(known[-1].to_bytes())
    assert read.evaluations == known[-1].evaluations
    assert read.trees is not None
    assert known[-1].trees is not None
    assert read.trees.to_bytes() == known[-1].trees.to_bytes()


def test_a_model_gone_on_from_stays_the_best_after_a_restart() -> None:
    before = make_fit("regression", {"n_estimators": 2}, n_rows=200).locally().booster
    parameters = TrainParameters(n_estimators=9, early_stopping_rounds=4)
    at_start = (Evaluation("valid", "l2", 1.0, False),)
    reports = [
        CountedIteration(n, 9, before.first(1), [Evaluation("valid", "l2", 1.0 + n, False)], at_start=at_start)
        for n in range(1, 10)
    ]
    lost, restarted = (RunSoFar(parameters, before, ()) for _ in range(2))
    for report in reports[:2]:
        lost.add(report)
    restarted.restore(Checkpoint.from_bytes(lost.checkpoint.to_bytes()))
    for report in reports:
        restarted.add(report)
    result = restarted.result()
    assert (restarted.n_iterations, result.best_iteration) == (4, 2)
    assert result.best_score == {"valid": {"l2": 1.0}}


def test_an_empty_checkpoint_cannot_be_saved() -> None:
    with pytest.raises(ValueError, match="without any iteration"):
        Checkpoint().to_bytes()


def test_rank_data_can_be_joined() -> None:
    """A survivor takes over the rows of another: the same arrays as assembled from all parts."""
    fit = make_fit("lambdarank", {}, n_rows=N_ROWS, weight=np.random.default_rng(0).random(N_ROWS))
    deal = deal_at_queries(fit, 3)
    plan, data = deal.data(fit)
    _, partitions = fit.in_parts(deal.bounds)
    whole = RankData.assembled(plan, partitions)
    joined = RankData.joined(plan, data)
    assert not partitions
    assert not data
    assert joined.segments == whole.segments
    for one, other in zip(joined.dataset.storage, whole.dataset.storage, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in ("target", "weight", "group_starts"):
        np.testing.assert_array_equal(getattr(joined.rows, name), getattr(whole.rows, name))
