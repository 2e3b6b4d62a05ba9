"""`tree_learner="auto"` takes the mode that suits the shape of the data, and says why."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgbm.gbdt.ranks.cost_model import (
    ENCRYPTED_NETWORK,
    NETWORK,
    SHARED_MEMORY,
    Link,
    Workload,
    choose_tree_learner,
    link_between,
)
from dmlgbm.gbdt.ranks.histogram_messages import stored_bins
from tests.gbdt.ranks.test_rank_traffic import numeric_fit
from tests.reference.rank_fits import even_deal, over_ranks


def choice(n_rows: int, n_features: int, n_ranks: int, link: Link = SHARED_MEMORY) -> str:
    return choose_tree_learner(Workload(n_rows, n_features, 256 * n_features, 31, n_ranks), link).tree_learner


def test_many_rows_of_few_columns_are_split_by_rows() -> None:
    assert choice(10_000_000, 10, 4) == "data"
    assert choice(1_500_000, 8, 2) == "data"


def test_few_rows_of_many_columns_are_split_by_columns() -> None:
    assert choice(5_000, 5_000, 8) == "feature"


def test_one_column_of_most_bins_leaves_all_others_to_one_rank() -> None:
    """The shape of flights from New York, with 4,000 tail numbers: 27 of 28 columns lie on one rank."""
    workload = Workload(261_724, 28, 6_543, 63, 2, n_category_bins=4_300, most_columns=27)
    assert choose_tree_learner(workload).tree_learner == "data"


def test_features_that_share_columns_cost_what_their_columns_cost() -> None:
    """The shape of covertype, whose 44 indicators are stored in two columns."""
    workload = Workload(464_507, 54, 2_600, 63, 2, n_columns=12, most_columns=7)
    assert choose_tree_learner(workload).tree_learner == "data"


def test_the_link_follows_from_the_addresses_of_the_workers() -> None:
    assert link_between(["tcp://10.0.0.1:4000", "tcp://10.0.0.1:4001"]) == SHARED_MEMORY
    assert link_between(["tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"]) == NETWORK
    assert link_between(["tls://10.0.0.1:4000", "tls://10.0.0.1:4001"]) == ENCRYPTED_NETWORK
    assert link_between([""]) == SHARED_MEMORY


def test_many_rows_of_many_columns_over_a_slow_network_vote() -> None:
    assert choice(20_000_000, 5_000, 64, Link(5e6, 100e-6)) == "voting"


def test_an_approximation_must_pay() -> None:
    plan = choose_tree_learner(Workload(200_000, 300, 76_800, 31, 8))
    assert plan.tree_learner != "voting" or plan.costs["voting"] * 2 <= min(plan.costs["data"], plan.costs["feature"])


@pytest.mark.parametrize("n_ranks", [1, 2, 256])
def test_the_reasons_show_every_mode_with_its_cost(n_ranks: int) -> None:
    plan = choose_tree_learner(Workload(1_000_000, 10, 2_560, 31, n_ranks))
    text = str(plan)
    for mode, cost in plan.costs.items():
        assert f"{mode} " in text
        assert f"{cost * 1e3:.2f}" in text
    assert f"chosen: {plan.tree_learner}" in text


def test_one_rank_sends_nothing() -> None:
    workload = Workload(1_000, 10, 2_560, 31, 1)
    for mode in ("data", "feature", "voting"):
        assert workload.cost(mode, NETWORK).bytes_sent == 0.0


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
