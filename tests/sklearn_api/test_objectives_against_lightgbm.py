"""Fifty trees of an objective are worth as much as LightGBM's, by its metric on rows that neither has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.gbdt.metrics import metrics_for

FloatArray = npt.NDArray[np.float64]
pytestmark = [pytest.mark.parity, pytest.mark.medium]
N_ROWS, N_TRAIN = 9_000, 6_000
TRAIN, TEST = slice(0, N_TRAIN), slice(N_TRAIN, None)
SETTINGS: dict[str, Any] = {"n_estimators": 50, "num_leaves": 31, "learning_rate": 0.1, "min_child_samples": 20}
# Bins, roundings and ties differ.
TOLERANCE = 0.03


def policies() -> tuple[FloatArray, FloatArray]:
    """Columns of an insurer's kind (age, power, region, bonus, mileage), and the logarithm of an expected amount."""
    random = np.random.default_rng(7)
    age, power = random.gamma(4.0, 10.0, N_ROWS) + 18.0, random.integers(4, 15, N_ROWS).astype(float)
    region, bonus = random.integers(0, 20, N_ROWS).astype(float), np.round(random.beta(2, 5, N_ROWS) * 150 + 50)
    mileage = random.lognormal(9.0, 0.6, N_ROWS)
    risk = 0.6 * np.exp(-(age - 18) / 12) + 0.04 * power + 0.3 * np.sin(region) + 0.006 * bonus
    risk += 0.4 * np.log(mileage / 8000.0)
    return np.column_stack([age, power, region, bonus, mileage, random.normal(size=N_ROWS)]), risk


X, RISK = policies()


def targets(objective: str) -> FloatArray:
    random = np.random.default_rng(11)
    noise = random.standard_t(2, N_ROWS)
    if objective in ("huber", "fair"):
        return RISK * 2.0 + 0.5 * noise
    if objective == "mape":
        return 20.0 * np.exp(RISK) + 3.0 * random.normal(size=N_ROWS)
    if objective == "gamma":
        return random.gamma(2.0, np.exp(RISK) / 2.0)
    if objective == "tweedie":
        claims = random.poisson(3.0 * np.exp(RISK))
        return np.array([random.gamma(1.5, 2.0, n).sum() for n in claims])
    return 1.0 / (1.0 + np.exp(-(RISK - RISK.mean()) * 2.0 - 0.5 * random.normal(size=N_ROWS)))


@pytest.mark.parametrize("objective", ["huber", "fair", "gamma", "tweedie", "mape", "cross_entropy"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_numbers(objective: str, weighted: bool) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    y = targets(objective)
    weight = np.random.default_rng(1).uniform(0.2, 3.0, N_TRAIN) if weighted else None
    own = DMLGBMRegressor(objective=objective, **SETTINGS).fit(X[TRAIN], y[TRAIN], weight)
    peer = lightgbm.LGBMRegressor(objective=objective, verbose=-1, n_jobs=1, **SETTINGS)
    peer.fit(X[TRAIN], y[TRAIN], weight)
    (metric,) = metrics_for([objective], objective_alpha=0.9, eval_at=[])
    found, expected, constant = (
        metric.function(y[TEST], prediction, None, None)
        for prediction in (own.predict(X[TEST]), peer.predict(X[TEST]), np.full(N_ROWS - N_TRAIN, y[TRAIN].mean()))
    )
    assert found == pytest.approx(expected, rel=TOLERANCE)
    # Likelihoods have no natural zero: what is gained over a constant counts too.
    assert constant - found > 0.9 * (constant - expected) > 0.0


@pytest.mark.parametrize("options", [{"scale_pos_weight": 8.0}, {"is_unbalance": True}])
def test_balanced_classes(options: dict[str, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    y = (RISK + 0.4 * np.random.default_rng(5).normal(size=N_ROWS) > np.quantile(RISK, 0.9)).astype(int)
    own = DMLGBMClassifier(reg_lambda=0.0, **SETTINGS, **options).fit(X[TRAIN], y[TRAIN]).predict_proba(X[TEST])[:, 1]
    peer = lightgbm.LGBMClassifier(verbose=-1, n_jobs=1, **SETTINGS, **options)
    other = peer.fit(X[TRAIN], y[TRAIN]).predict_proba(X[TEST])[:, 1]
    loss, auc = sklearn.metrics.log_loss, sklearn.metrics.roc_auc_score
    assert loss(y[TEST], own) == pytest.approx(loss(y[TEST], other), rel=TOLERANCE)
    assert auc(y[TEST], own) == pytest.approx(auc(y[TEST], other), abs=0.005)
    assert own.mean() == pytest.approx(other.mean(), rel=TOLERANCE)


@pytest.mark.parametrize("options", [{}, {"is_unbalance": True}])
def test_each_class_against_the_rest(options: dict[str, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    noisy = RISK + 0.3 * np.random.default_rng(5).normal(size=N_ROWS)
    y = np.digitize(noisy, np.quantile(noisy, [0.5, 0.7, 0.85]))
    own = DMLGBMClassifier(objective="multiclassova", reg_lambda=0.0, **SETTINGS, **options).fit(X[TRAIN], y[TRAIN])
    peer = lightgbm.LGBMClassifier(objective="multiclassova", verbose=-1, n_jobs=1, **SETTINGS, **options)
    shares = peer.fit(X[TRAIN], y[TRAIN]).predict_proba(X[TEST])
    expected = sklearn.metrics.log_loss(y[TEST], shares / shares.sum(axis=1, keepdims=True))
    assert sklearn.metrics.log_loss(y[TEST], own.predict_proba(X[TEST])) == pytest.approx(expected, rel=TOLERANCE)
