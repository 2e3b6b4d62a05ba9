"""Voting finds nearly the trees of all rows, and the same model on every rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgbm.gbdt.data.table import NumericColumn
from dmlgbm.gbdt.kernels.voting_parallel import elect
from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.objectives import transform
from tests.gbdt.ranks.test_rank_equality import N_ROWS, SETTINGS, make_fit
from tests.gbdt.ranks.test_rank_traffic import numeric_fit
from tests.reference.rank_fits import Deal, Fit, even_deal, over_ranks, random_deal


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("options", SETTINGS)
def test_all_ranks_have_the_same_model(options: str, n_ranks: int) -> None:
    fit = make_fit("binary", SETTINGS[options], weight=np.random.default_rng(0).random(N_ROWS))
    deal = random_deal(np.random.default_rng(1), N_ROWS, n_ranks, 6)
    results = over_ranks(fit, deal, tree_learner="voting", top_k=3)
    assert len({result.booster.to_bytes() for result in results}) == 1
    assert results[0].booster.trees[0].n_nodes > 0


def test_one_rank_alone_elects_the_best_split() -> None:
    fit = make_fit("multiclass", {})
    result = over_ranks(fit, even_deal(N_ROWS, 1), tree_learner="voting", top_k=1)[0]
    assert result.booster.to_bytes() == fit.locally().booster.to_bytes()


def test_ranks_without_rows_do_not_vote() -> None:
    fit = make_fit("regression", {})
    results = over_ranks(fit, Deal(3, [0, N_ROWS], [1]), tree_learner="voting", top_k=fit.rows.table.n_features)
    assert {result.booster.to_bytes() for result in results} == {fit.locally().booster.to_bytes()}


def test_splits_keep_the_rules_for_all_rows() -> None:
    fit = make_fit("regression", {"min_child_samples": 60, "num_leaves": 63})
    for tree in over_ranks(fit, even_deal(N_ROWS, 4), tree_learner="voting", top_k=2)[0].booster.trees:
        assert tree.leaf_count.min() >= 60


@pytest.mark.parametrize("method", ["basic", "intermediate"])
def test_votes_keep_scores_in_order(method: str) -> None:
    fit = make_fit("quantile", {"monotone_constraints": (-1, *[0] * 29), "monotone_constraints_method": method})
    booster = over_ranks(fit, even_deal(N_ROWS, 3), tree_learner="voting", top_k=3)[0].booster
    table = fit.rows.table
    lower, upper = (
        replace(table, columns=(NumericColumn(np.full(N_ROWS, value)), *table.columns[1:])) for value in (-0.4, 0.7)
    )
    # The signal rises with this column.
    change = booster.raw_scores(upper) - booster.raw_scores(lower)
    assert np.all(change <= 0)


def test_most_votes_win_then_better_positions_then_lower_features() -> None:
    ballots = np.array([[[5, 2]], [[2, 7]], [[1, 5]]], np.int32)
    elected = np.empty((1, 3), np.int64)
    elect(ballots, 9, elected)
    # 2 and 5 have two votes each, and 1 a first position against the second position of 7.
    assert elected.tolist() == [[1, 2, 5]]
    few = np.empty((1, 8), np.int64)
    elect(ballots, 9, few)
    assert few.tolist() == [[1, 2, 5, 7, -1, -1, -1, -1]]


def accuracy(fit: Fit, held_out: Fit, mode: str, n_ranks: int) -> float:
    model = over_ranks(fit, even_deal(fit.rows.n_rows, n_ranks), tree_learner=mode)[0].booster
    probability = transform("binary", model.raw_scores(held_out.rows.table))[0]
    (metric,) = metrics_for(["binary_error"], objective_alpha=0.9, eval_at=[])
    return 1.0 - metric.function(held_out.rows.target, probability, None, None)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_accuracy_over_2000_features_is_within_half_a_percent_of_data_mode() -> None:
    fit = numeric_fit(8_000, 2_000, n_estimators=30, num_leaves=15)
    half = fit.rows.n_rows // 2
    learnt = replace(fit, rows=fit.rows.slice(0, half))
    held_out = replace(fit, rows=fit.rows.slice(half, 2 * half))
    assert accuracy(learnt, held_out, "voting", 4) >= accuracy(learnt, held_out, "data", 4) - 0.005
