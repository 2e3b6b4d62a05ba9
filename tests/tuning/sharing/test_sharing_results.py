"""Searches that share work give scikit-learn's results, errors and warnings; the report says what was saved."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.model_selection as scikit_learn
from search_equality import require_same_results
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from dmlgbm.sklearn_api import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.tuning.search import GridSearchCV, HalvingGridSearchCV
from dmlgbm.tuning.sharing import shared_fit
from dmlgbm.tuning.sharing.limited_cache import LimitedCache

N_ROWS = 240


def make_rows(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(N_ROWS, 3)), columns=["a", "b", "c"])
    frame.loc[random.random(N_ROWS) < 0.1, "b"] = np.nan
    frame["town"] = pd.Categorical(random.choice(list("xyzw"), N_ROWS))
    return frame, (frame["a"] + (frame["town"] == "x") + random.normal(size=N_ROWS) / 2).to_numpy()


def small(kind: Any, **parameters: Any) -> Any:
    return kind(num_leaves=5, min_child_samples=5, n_jobs=1, **parameters)


def assert_shared_equals_scikit_learn(estimator: Any, grid: Any, *rows: Any, fit: Any = None, **options: Any) -> Any:
    """Run scikit-learn's search and ours with and without sharing; returns ours."""
    fit = fit or {}
    theirs = scikit_learn.GridSearchCV(estimator, grid, **options).fit(*rows, **fit)
    for share_work in (False, True):
        ours = GridSearchCV(estimator, grid, n_jobs=1, share_work=share_work, **options).fit(*rows, **fit)
        require_same_results(ours, theirs)
    return ours


POOL: dict[str, list[Any]] = {
    "n_estimators": [1, 2, 3, 5, 8],
    "num_leaves": [2, 4, 7],
    "max_bin": [4, 255],
    "learning_rate": [0.1, 0.5, -1.0],
    "subsample_freq": [0, 1],
    "random_state": [None, 3],
    "early_stopping": [False, True],
}


