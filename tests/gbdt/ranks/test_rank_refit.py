"""Leaf values fitted again over ranks are those of one process that holds all rows, whoever holds which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.boosting.refitting import refitted
from dmlgbm.gbdt.ranks.rank import refit_rank
from tests.gbdt.ranks.test_rank_equality import OBJECTIVES, deal_at_queries, make_fit
from tests.reference.rank_fits import Deal, Fit, even_deal, random_deal

N_ROWS, N_WATCHED = 901, 200

WEIGHTS = {
    "none": None,
    "fractions": np.random.default_rng(1).choice([0.0, 0.4, 1.7], N_ROWS),
    "whole": np.random.default_rng(2).integers(0, 4, N_ROWS).astype(float),
}


def parted(objective: str, **more: Any) -> tuple[Fit, Fit]:
    """A fit on all rows, and one that watches the first of them, in whole queries."""
    whole = make_fit(objective, {"n_estimators": 3}, n_rows=N_ROWS, **more)
    watched, rows = whole.rows.slice(0, N_WATCHED), whole.rows.slice(N_WATCHED, N_ROWS)
    return whole, replace(whole, rows=rows, evaluation_sets=(EvaluationSet.whole("watched", watched),))


def over_ranks(fit: Fit, model: Booster, deal: Deal) -> list[Booster]:
    plan, data = deal.data(fit)
    task = fit.task(plan, to_refit=model)

    def refit_one(communicator: Communicator) -> Booster:
        rank = communicator.rank
        return refit_rank(communicator, data[rank], task, fit.evaluation_of(rank, deal.n_ranks))

    return run_threads(refit_one, deal.n_ranks, transport="memory")


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "rank_xendcg"])  # its draws: refused
def test_every_rank_gets_the_model_of_one_process(objective: str, weight: str) -> None:
    whole, fit = parted(objective, weight=WEIGHTS[weight])
    model = fit.locally().booster
    expected = refitted(model, whole.rows, whole.objective, whole.parameters, decay_rate=0.0)
    assert expected != model
    deal = deal_at_queries(fit, 3) if fit.rows.group_starts is not None else even_deal(fit.rows.n_rows, 2)
    assert over_ranks(fit, model, deal) == [expected] * deal.n_ranks


@pytest.mark.parametrize("asked", ["order", "averages", "rates"])
def test_ranks_agree_on_order_averages_and_rates(asked: str) -> None:
    whole, fit = parted("regression")
    of_kinds: dict[str, dict[str, Any]] = {
        "order": {"monotone_constraints": (1, *[0] * (whole.rows.table.n_features - 1))},
        "averages": {"boosting_type": "rf", "colsample_bytree": 0.5},
        "rates": {"learning_rates": (0.5, 0.2, 0.05)},
    }
    more = of_kinds[asked]
    parameters = replace(fit.parameters, **more)
    whole, fit = replace(whole, parameters=parameters), replace(fit, parameters=parameters)
    model = fit.locally().booster
    expected = refitted(model, whole.rows, whole.objective, parameters, decay_rate=0.0)
    assert expected != model
    assert over_ranks(fit, model, even_deal(fit.rows.n_rows, 2)) == [expected] * 2


@pytest.mark.parametrize("seed", range(3))
def test_ranks_without_rows_and_any_parts_change_nothing(seed: int) -> None:
    whole, fit = parted("multiclass", init_score=np.random.default_rng(seed).normal(size=(3, N_ROWS)))
    model = fit.locally().booster
    expected = refitted(model, whole.rows, whole.objective, whole.parameters, decay_rate=0.0)
    deal = random_deal(np.random.default_rng(seed), fit.rows.n_rows, 4, 5)
    assert over_ranks(fit, model, deal) == [expected] * 4
