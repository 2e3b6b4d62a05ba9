"""A bag that no row was drawn for gives a tree without a split and of value 0: never a tree over all rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor, load_model
from tests.gbdt.ranks.test_rank_equality import check_equal, make_fit
from tests.reference.rank_fits import even_deal

RANDOM = np.random.default_rng(0)
X = RANDOM.random((300, 4))
Y = 1.0 + X @ [1.0, 2.0, 0.0, 1.0]


def fitted(estimator: Any, y: Any = Y) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    return estimator, [str(one.message) for one in caught]


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("objective", ["regression", "regression_l1", "quantile", "poisson", "huber", "mape", "gamma"])
def test_a_fit_whose_bags_are_all_empty_predicts_the_first_score_and_warns_once(
    objective: str, n_threads: int, tmp_path: Path
) -> None:
    estimator = DMLGBMRegressor(objective=objective, subsample=1e-6, subsample_freq=1, n_estimators=5, n_jobs=n_threads)
    model, messages = fitted(estimator)
    assert np.unique(model.predict(X, raw_score=True)).tolist() == model.booster_.base_scores.tolist()
    assert [tree.leaf_count.tolist() for tree in model.booster_.trees] == [[0]] * 5
    assert len(messages) == 1
    assert "subsample=1e-06 drew no row for 5 of 5 trees" in messages[0]
    model.save_model(tmp_path / "model")
    assert load_model(tmp_path / "model").booster_.to_bytes() == model.booster_.to_bytes()


def test_only_the_trees_of_empty_bags_are_constant() -> None:
    labels = np.digitize(Y, [2.5, 3.5])
    estimator = DMLGBMClassifier(subsample=0.004, subsample_freq=1, n_estimators=30, min_child_samples=1)
    model, messages = fitted(estimator, labels)
    empty = [tree for tree in model.booster_.trees if not tree.leaf_count.any()]
    assert 0 < len(empty) < 90
    assert len(messages) == 1
    assert f"for {len(empty)} of 90 trees" in messages[0]
    assert all(not tree.leaf_value.any() for tree in empty)
    assert np.ptp(model.predict_proba(X)) > 0


def test_a_bag_of_rows_whose_class_weighs_nothing_gives_finite_scores() -> None:
    labels = np.digitize(Y, [2.5, 3.5])
    estimator = DMLGBMClassifier(
        class_weight={0: 1.0, 1: 1.0, 2: 0.0}, subsample=0.02, subsample_freq=1, n_estimators=20, min_child_samples=1
    )
    assert np.isfinite(fitted(estimator, labels)[0].predict_proba(X)).all()


def test_tiny_shares_of_columns_leave_one_column() -> None:
    model, _ = fitted(DMLGBMRegressor(colsample_bytree=1e-6, colsample_bynode=1e-6, n_estimators=5))
    assert all(len(np.unique(tree.feature)) == 1 for tree in model.booster_.trees)


@pytest.mark.parametrize("mode", ["data", "feature"])
@pytest.mark.parametrize("objective", ["binary", "regression_l1"])
@pytest.mark.parametrize("subsample", [1e-9, 0.0015])
def test_bags_that_are_empty_on_some_or_all_ranks_give_the_bytes_of_a_local_fit(
    mode: str, objective: str, subsample: float
) -> None:
    options = {"subsample": subsample, "subsample_freq": 1, "min_child_samples": 1, "n_estimators": 6}
    fit = make_fit(objective, options)
    check_equal(fit, even_deal(fit.rows.n_rows, 3), tree_learner=mode)
    learnt_from = [int(tree.leaf_count.sum()) for tree in fit.locally().booster.trees]
    assert max(learnt_from) < 20
    assert any(learnt_from) == (subsample > 1e-9)
