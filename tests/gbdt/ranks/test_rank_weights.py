"""What weights mean is decided over all ranks, however the weights are spread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gbdt.ranks.test_rank_equality import MODES, N_ROWS, check_equal, deal_at_queries, make_fit
from tests.reference.rank_fits import even_deal, over_ranks

FIRST_RANK = np.arange(N_ROWS) < N_ROWS // 3
SPREADS: dict[str, Any] = {
    "ones on one rank": np.where(FIRST_RANK, 1.0, np.arange(N_ROWS) % 4),
    "fractions on one rank": np.where(FIRST_RANK, 0.3, np.arange(N_ROWS) % 3 + 1.0),
    "nothing on one rank": np.where(FIRST_RANK, 0.0, np.arange(N_ROWS) % 5),
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("precision", ["auto", "exact"])
@pytest.mark.parametrize(
    "objective",
    ["binary", *(pytest.param(name, marks=pytest.mark.slow) for name in ("regression", "quantile", "lambdarank"))],
)
def test_weights_over_ranks_give_the_bytes_of_a_local_fit(objective: str, precision: str, spread: str) -> None:
    fit = make_fit(objective, {"precision": precision}, weight=SPREADS[spread])
    deal = deal_at_queries(fit, 3) if objective == "lambdarank" else even_deal(N_ROWS, 3)
    for mode in MODES:
        check_equal(fit, deal, tree_learner=mode)


@pytest.mark.parametrize("objective", ["binary", "regression", "regression_l1"])
def test_ones_on_all_ranks_are_no_weights(objective: str) -> None:
    fit = make_fit(objective, {})
    expected = fit.locally().booster.to_bytes()
    weighted = over_ranks(replace(fit, rows=replace(fit.rows, weight=np.ones(N_ROWS))), even_deal(N_ROWS, 3))
    assert [result.booster.to_bytes() == expected for result in weighted] == [True] * 3
