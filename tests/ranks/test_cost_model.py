"""`tree_learner="auto"` takes the mode that suits the shape of the data, and says why."""

from __future__ import annotations

import numpy as np
import pytest

from ranks.cost_model import Workload, choose_tree_learner
from ranks.histogram_messages import stored_bins
from tests.ranks.test_rank_traffic import numeric_fit
from tests.reference.rank_fits import even_deal, over_ranks


def choice(n_rows: int, n_features: int, n_ranks: int, **options: float) -> str:
    plan = choose_tree_learner(
        n_rows=n_rows, n_features=n_features, n_bins=256 * n_features, n_leaves=31, n_ranks=n_ranks, **options
    )
    return plan.tree_learner


def test_many_rows_of_few_columns_are_split_by_rows() -> None:
    assert choice(10_000_000, 10, 4) == "data"
    assert choice(1_500_000, 8, 2) == "data"


def test_few_rows_of_many_columns_are_split_by_columns() -> None:
    assert choice(5_000, 5_000, 8) == "feature"


def test_many_rows_of_many_columns_over_a_slow_network_vote() -> None:
    assert choice(20_000_000, 5_000, 64, bandwidth=5e6) == "voting"


def test_an_approximation_must_pay() -> None:
    plan = choose_tree_learner(n_rows=200_000, n_features=300, n_bins=76_800, n_leaves=31, n_ranks=8)
    assert plan.tree_learner != "voting" or plan.costs["voting"] * 2 <= min(plan.costs["data"], plan.costs["feature"])


@pytest.mark.parametrize("n_ranks", [1, 2, 256])
def test_the_reasons_show_every_mode_with_its_cost(n_ranks: int) -> None:
    plan = choose_tree_learner(n_rows=1_000_000, n_features=10, n_bins=2_560, n_leaves=31, n_ranks=n_ranks)
    text = str(plan)
    for mode, cost in plan.costs.items():
        assert f"{mode} " in text
        assert f"{cost * 1e3:.2f}" in text
    assert f"chosen: {plan.tree_learner}" in text


def test_one_rank_sends_nothing() -> None:
    workload = Workload(1_000, 10, 2_560, 31, 1)
    for mode in ("data", "feature", "voting"):
        assert workload.cost(mode, 1e9, 1e-4).bytes_sent == 0.0


@pytest.mark.parametrize("mode", ["data", "feature", "voting"])
def test_predicted_bytes_are_those_of_a_run(mode: str) -> None:
    n_rows, n_features, n_ranks = 20_000, 60, 3
    fit = numeric_fit(n_rows, n_features, n_estimators=3, num_leaves=31)
    plan, _ = fit.in_parts([0, n_rows])
    n_bins = int(stored_bins(plan.storage.layout, np.arange(n_features)).sum())
    report = over_ranks(fit, even_deal(n_rows, n_ranks), tree_learner=mode, top_k=5)[0].report
    # The exchange of columns before the first tree is not a tree's.
    predicted = Workload(n_rows, n_features, n_bins, 31, n_ranks, n_trees=10**9, top_k=5).bytes_sent(mode)
    assert 0.5 <= predicted / np.mean(report.bytes_per_tree) <= 2.0