def drawn_search(seed: int) -> tuple[Any, dict[str, list[Any]], tuple[Any, ...], dict[str, Any]]:
    """An estimator, a grid, rows and options, with values that fail among them."""
    random = np.random.default_rng(seed)
    names = ["n_estimators", *random.choice(list(POOL)[1:], 2, replace=False)]
    grid = {name: [POOL[name][k] for k in random.permutation(len(POOL[name]))[:3]] for name in names}
    frame, latent = make_rows(seed)
    cv = [KFold(3), ShuffleSplit(2, random_state=seed), GroupKFold(3)][seed % 3]
    options: dict[str, Any] = {"cv": cv, "return_train_score": bool(seed % 2), "refit": False}
    if seed % 2:
        options["scoring"] = ["neg_mean_absolute_error", "r2"]
        return small(DMLGBMRegressor, subsample=0.8), grid, (frame, latent), options
    options["scoring"] = ["accuracy", "neg_log_loss"][seed // 2 % 2]
    return small(DMLGBMClassifier), grid, (frame, np.digitize(latent, [0, 1][: 1 + seed // 4 % 2])), options


def check_drawn_search(seed: int) -> None:
    estimator, grid, rows, options = drawn_search(seed)
    fit = {"groups": np.arange(N_ROWS) % 7} if isinstance(options["cv"], GroupKFold) else {}
    if seed % 4 == 1:
        fit["sample_weight"] = np.random.default_rng(seed).random(N_ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_shared_equals_scikit_learn(estimator, grid, *rows, fit=fit, **options)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(4))
def test_drawn_searches_give_scikit_learns_results(seed: int) -> None:
    check_drawn_search(seed)


@pytest.mark.property_long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4, 64))
def test_many_drawn_searches_give_scikit_learns_results(seed: int) -> None:
    check_drawn_search(seed)


def test_the_report_counts_what_was_run_and_saved() -> None:
    frame, latent = make_rows(0)
    grid = {"n_estimators": [2, 6, 4], "num_leaves": [3, 5], "max_bin": [7, 255]}
    ours = assert_shared_equals_scikit_learn(small(DMLGBMRegressor), grid, frame, latent, cv=2, refit=False)
    assert ours.search_report_.counters == {
        "fits": 8,
        "fits_continued": 16,
        "folds_prepared": 4,
        "preparations_saved": 20,
        "trees_grown": 8 * 6,
        "trees_saved": 8 * (2 + 4),
    }


@pytest.mark.processes
def test_two_workers_share_as_one_does() -> None:
    frame, latent = make_rows(1)
    grid = {"n_estimators": [2, 4], "num_leaves": [3, 5]}
    options = {"cv": 3, "return_train_score": True}
    theirs = scikit_learn.GridSearchCV(small(DMLGBMRegressor), grid, **options).fit(frame, latent)
    ours = GridSearchCV(small(DMLGBMRegressor), grid, n_jobs=2, **options).fit(frame, latent)
    require_same_results(ours, theirs)
    assert ours.best_estimator_.booster_.to_bytes() == theirs.best_estimator_.booster_.to_bytes()
    assert ours.search_report_.counters["trees_grown"] == 6 * 4


@pytest.mark.parametrize("kept", ["whole", "pickled", "nothing"])
def test_halving_goes_on_from_round_to_round(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kept == "pickled":
        monkeypatch.setattr(shared_fit, "_BYTES_KEPT_AS_THEY_ARE", 0)
    if kept == "nothing":  # whatever is lost on the way is made again
        monkeypatch.setattr(LimitedCache, "take", lambda self, key: None)
    frame, latent = make_rows(2)
    grid = {"num_leaves": [3, 4, 5, 6], "learning_rate": [0.1, 0.3]}
    options = {"resource": "n_estimators", "min_resources": 2, "max_resources": 8, "factor": 2, "cv": 2}
    theirs = scikit_learn.HalvingGridSearchCV(small(DMLGBMRegressor), grid, random_state=0, **options)
    ours = HalvingGridSearchCV(small(DMLGBMRegressor), grid, random_state=0, n_jobs=1, **options)
    require_same_results(ours.fit(frame, latent), theirs.fit(frame, latent))
    asked = 2 * (8 * 2 + 4 * 4 + 2 * 8)
    saved = 0 if kept == "nothing" else 2 * (4 * 2 + 2 * 4)
    assert ours.search_report_.counters["trees_saved"] == saved
    assert ours.search_report_.counters["trees_grown"] == asked - saved


def test_halving_over_rows_shares_no_runs() -> None:
    frame, latent = make_rows(3)
    grid = {"num_leaves": [3, 4, 5, 6]}
    options = {"min_resources": 60, "factor": 2, "cv": 2, "random_state": 0}
    theirs = scikit_learn.HalvingGridSearchCV(small(DMLGBMRegressor, n_estimators=3), grid, **options)
    ours = HalvingGridSearchCV(small(DMLGBMRegressor, n_estimators=3), grid, n_jobs=1, **options)
    require_same_results(ours.fit(frame, latent), theirs.fit(frame, latent))
    assert ours.search_report_.counters["fits_continued"] == 0


def test_rankers_share_with_their_queries() -> None:
    frame, latent = make_rows(4)
    queries = np.arange(N_ROWS) // 12

    def mean_grade_on_top(estimator: Any, X: Any, y: Any) -> float:
        return float(y[np.argsort(-estimator.predict(X), kind="stable")[:10]].mean())

    ours = assert_shared_equals_scikit_learn(
        small(DMLGBMRanker),
        {"n_estimators": [2, 5], "learning_rate": [0.1, 0.3]},
        frame,
        np.clip(latent, 0, 3).astype(int),
        fit={"qid": queries},
        cv=[(np.flatnonzero(queries % 3 != k), np.flatnonzero(queries % 3 == k)) for k in range(3)],
        scoring=mean_grade_on_top,
        refit=False,
    )
    assert ours.search_report_.counters["trees_saved"] == 3 * 2 * 2


class FailsOnSharedRows(DMLGBMRegressor):
    """Its hooks do not do what they promise; its own `fit` does."""

    def fit_prepared(self, *given: Any, **more: Any) -> Any:
        raise RuntimeError("not on these rows")


def test_fits_that_fail_on_shared_rows_run_on_their_own_and_are_counted() -> None:
    frame, latent = make_rows(0)
    ours = assert_shared_equals_scikit_learn(
        small(FailsOnSharedRows), {"num_leaves": [3, 5]}, frame, latent, cv=2, refit=False
    )
    assert ours.search_report_.counters["sharing_failed"] >= 4
    assert "sharing failed" in str(ours.search_report_)


def test_a_failed_fit_and_a_failed_scorer_look_as_they_do_in_scikit_learn() -> None:
    frame, latent = make_rows(5)
    grid = {"n_estimators": [2, 4], "learning_rate": [0.1, "fast"]}

    def scorer(estimator: Any, X: Any, y: Any) -> float:
        if estimator.n_iter_ == 4 and len(X) == N_ROWS // 2:
            raise RuntimeError("no score")
        return float(-np.abs(estimator.predict(X) - y).mean())

    caught = []
    for search, options in ((scikit_learn.GridSearchCV, {}), (GridSearchCV, {"n_jobs": 1})):
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            fitted = search(
                small(DMLGBMRegressor, subsample=0.5), grid, cv=2, scoring=scorer, error_score=-9.0, **options
            ).fit(frame, latent)
        caught.append((fitted, sorted((each.category.__name__, str(each.message)[:60]) for each in noted)))
    (theirs, their_warnings), (ours, our_warnings) = caught
    require_same_results(ours, theirs)
    assert our_warnings == their_warnings
    with pytest.raises(TypeError, match="learning_rate must be a number"):
        GridSearchCV(small(DMLGBMRegressor), grid, n_jobs=1, error_score="raise").fit(frame, latent)


class CountingScaler(TransformerMixin, BaseEstimator):
    """Warns and counts every fit."""

    fits = 0

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift

    def fit(self, X: Any, y: Any = None) -> CountingScaler:
        type(self).fits += 1
        warnings.warn("scaled", UserWarning, stacklevel=1)
        self.mean_ = np.asarray(X).mean(axis=0) + self.shift
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X) - self.mean_


class Overwriting(Ridge):
    """Spoils the rows that it was given."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Overwriting:
        super().fit(X, y, sample_weight)
        X[:] = 0.0
        return self


@pytest.mark.parametrize("final", [small(DMLGBMRegressor), Overwriting(), Ridge()])
def test_steps_before_the_last_are_fitted_once_for_a_fold(final: Any) -> None:
    frame, latent = make_rows(6)
    table = frame[["a", "c"]].to_numpy()
    axis = {"final__n_estimators": [2, 4]} if isinstance(final, DMLGBMRegressor) else {"final__alpha": [0.1, 1.0]}
    pipeline = Pipeline([("scale", MinMaxScaler()), ("count", CountingScaler()), ("final", final)])
    grid = {"count__shift": [0.0, 1.0], "scale": [MinMaxScaler(), "passthrough"], **axis}
    options = {"cv": 3, "refit": False, "return_train_score": True}
    fits, caught = [], []
    for search, more in ((scikit_learn.GridSearchCV, {}), (GridSearchCV, {"n_jobs": 1})):
        CountingScaler.fits = 0
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            caught.append((search(pipeline, grid, **options, **more).fit(table, latent), len(noted)))
        fits.append(CountingScaler.fits)
    (theirs, n_theirs), (ours, n_ours) = caught
    require_same_results(ours, theirs)
    assert n_ours == n_theirs
    assert fits == [3 * 8, 3 * 4]
    assert ours.search_report_.counters["steps_fitted"] == 3 * (1 + 2 + 2)


def test_fitted_pipelines_do_not_share_their_steps() -> None:
    frame, latent = make_rows(7)
    pipeline = Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])
    grid = {"model__C": [0.1, 1.0]}
    fitted: list[Any] = []

    def remember(estimator: Any, X: Any, y: Any) -> float:
        fitted.append(estimator)
        return float(estimator.score(X, y))

    GridSearchCV(pipeline, grid, cv=2, n_jobs=1, scoring=remember, refit=False).fit(frame[["a", "c"]], latent > 0)
    assert len({id(each.named_steps["scale"]) for each in fitted}) == 4
    assert all(each.memory is None and "fit" not in vars(each) for each in fitted)
    assert all(pickle.loads(pickle.dumps(each)).predict(frame[["a", "c"]]) is not None for each in fitted)


class OwnFit(DMLGBMRegressor):
    """A subclass with a `fit` that the hooks know nothing of."""

    def fit(self, X: Any, y: Any, **fit_params: Any) -> OwnFit:
        return super().fit(X, -np.asarray(y), **fit_params)


def test_a_subclass_with_its_own_fit_shares_nothing() -> None:
    frame, latent = make_rows(8)
    ours = assert_shared_equals_scikit_learn(small(OwnFit), {"n_estimators": [2, 4]}, frame, latent, cv=2, refit=False)
    assert ours.search_report_.counters["fits"] == 4
    assert ours.search_report_.counters["trees_saved"] == 0
