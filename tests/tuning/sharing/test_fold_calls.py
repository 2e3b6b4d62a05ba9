"""Calls on the shared rows of a fold: the results of scikit-learn's function, and nothing that calls can spoil."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.model_selection as scikit_learn
from search_equality import require_same_results
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.metrics import make_scorer

from dmlgbm.sklearn_api import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.tuning.search import GridSearchCV, HalvingGridSearchCV
from dmlgbm.tuning.sharing import shared_fit
from dmlgbm.tuning.validation import cross_validate

GRID = {"n_estimators": [2, 4], "num_leaves": [3, 5]}
N_CALLS = 4 * 3
HALVED = {"num_leaves": [3, 5, 7], "learning_rate": [0.1, 0.3]}


@pytest.fixture
def by_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that scikit-learn's function has run."""
    calls: list[Any] = []
    run_call = shared_fit.run_call

    def counted(call: Any, *given: Any) -> Any:
        calls.append(call)
        return run_call(call, *given)

    monkeypatch.setattr(shared_fit, "run_call", counted)
    return calls


def make_rows(n_classes: int = 3) -> tuple[Any, Any]:
    random = np.random.default_rng(n_classes)
    X = random.normal(size=(180, 4))
    return X, np.digitize(X[:, 0] + random.normal(size=180) / 2, np.linspace(-1.5, 1.5, n_classes - 1))


def require_same(estimator: Any, X: Any, y: Any, **options: Any) -> None:
    options = {"cv": 3, "return_train_score": True, "refit": False} | options
    theirs = scikit_learn.GridSearchCV(estimator, GRID, **options).fit(X, y)
    require_same_results(GridSearchCV(estimator, GRID, n_jobs=1, **options).fit(X, y), theirs)


def small(kind: Any = DMLGBMClassifier, **parameters: Any) -> Any:
    return kind(min_child_samples=5, n_jobs=1, **parameters)


@pytest.mark.parametrize(
    "labels",
    [lambda y: y, lambda y: y > 0, lambda y: np.array(list("abc"))[y], lambda y: y.astype(float), lambda y: y.tolist()],
    ids=["integers", "truth values", "text", "floats", "list"],
)
def test_accuracy_of_all_kinds_of_labels(labels: Any, by_scikit_learn: list[Any]) -> None:
    X, y = make_rows()
    require_same(small(), X, labels(y))
    assert not by_scikit_learn


@pytest.mark.parametrize("scoring", ["roc_auc_ovr", "neg_log_loss", ["accuracy", "f1_macro"], {"mine": "accuracy"}])
def test_scorers_of_scikit_learn(scoring: Any, by_scikit_learn: list[Any]) -> None:
    require_same(small(), *make_rows(), scoring=scoring, refit=False)
    assert not by_scikit_learn


def test_regression_scores(by_scikit_learn: list[Any]) -> None:
    X, _ = make_rows()
    require_same(small(DMLGBMRegressor), X, X[:, 0] * 2)
    assert not by_scikit_learn


def doubling_scorer(estimator: Any, X: Any, y: Any) -> float:
    X *= 2
    y[:] = 0
    return float(np.mean(estimator.predict(X)))


def doubling_metric(y: Any, predicted: Any) -> float:
    y += 1
    return float(np.mean(y == predicted))


@pytest.mark.parametrize("scoring", [doubling_scorer, make_scorer(doubling_metric)], ids=["scorer", "metric"])
def test_scorers_that_write_to_their_rows_get_rows_of_their_own(scoring: Any, by_scikit_learn: list[Any]) -> None:
    require_same(small(), *make_rows(), scoring=scoring)
    assert len(by_scikit_learn) == N_CALLS


class Centring(DMLGBMClassifier):
    """Writes to its rows, unless it shares."""

    def preparation_key(self, **fit_params: Any) -> Any:
        return ("centring", self.max_bin) if self.max_bin > 20 else None

    def prepare(self, X: Any, y: Any, **fit_params: Any) -> Any:
        return X - X.min(), y

    def fit_prepared(self, prepared: Any) -> Any:
        return super().fit(*prepared)

    def stage_parameter(self, **fit_params: Any) -> None:
        return None

    def fit(self, X: Any, y: Any) -> Any:
        X -= X.min()
        return super().fit(X, y)


def test_an_own_fit_gets_rows_of_its_own(by_scikit_learn: list[Any]) -> None:
    grid = {"max_bin": [10, 30]}
    options: dict[str, Any] = {"cv": 3, "refit": False}
    X, y = make_rows()
    theirs = scikit_learn.GridSearchCV(small(Centring, n_estimators=2), grid, **options).fit(X, y)
    require_same_results(GridSearchCV(small(Centring, n_estimators=2), grid, n_jobs=1, **options).fit(X, y), theirs)
    assert [call.parameters["max_bin"] for call in by_scikit_learn] == [10] * 3


@pytest.mark.parametrize("error_score", [np.nan, 0.25])
def test_fits_that_fail(error_score: float, by_scikit_learn: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"cv": 3, "refit": False, "error_score": error_score, "return_train_score": True}
        grid = {"learning_rate": [0.1, -1.0]}
        X, y = make_rows()
        theirs = scikit_learn.GridSearchCV(small(n_estimators=2), grid, **options).fit(X, y)
        ours = GridSearchCV(small(n_estimators=2), grid, n_jobs=1, **options).fit(X, y)
    require_same_results(ours, theirs)
    assert [call.parameters["learning_rate"] for call in by_scikit_learn] == [-1.0] * 3
    assert ours.search_report_.counters["fits"] == 6


def test_an_error_is_raised_if_it_is_asked_for() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        GridSearchCV(small(), {"learning_rate": [-1.0]}, cv=3, error_score="raise", n_jobs=1).fit(*make_rows())


def test_fitted_estimators_predict_rows_that_have_changed(by_scikit_learn: list[Any]) -> None:
    X, y = make_rows()
    fitted = cross_validate(small(n_estimators=3), X, y, cv=3, return_estimator=True, n_jobs=1)["estimator"]
    assert not by_scikit_learn
    predicted = [each.predict(X) for each in fitted]
    X[:] = X[::-1].copy()
    for each, before in zip(fitted, predicted, strict=True):
        np.testing.assert_array_equal(each.predict(X), before[::-1])


def test_halving_over_rows_bins_each_fold_of_a_round_once(by_scikit_learn: list[Any]) -> None:
    X, y = make_rows()
    options: dict[str, Any] = {"cv": 3, "min_resources": 60, "factor": 2, "random_state": 0, "refit": False}
    theirs = scikit_learn.HalvingGridSearchCV(small(n_estimators=3), HALVED, **options).fit(X, y)
    ours = HalvingGridSearchCV(small(n_estimators=3), HALVED, n_jobs=1, **options).fit(X, y)
    require_same_results(ours, theirs)
    assert not by_scikit_learn
    assert ours.n_resources_ == [60, 120]
    assert ours.search_report_.counters["folds_prepared"] == 2 * 3
