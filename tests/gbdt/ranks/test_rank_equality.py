"""A fit over ranks gives the model of a local fit, byte for byte, however the rows are cut and dealt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgbm.collectives.joining.launch import run_processes
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.objectives.binary import Balance
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.ranks.rank import RankData, RankTask, train_rank
from tests.reference.rank_fits import Deal, Fit, even_deal, every_kind_of_column, over_ranks, random_deal

N_ROWS = 2_003
OBJECTIVES = {
    "binary": ObjectiveSettings("binary"),
    "multiclass": ObjectiveSettings("multiclass", n_classes=3),
    "regression": ObjectiveSettings("regression"),
    "regression_l1": ObjectiveSettings("regression_l1"),
    "quantile": ObjectiveSettings("quantile", alpha=0.8),
    "poisson": ObjectiveSettings("poisson"),
    "huber": ObjectiveSettings("huber"),
    "fair": ObjectiveSettings("fair"),
    "logcosh": ObjectiveSettings("logcosh"),
    "expectile": ObjectiveSettings("expectile"),
    "mape": ObjectiveSettings("mape"),
    "gamma": ObjectiveSettings("gamma"),
    "tweedie": ObjectiveSettings("tweedie"),
    "cross_entropy": ObjectiveSettings("cross_entropy"),
    "focal": ObjectiveSettings("focal", n_classes=2, balance=Balance(is_unbalance=True)),
    "multiclassova": ObjectiveSettings("multiclassova", n_classes=3, balance=Balance(is_unbalance=True)),
    "lambdarank": ObjectiveSettings("lambdarank", normalised_pairs=False, label_gain=(0.0, 1.0, 2.0, 3.0, 10.0)),
    "cox": ObjectiveSettings("cox"),
    "aft": ObjectiveSettings("aft", distribution="logistic", distribution_scale=0.7),
    "pairwise": ObjectiveSettings("pairwise"),
    "rank_xendcg": ObjectiveSettings("rank_xendcg"),
    "custom": ObjectiveSettings(lambda target, score: (score - target, np.ones_like(score))),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sampled": {"subsample": 0.5, "subsample_freq": 2, "colsample_bytree": 0.7, "colsample_bynode": 0.7},
    "depthwise": {"grow_policy": "depthwise", "max_depth": 5},
    "fast": {"precision": "fast"},
    "exact": {"precision": "exact", "reg_alpha": 0.1, "reg_lambda": 1.0},
    "forest": {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1, "n_estimators": 4},
    "dropout": {"boosting_type": "dart", "skip_drop": 0.2, "drop_rate": 0.5, "n_estimators": 6},
    "one-sided": {"data_sample_strategy": "goss", "learning_rate": 0.7, "n_estimators": 4},
    "dropout of one-sided samples": {
        "boosting_type": "dart",
        "xgboost_dart_mode": True,
        "uniform_drop": True,
        "skip_drop": 0.0,
        "drop_rate": 0.5,
        "data_sample_strategy": "goss",
        "learning_rate": 0.7,
        "n_estimators": 5,
    },
    "bayesian": {"bootstrap_type": "bayesian", "bagging_temperature": 0.7},
    "mvs": {"bootstrap_type": "mvs", "subsample": 0.4},
    "changing rates": {"learning_rates": (0.5, 0.05, 0.2, 0.3), "n_estimators": 4},
    "dropout with changing rates": {
        "boosting_type": "dart",
        "xgboost_dart_mode": True,
        "skip_drop": 0.0,
        "drop_rate": 0.6,
        "learning_rates": (0.5, 0.05, 0.2, 0.3, 0.1),
        "n_estimators": 5,
    },
    "ordered": {"monotone_constraints": (1, -1, 1, *[0] * 4, -1, *[0] * 22)},
    "ordered loosely": {
        "monotone_constraints": (-1, 1, 0, 1, *[0] * 6, *[1] * 20),
        "monotone_constraints_method": "intermediate",
        "num_leaves": 31,
    },
    "apart": {
        "interaction_constraints": (tuple(range(3)), tuple(range(2, 9)), (0, 9), tuple(range(10, 30))),
        "num_leaves": 31,
    },
    "drawn apart": {
        "interaction_constraints": tuple((0, k) for k in range(1, 30)) + tuple((1, 2, k) for k in range(1, 30)) * 2,
        "colsample_bynode": 0.5,
        "colsample_bytree": 0.8,
    },
    "thresholds at random": {
        "extra_trees": True,
        "colsample_bynode": 0.7,
        "num_leaves": 31,
        "monotone_constraints": (1, *[0] * 29),
    },
    "weighed gains": {"feature_contri": (0.1, 2.0, *[1.0] * 27, 0.0), "num_leaves": 31},
    "tiny leaves": {"min_child_samples": 1, "min_child_weight": 0.0, "num_leaves": 63},
}
MODES = ("data", "feature")
RANKING = ("lambdarank", "pairwise", "rank_xendcg")


def make_fit(objective: str, options: dict[str, Any], seed: int = 0, n_rows: int = N_ROWS, **more: Any) -> Fit:
    weight, init_score = more.pop("weight", None), more.pop("init_score", None)
    random = np.random.default_rng(seed)
    table, signal = every_kind_of_column(random, n_rows)
    noisy = signal + 0.3 * random.normal(size=n_rows)
    targets = {
        "binary": noisy > 0,
        "multiclass": np.digitize(noisy, [-1.0, 1.0]),
        "poisson": random.poisson(np.exp(0.3 * signal)),
        "gamma": np.exp(0.3 * noisy),
        "tweedie": random.poisson(np.exp(0.3 * signal)),
        "cross_entropy": np.clip(0.5 + 0.2 * noisy, 0.0, 1.0),
        "focal": noisy > 1.5,
        "multiclassova": np.digitize(noisy, [-1.0, 1.0]),
        **dict.fromkeys(("cox", "aft"), np.ceil(9.0 * np.exp(0.3 * noisy)) * np.where(noisy > 0.5, -1.0, 1.0)),
        **dict.fromkeys(RANKING, np.clip(np.round(noisy), 0, 4)),
    }
    starts = np.append(np.arange(0, n_rows, 20), n_rows) if objective in RANKING else None
    parameters = TrainParameters(**({"n_estimators": 3, "num_leaves": 15} | options))
    target = np.asarray(targets.get(objective, noisy), np.float64)
    rows = Rows(table, target, weight, init_score, starts)
    return Fit(rows, OBJECTIVES[objective], parameters, **more)


def check_equal(fit: Fit, deal: Deal, **options: Any) -> None:
    expected = fit.locally().booster.to_bytes()
    assert [result.booster.to_bytes() == expected for result in over_ranks(fit, deal, **options)] == [
        True
    ] * deal.n_ranks


def deal_at_queries(fit: Fit, n_ranks: int) -> Deal:
    """Parts that hold whole queries."""
    assert fit.rows.group_starts is not None
    starts = fit.rows.group_starts
    bounds = [int(starts[(len(starts) - 1) * k // 5]) for k in range(6)]
    return Deal(n_ranks, bounds, [k % n_ranks for k in range(5)])


def test_the_table_has_every_kind_of_storage() -> None:
    plan, _ = make_fit("binary", {}).in_parts([0, N_ROWS])
    storage = plan.storage
    parts = [part for column in range(len(storage.narrow_columns)) for part in storage.parts_of(column)]
    assert max(map(len, parts)) > 1, "exclusive columns share one"
    assert len(parts) > len(storage.narrow_columns), "columns of few values share bytes"
    assert storage.wide_columns
    assert storage.sparse_tiles


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_every_objective(objective: str, n_ranks: int, mode: str) -> None:
    fit = make_fit(objective, {})
    deal = random_deal(np.random.default_rng(n_ranks), N_ROWS, n_ranks, 6)
    if objective in RANKING:
        deal = deal_at_queries(fit, n_ranks)
    check_equal(fit, deal, tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("objective", ["binary", "multiclass", "quantile", "mape"])
def test_every_setting(objective: str, options: str, mode: str) -> None:
    random = np.random.default_rng(5)
    weight = random.integers(0, 3, N_ROWS) * random.random(N_ROWS)
    fit = make_fit(objective, SETTINGS[options], weight=weight)
    check_equal(fit, random_deal(random, N_ROWS, 3, 7), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_smoothed_leaves(mode: str) -> None:
    fit = make_fit("multiclass", {"path_smooth": 20.0, "monotone_constraints": (1, *[0] * 29)})
    check_equal(fit, random_deal(np.random.default_rng(6), N_ROWS, 3, 7), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", ["sampled", "dropout of one-sided samples"])
def test_ranks_without_rows_and_empty_parts(options: str, mode: str) -> None:
    fit = make_fit("quantile", SETTINGS[options], weight=np.random.default_rng(1).random(N_ROWS))
    deal = Deal(4, [0, 0, 700, 700, 1500, N_ROWS, N_ROWS], [0, 3, 2, 1, 3, 3])
    check_equal(fit, deal, tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_shares_of_two_classes(mode: str) -> None:
    shares = {"pos_bagging_fraction": 0.9, "neg_bagging_fraction": 0.3, "subsample_freq": 2, "n_estimators": 4}
    fit = make_fit("binary", shares)
    check_equal(fit, random_deal(np.random.default_rng(4), N_ROWS, 3, 7), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_more_ranks_than_columns(mode: str) -> None:
    fit = make_fit("regression", {})
    few = replace(fit, rows=replace(fit.rows, table=replace(fit.rows.table, columns=fit.rows.table.columns[:2])))
    check_equal(few, even_deal(N_ROWS, 4), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_split(mode: str) -> None:
    fit = make_fit("regression", {})
    constant = replace(fit, rows=replace(fit.rows, target=np.ones(N_ROWS)))
    check_equal(constant, even_deal(N_ROWS, 2), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_first_scores_of_the_user(mode: str) -> None:
    fit = make_fit("binary", {}, init_score=np.random.default_rng(2).normal(size=(1, N_ROWS)))
    check_equal(fit, even_deal(N_ROWS, 3), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_relative_errors_have_one_unit_everywhere(mode: str) -> None:
    """Targets of one rank are a million times those of another."""
    fit = make_fit("mape", {})
    target = (20.0 + fit.rows.target) * np.geomspace(1.0, 1e6, N_ROWS)
    check_equal(replace(fit, rows=replace(fit.rows, target=target)), even_deal(N_ROWS, 3), tree_learner=mode)


@pytest.mark.parametrize("mode", MODES)
def test_two_threads_in_each_rank(mode: str) -> None:
    fit = make_fit("binary", {"n_threads": 2, "num_leaves": 40, "n_estimators": 4})
    check_equal(fit, even_deal(N_ROWS, 2), tree_learner=mode)


def test_outliers_take_the_exact_level_everywhere() -> None:
    """One rank alone would see no outlier in its rows, and choose fewer bits."""
    fit = make_fit("regression", {}, weight=np.ones(N_ROWS))
    target = fit.rows.target.copy()
    target[-3:] = 1e7
    check_equal(replace(fit, rows=replace(fit.rows, target=target)), even_deal(N_ROWS, 3))


def test_bins_of_a_sample_of_rows() -> None:
    """Fewer rows than the table has are sampled for the bins, by global row numbers."""
    fit = make_fit("binary", {}, binning=BinningParameters(sample_rows=500, max_bin=63, seed=3))
    check_equal(fit, random_deal(np.random.default_rng(8), N_ROWS, 2, 5))


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_ranks_connected_by_sockets(transport: str) -> None:
    check_equal(make_fit("multiclass", SETTINGS["sampled"]), even_deal(N_ROWS, 2), transport=transport)


def _train_in_process(communicator: Any, data: list[RankData], task: RankTask) -> bytes:
    return train_rank(communicator, data[communicator.rank], task).booster.to_bytes()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_real_processes(n_ranks: int, mode: str) -> None:
    fit = make_fit("multiclass", SETTINGS["sampled"], weight=np.random.default_rng(4).random(N_ROWS))
    plan, data = random_deal(np.random.default_rng(n_ranks), N_ROWS, n_ranks, 8).data(fit)
    models = run_processes(_train_in_process, n_ranks, (data, fit.task(plan, tree_learner=mode)))
    assert set(models) == {fit.locally().booster.to_bytes()}


@pytest.mark.property_long
@pytest.mark.timeout(900)
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    n_rows=st.integers(50, 1500),
    n_ranks=st.integers(1, 4),
    n_parts=st.integers(1, 9),
    objective=st.sampled_from([name for name in OBJECTIVES if name not in (*RANKING, "custom")]),
    options=st.sampled_from(list(SETTINGS)),
    weighted=st.booleans(),
    mode=st.sampled_from(MODES),
)
def test_any_fit(
    seed: int, n_rows: int, n_ranks: int, n_parts: int, objective: str, options: str, weighted: bool, mode: str
) -> None:
    random = np.random.default_rng(seed)
    weight = random.integers(0, 4, n_rows) + 0.5 if weighted else None
    fit = make_fit(objective, SETTINGS[options] | {"n_estimators": 2}, seed, n_rows, weight=weight)
    check_equal(fit, random_deal(random, n_rows, n_ranks, n_parts), tree_learner=mode)
