"""What ranks send is what the formulas say: few rounds, few bytes, and voting sends next to nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.data_parallel import feature_shares
from dmlgbm.gbdt.ranks.histogram_messages import stored_bins
from dmlgbm.gbdt.ranks.rank import CountedIteration
from tests.gbdt.ranks.test_rank_equality import make_fit
from tests.reference.rank_fits import Fit, even_deal, over_ranks

LIGHTGBM_BYTES_PER_BIN = 16


def numeric_fit(n_rows: int, n_features: int, **parameters: object) -> Fit:
    random = np.random.default_rng(0)
    features = random.normal(size=(n_features, n_rows)).astype(np.float32)
    signal = features[:5].sum(axis=0) + features[0] * features[1]
    target = (signal + random.normal(size=n_rows) > 0).astype(np.float64)
    table = Table(tuple(NumericColumn(column) for column in features), n_rows)
    return Fit(Rows(table, target), ObjectiveSettings("binary"), TrainParameters(**parameters))  # type: ignore[arg-type]


@pytest.mark.parametrize("n_leaves", [31, 255])
def test_data_mode_sends_half_of_what_two_doubles_a_bin_would_take(n_leaves: int) -> None:
    n_ranks = 2
    fit = numeric_fit(40_000, 20, n_estimators=4, num_leaves=n_leaves)
    plan, _ = fit.in_parts([0, fit.rows.table.n_rows])
    report = over_ranks(fit, even_deal(40_000, n_ranks))[0].report
    n_bins = int(stored_bins(plan.storage.layout, np.arange(20)).sum())
    # A histogram for the root and for the smaller child of each split; the own part does not travel.
    lightgbm = n_leaves * n_bins * LIGHTGBM_BYTES_PER_BIN * (n_ranks - 1) / n_ranks
    assert np.mean(report.bytes_per_tree) <= 0.5 * lightgbm
    assert max(report.rounds_per_tree) <= 40


def test_deeper_rounds_hardly_split_in_vain() -> None:
    fit = numeric_fit(20_000, 5, n_estimators=4, num_leaves=255, min_child_samples=5)
    report = over_ranks(fit, even_deal(20_000, 2))[0].report
    assert report.splits_in_vain <= 0.1 * 254 * 4
    assert max(report.rounds_per_tree) <= 40


def test_level_wise_growth_splits_nothing_in_vain() -> None:
    fit = numeric_fit(5_000, 5, n_estimators=3, num_leaves=64, grow_policy="depthwise", max_depth=6)
    report = over_ranks(fit, even_deal(5_000, 2))[0].report
    assert report.splits_in_vain == 0
    assert max(report.rounds_per_tree) <= 7


@pytest.mark.slow
def test_voting_sends_a_tenth_of_data_mode_over_2000_features() -> None:
    fit = numeric_fit(3_000, 2_000, n_estimators=2, num_leaves=15)
    sent = {
        mode: over_ranks(fit, even_deal(3_000, 2), tree_learner=mode)[0].report.bytes_per_tree
        for mode in ("data", "voting")
    }
    assert np.mean(sent["voting"]) <= 0.1 * np.mean(sent["data"])


def test_feature_mode_sends_bits_of_rows_and_candidates() -> None:
    n_rows, n_ranks = 8_000, 2
    fit = numeric_fit(n_rows, 30, n_estimators=3, num_leaves=15)
    result = over_ranks(fit, even_deal(n_rows, n_ranks), tree_learner="feature")[0]
    for tree, sent, rounds in zip(
        result.booster.trees, result.report.bytes_per_tree, result.report.rounds_per_tree, strict=True
    ):
        bits = int(tree.count.sum()) / 8
        most_splits = 2 * (fit.parameters.num_leaves - 1)
        candidates = 2 * (most_splits + 1) * 8 * 8 * (n_ranks - 1)
        # Splits in vain cost at most as much again; a round rounds up to whole words.
        assert bits <= sent <= 2 * bits + candidates + rounds * 8 * (most_splits + 1)


def test_one_rank_alone_sends_nothing_but_small_change() -> None:
    report = over_ranks(make_fit("binary", {}), even_deal(2_003, 1))[0].report
    assert report.n_trees == 3
    assert report.calls > 0


def test_a_rank_reports_what_it_counted() -> None:
    seen: list[CountedIteration] = []
    results = over_ranks(make_fit("binary", {}), even_deal(2_003, 2), on_iteration=seen.append)
    report = results[1].report
    assert report.rank == 1
    assert len(report.bytes_per_tree) == len(report.rounds_per_tree) == len(report.wait_per_tree) == 3
    assert report.bytes_sent >= sum(report.bytes_per_tree) > 0
    assert report.wait_seconds >= sum(report.wait_per_tree) > 0.0
    # Every rank sends as much as the others, and rank 0 tells it with each iteration.
    told = [count for iteration in seen for count in iteration.counts]
    assert [count.rounds for count in told] == report.rounds_per_tree
    assert [count.bytes_sent for count in told] == report.bytes_per_tree
    assert [count.wait_seconds for count in told] == results[0].report.wait_per_tree


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7, 50])
def test_every_feature_has_one_owner_with_a_fair_share_of_bins(n_ranks: int) -> None:
    fit = make_fit("binary", {})
    plan, _ = replace(fit).in_parts([0, fit.rows.table.n_rows])
    layout = plan.storage.layout
    features, blocks = feature_shares(layout, n_ranks)
    assert sorted(features.tolist()) == list(range(len(layout)))
    assert len(blocks) == n_ranks + 1
    sizes = [int(stored_bins(layout, features[first:last]).sum()) for first, last in pairwise(blocks)]
    total, widest = sum(sizes), int(layout["bins"].max())
    assert sum(sizes) == int(stored_bins(layout, features).sum())
    assert max(sizes) <= total / n_ranks + widest
