"""Where sharing reaches: early stopping, pipelines in pipelines; and what the report says where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.model_selection as scikit_learn
from search_equality import require_same_results
from sklearn.calibration import CalibratedClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dmlgbm.sklearn_api import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.sklearn_api.sharing import prepared_rows
from dmlgbm.tuning.search import GridSearchCV

SMALL: dict[str, Any] = {"num_leaves": 4, "min_child_samples": 5, "n_jobs": 1}


def table(kind: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(240, 4))
    X[random.random(X.shape) < 0.05] = np.nan
    signal = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + random.normal(scale=0.5, size=240)
    if kind is DMLGBMRegressor:
        return X, signal
    return X, np.digitize(signal, np.quantile(signal, [0.4, 0.8]))


@pytest.mark.parametrize("kind", [DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker])
def test_early_stopping_bins_each_fold_once(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(kind)
    model = kind(n_estimators=30, early_stopping=True, early_stopping_rounds=2, **SMALL)
    grid: dict[str, list[Any]] = {"learning_rate": [0.2, 0.5], "reg_lambda": [0.0, 5.0], "n_estimators": [3, 30]}
    fit: dict[str, Any] = {"sample_weight": np.linspace(0.5, 2.0, 240)}
    if kind is DMLGBMClassifier:
        grid["class_weight"] = [None, "balanced"]
    if kind is DMLGBMRanker:
        fit = {"qid": np.arange(240) // 12}
    options: dict[str, Any] = {"cv": 2, "return_train_score": True, "scoring": _mean}
    theirs = scikit_learn.GridSearchCV(model, grid, **options).fit(X, y, **fit)
    binned: list[int] = []
    bin_table = prepared_rows.bin_table

    def counting(rows: Any, *given: Any) -> Any:
        binned.append(rows.n_rows)
        return bin_table(rows, *given)

    monkeypatch.setattr(prepared_rows, "bin_table", counting)
    ours = GridSearchCV(model, grid, **options, n_jobs=1).fit(X, y, **fit)
    require_same_results(ours, theirs)
    # Bins are cut by weights, which those of classes are a part of.
    n_folds = 2 * len(grid.get("class_weight", [None]))
    assert len(binned) == n_folds
    assert all(n_rows < 120 for n_rows in binned)
    assert ours.search_report_.counters["folds_prepared"] == n_folds
    assert "early stopping decides about the length" in str(ours.search_report_)


def _mean(estimator: Any, X: Any, y: Any) -> float:
    """A score of every estimator that all trees have a part in."""
    return float(np.mean(estimator.predict(X)))


def test_validation_rows_that_differ_are_binned_anew() -> None:
    X, y = table(DMLGBMClassifier)
    model = DMLGBMClassifier(n_estimators=20, early_stopping=True, early_stopping_rounds=2, **SMALL)
    grid = {
        "validation_fraction": [0.1, 0.3],
        "random_state": [0, 1],
        "max_bin": [7, 255],
        "early_stopping": [False, True],
    }
    theirs = scikit_learn.GridSearchCV(model, grid, cv=2).fit(X, y)
    require_same_results(GridSearchCV(model, grid, cv=2, n_jobs=1).fit(X, y), theirs)


def test_rows_prepared_for_early_stopping_give_the_model_of_fit() -> None:
    X, y = table(DMLGBMRegressor)
    model = DMLGBMRegressor(n_estimators=30, early_stopping=True, early_stopping_rounds=2, **SMALL)
    prepared = model.prepare(X, y)
    assert model.stage_parameter() is None
    shared = DMLGBMRegressor(**model.get_params()).fit_prepared(prepared)
    alone = DMLGBMRegressor(**model.get_params()).fit(X, y)
    assert shared.booster_.to_bytes() == alone.booster_.to_bytes()
    assert (shared.best_iteration_, shared.best_score_) == (alone.best_iteration_, alone.best_score_)
    assert shared.evals_result_ == alone.evals_result_
    with pytest.raises(ValueError, match="early stopping decides about the length"):
        model.advance(prepared, 50, since=shared)
    with pytest.raises(ValueError, match="call prepare again"):
        DMLGBMRegressor(**SMALL).fit_prepared(prepared)


def test_rows_prepared_for_early_stopping_are_binned_by_their_weights() -> None:
    """Weights of samples and classes, of the rows that are learnt from; rows without weight are left out."""
    X, y = table(DMLGBMClassifier)
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    for more in ({}, {"validation_fraction": None}, {"scoring": "accuracy"}):
        model = DMLGBMClassifier(n_estimators=30, early_stopping=True, max_bin=15, class_weight="balanced", **SMALL)
        model.set_params(**more)
        prepared = model.prepare(X, y, sample_weight=weight)
        shared = [DMLGBMClassifier(**model.get_params()).fit_prepared(prepared) for _ in range(2)]
        alone = DMLGBMClassifier(**model.get_params()).fit(X, y, sample_weight=weight)
        for each in shared:
            assert each.booster_.to_bytes() == alone.booster_.to_bytes()
            assert each.evals_result_ == alone.evals_result_
            np.testing.assert_array_equal(each.classes_, alone.classes_)
        with pytest.raises(ValueError, match="call prepare again"):
            model.set_params(class_weight=None).fit_prepared(prepared)


def test_pipelines_in_pipelines_share_steps_bins_and_trees() -> None:
    X, y = table(DMLGBMClassifier)
    X = np.nan_to_num(X)
    inner = Pipeline([("shrink", MinMaxScaler()), ("model", DMLGBMClassifier(**SMALL))])
    nested = Pipeline([("scale", StandardScaler()), ("rest", inner)])
    grid = {"rest__model__n_estimators": [2, 5], "rest__model__learning_rate": [0.1, 0.5]}
    theirs = scikit_learn.GridSearchCV(nested, grid, cv=2).fit(X, y)
    ours = GridSearchCV(nested, grid, cv=2, n_jobs=1).fit(X, y)
    require_same_results(ours, theirs)
    counters = ours.search_report_.counters
    assert counters["steps_fitted"] == 4
    assert counters["steps_saved"] == 12
    assert counters["folds_prepared"] == 2
    assert counters["trees_saved"] == 8
    assert ours.search_report_.notes == []
    grid = {"scale__with_mean": [True, False], "rest__shrink__clip": [True, False], "rest__model__n_estimators": [2]}
    theirs = scikit_learn.GridSearchCV(nested, grid, cv=2).fit(X, y)
    require_same_results(GridSearchCV(nested, grid, cv=2, n_jobs=1).fit(X, y), theirs)


@pytest.mark.parametrize(
    ("estimator", "grid", "fit", "note"),
    [
        (
            OneVsRestClassifier(DMLGBMClassifier(n_estimators=2, **SMALL)),
            {"estimator__learning_rate": [0.1, 0.2]},
            {},
            "OneVsRestClassifier fits copies of DMLGBMClassifier itself",
        ),
        (
            CalibratedClassifierCV(DMLGBMClassifier(n_estimators=2, **SMALL), cv=2),
            {"estimator__learning_rate": [0.1, 0.2]},
            {},
            "CalibratedClassifierCV fits copies of DMLGBMClassifier itself",
        ),
        (
            DMLGBMClassifier(random_state=np.random.RandomState(0), n_estimators=2, **SMALL),
            {"learning_rate": [0.1, 0.2]},
            {},
            "random_state is a generator",
        ),
        (
            DMLGBMClassifier(n_estimators=2, **SMALL),
            {"learning_rate": [0.1, 0.2]},
            {"callbacks": [lambda state: None]},
            "fit is given callbacks",
        ),
        (
            Pipeline([("scale", StandardScaler(copy=False)), ("model", DMLGBMClassifier(n_estimators=2, **SMALL))]),
            {"model__learning_rate": [0.1, 0.2]},
            {},
            "scale__copy is False",
        ),
    ],
)
def test_the_report_says_why_nothing_is_shared(estimator: Any, grid: Any, fit: Any, note: str) -> None:
    X, y = table(DMLGBMClassifier)
    search = GridSearchCV(estimator, grid, cv=2, n_jobs=1).fit(np.nan_to_num(X), y, **fit)
    assert note in str(search.search_report_)
    assert len(search.search_report_.notes) == 1


def test_the_report_is_silent_where_sharing_is_off_or_impossible() -> None:
    X, y = table(DMLGBMClassifier)
    tree = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2).fit(X, y)
    off = GridSearchCV(
        DMLGBMClassifier(n_estimators=2, early_stopping=True), {"learning_rate": [0.1]}, cv=2, share_work=False
    ).fit(X, y)
    assert tree.search_report_.notes == off.search_report_.notes == []
