"""Leaves are drawn to their parents as LightGBM draws them, and gains are multiplied as it multiplies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.gbdt.parameters import ParameterError

RANDOM = np.random.default_rng(5)
# Few values, so that every library cuts the same bins.
X = RANDOM.integers(0, 12, (3000, 4)).astype(float)
Y = (np.sin(X[:, 0]) + (X[:, 1] > 6) * X[:, 2] / 4 + RANDOM.normal(size=3000)).round(3)
ONE_TREE: dict[str, Any] = {"n_estimators": 1, "learning_rate": 1.0, "num_leaves": 12, "min_child_samples": 5}


@pytest.mark.parity
@pytest.mark.parametrize(
    "options",
    [
        {"path_smooth": 30.0},
        # LightGBM rates a leaf as it is by a value that is smoothed twice, which moves it in the order of splitting.
        {"path_smooth": 150.0, "reg_lambda": 3.0, "max_depth": 3},
        {"feature_contri": [0.05, 1.0, 2.0, 1.0]},
        {"feature_contri": [0.0, 1.0, 1.0, 0.5], "path_smooth": 10.0},
    ],
    ids=str,
)
def test_a_tree_is_that_of_lightgbm(options: dict[str, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    own = DMLGBMRegressor(**ONE_TREE, **options, precision="exact").fit(X, Y)
    peer = lightgbm.LGBMRegressor(
        **ONE_TREE, **options, verbose=-1, n_jobs=1, min_data_in_bin=1, min_child_weight=1e-3
    ).fit(X, Y)
    assert own.predict(X) == pytest.approx(peer.predict(X), abs=1e-5)
    assert own.booster_.trees[0].n_leaves >= 8


def test_heavier_smoothing_keeps_leaves_nearer_to_the_mean() -> None:
    spreads = [
        np.ptp(DMLGBMRegressor(**ONE_TREE, path_smooth=smoothing).fit(X, Y).predict(X))
        for smoothing in (0.0, 10.0, 100.0, 10_000.0)
    ]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[3] < 0.3 * spreads[0]


def test_a_tree_without_rows_adds_nothing() -> None:
    with pytest.warns(UserWarning, match="subsample"):
        model = DMLGBMRegressor(n_estimators=3, path_smooth=5.0, subsample=1e-9, subsample_freq=1).fit(X[:50], Y[:50])
    assert np.ptp(model.predict(X)) == 0.0
    assert np.isfinite(model.predict(X)).all()


def test_threads_do_not_change_the_model() -> None:
    x = RANDOM.normal(size=(40_001, 6))
    options: dict[str, Any] = {"n_estimators": 3, "num_leaves": 60, "path_smooth": 7.0, "feature_contri": [0.5] * 6}
    models = [DMLGBMClassifier(**options, n_jobs=n_jobs).fit(x, x[:, 0] * x[:, 1] > 0) for n_jobs in (1, 2, 3)]
    assert len({model.booster_.to_bytes() for model in models}) == 1


def model_bytes(**options: Any) -> bytes:
    return (
        DMLGBMRegressor(n_estimators=3, n_jobs=1, **options)
        .fit(pd.DataFrame(X, columns=list("abcd")), Y)
        .booster_.to_bytes()
    )


def test_factors_by_position_and_by_name_mean_the_same() -> None:
    expected = model_bytes(feature_contri=[0.5, 1, 1, 0])
    for name in ("feature_contri", "feature_contrib", "feature_penalty", "fc", "fp"):
        assert model_bytes(**{name: {"d": 0, "a": 0.5}}) == expected
    assert model_bytes(feature_contri="0.5,1,1,0") == expected
    assert model_bytes() != expected
    assert model_bytes(feature_contri=[1.0] * 4) == model_bytes(path_smooth=0) == model_bytes()


def test_a_factor_of_nothing_keeps_a_column_out() -> None:
    model = DMLGBMRegressor(n_estimators=5, feature_contri=[0, 1, 1, 1]).fit(X, Y)
    assert model.feature_importances_[0] == 0
    assert DMLGBMRegressor(n_estimators=5).fit(X, Y).feature_importances_[0] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path_smooth": -1.0}, "path_smooth=-1.0 is out of range"),
        ({"path_smooth": float("inf")}, "path_smooth=inf is out of range"),
        ({"path_smooth": 1.0, "objective": "l1"}, "path_smooth=1.0 smooths steps.*objective='l1'"),
        ({"path_smooth": 1.0, "objective": "quantile"}, "path_smooth=1.0 smooths steps"),
        ({"feature_contri": [0.5]}, "feature_contri lists 1 columns, but X has 4"),
        ({"feature_contri": [1.0, -0.5, 1, 1]}, "feature_contri has the entry -0.5"),
        ({"feature_contri": [1.0, None, 1, 1]}, "feature_contri has the entry None"),
        ({"feature_contri": {"a": 2.0}}, "feature_contri goes by column names, but X has none"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        DMLGBMRegressor(**options).fit(X, Y)
