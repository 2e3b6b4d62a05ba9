"""Searches give scikit-learn's results: on any number of workers, whatever is shared, for any splitter and scorer."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from search_equality import require_same_column, require_same_results
from search_models import FussyTree
from sklearn import model_selection
from sklearn.ensemble import RandomForestClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import dmlgbm
from dmlgbm import DMLGBMClassifier

pytestmark = pytest.mark.processes

TREES = ({"max_depth": [1, 2, 3]}, {"max_depth": [2, 5], "bad_depths": [(), (5,)]})
BOOSTED = ({"n_estimators": [3, 6, 10], "num_leaves": [4, 7]}, {"learning_rate": [0.1, 0.4], "max_bin": [15, 63]})
PIPES = ({"select__k": [2, 4], "model__n_estimators": [3, 8]},)


def _estimators(kind: str) -> Any:
    if kind == "tree":
        return FussyTree()
    boosted = DMLGBMClassifier(n_estimators=5, num_leaves=4)
    return boosted if kind == "boosted" else Pipeline([("select", SelectKBest()), ("model", boosted)])


searches = st.sampled_from([("tree", grid) for grid in TREES] + [("boosted", grid) for grid in BOOSTED]).flatmap(
    lambda chosen: st.fixed_dictionaries(
        {
            "kind": st.just(chosen[0]),
            "grid": st.just(chosen[1]),
            "cv": st.sampled_from(
                [2, KFold(3, shuffle=True, random_state=1), StratifiedKFold(3), ShuffleSplit(2, random_state=0)]
            ),
            "scoring": st.sampled_from([None, "neg_log_loss", ["accuracy", "roc_auc"], {"a": "f1", "b": "accuracy"}]),
            "return_train_score": st.booleans(),
            "share_work": st.booleans(),
        }
    )
)


def _require_same(drawn: dict[str, Any], rows: Any, n_jobs: int) -> None:
    X, y = rows
    drawn = dict(drawn)
    kind, grid, share_work = drawn.pop("kind"), drawn.pop("grid"), drawn.pop("share_work")
    drawn["refit"] = next(iter(drawn["scoring"])) if isinstance(drawn["scoring"], list | dict) else True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = model_selection.GridSearchCV(_estimators(kind), grid, **drawn).fit(X, y)
        ours = dmlgbm.GridSearchCV(
            _estimators(kind), grid, **drawn, n_jobs=n_jobs, share_work=share_work, backend="local"
        ).fit(X, y)
    require_same_results(ours, theirs)


@given(drawn=searches, n_jobs=st.sampled_from([1, 2]))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_grid_search_is_bit_equal_to_scikit_learns(drawn: dict[str, Any], n_jobs: int, rows: Any) -> None:
    _require_same(drawn, rows, n_jobs)


@pytest.mark.property_long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("n_jobs", [1, 2, 4])
@given(drawn=searches)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_many_grid_searches_are_bit_equal_to_scikit_learns(n_jobs: int, drawn: dict[str, Any], rows: Any) -> None:
    _require_same(drawn, rows, n_jobs)


@pytest.mark.parametrize("resource", ["n_samples", "n_estimators"])
def test_halving_is_bit_equal_to_scikit_learns(resource: str, rows: Any) -> None:
    X, y = rows
    options: dict[str, Any] = {"resource": resource, "random_state": 3, "cv": 3, "n_candidates": 6}
    if resource == "n_estimators":
        options |= {"min_resources": 2, "max_resources": 12}
    space = {"num_leaves": [2, 3, 4, 6, 8], "learning_rate": [0.05, 0.1, 0.3]}
    theirs = model_selection.HalvingRandomSearchCV(DMLGBMClassifier(n_estimators=4), space, **options).fit(X, y)
    for n_jobs in (1, 2):
        ours = dmlgbm.HalvingRandomSearchCV(DMLGBMClassifier(n_estimators=4), space, **options, n_jobs=n_jobs)
        require_same_results(ours.fit(X, y), theirs)
        assert ours.n_resources_ == theirs.n_resources_
        assert ours.n_candidates_ == theirs.n_candidates_
        assert ours.best_estimator_.booster_.to_bytes() == theirs.best_estimator_.booster_.to_bytes()


def test_random_search_over_a_pipeline_with_groups_weights_and_callables(rows: Any) -> None:
    X, y = rows
    groups = np.arange(len(y)) % 7
    pipeline = Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])
    space = {"model__C": [0.01, 0.1, 1.0, 10.0], "scale": [StandardScaler(), "passthrough"]}
    options: dict[str, Any] = {
        "n_iter": 5,
        "random_state": 1,
        "cv": GroupKFold(3),
        "scoring": _two_scores,
        "refit": _second_best,
        "return_train_score": True,
    }
    given_to_fit = {"groups": groups, "model__sample_weight": 1.0 + y}
    theirs = model_selection.RandomizedSearchCV(pipeline, space, **options).fit(X, y, **given_to_fit)
    ours = dmlgbm.RandomizedSearchCV(pipeline, space, **options, n_jobs=2).fit(X, y, **given_to_fit)
    require_same_results(ours, theirs)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def _two_scores(estimator: Any, X: Any, y: Any) -> dict[str, float]:
    return {"right": float(estimator.score(X, y)), "sure": float(estimator.predict_proba(X).max(axis=1).mean())}


def _second_best(results: dict[str, Any]) -> int:
    return int(np.argsort(results["mean_test_sure"])[-2])


def test_cross_validate_gives_scikit_learns_scores(rows: Any) -> None:
    X, y = rows
    model = RandomForestClassifier(5, random_state=0)
    folds = [(np.arange(100, 300), np.arange(100)), (np.arange(200), np.arange(200, 300))]
    options: dict[str, Any] = {"scoring": ["accuracy", "roc_auc"], "return_train_score": True}
    theirs = model_selection.cross_validate(model, X, y, cv=iter(folds), return_estimator=True, **options)
    ours = dmlgbm.cross_validate(model, X, y, cv=iter(folds), return_estimator=True, n_jobs=2, **options)
    assert list(ours) == list(theirs)
    for name in theirs:
        if not name.endswith("_time") and name != "estimator":
            require_same_column(np.ma.asarray(ours[name]), np.ma.asarray(theirs[name]), name)
    for mine, other in zip(ours["estimator"], theirs["estimator"], strict=True):
        np.testing.assert_array_equal(mine.predict_proba(X), other.predict_proba(X))
    np.testing.assert_array_equal(
        dmlgbm.cross_val_score(model, X, y, cv=iter(folds), n_jobs=2),
        model_selection.cross_val_score(model, X, y, cv=iter(folds)),
    )


def test_a_search_inside_a_search_runs_where_it_is(rows: Any) -> None:
    X, y = rows

    def nested(package: Any, **options: Any) -> Any:
        inner = package.GridSearchCV(FussyTree(), {"max_depth": [1, 3]}, cv=2, **options)
        return package.GridSearchCV(inner, {"estimator__random_state": [0, 1]}, cv=2, **options).fit(X, y)

    require_same_results(nested(dmlgbm, n_jobs=2), nested(model_selection))


def test_warnings_of_fits_on_workers_reach_the_client(rows: Any) -> None:
    X, y = rows
    search = dmlgbm.GridSearchCV(LogisticRegression(max_iter=1), {"C": [1.0, 2.0]}, cv=2, n_jobs=2, refit=False)
    with pytest.warns(UserWarning, match="failed to converge"):
        search.fit(X, y)


def test_a_fitted_search_can_be_pickled_and_cloned(rows: Any) -> None:
    X, y = rows
    search = dmlgbm.GridSearchCV(FussyTree(), {"max_depth": [1, 2]}, cv=2).fit(X, y)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert again.search_report_.calls_answered == 4


@pytest.mark.processes
def test_a_local_search_loads_neither_dask_nor_spark() -> None:
    script = """
import sys
import numpy as np
from sklearn.dummy import DummyClassifier
from dmlgbm import GridSearchCV
class Mine(DummyClassifier):  # classes of the script itself travel to the workers
    pass
X, y = np.zeros((20, 1)), np.arange(20) % 2
search = GridSearchCV(Mine(), {"strategy": ["prior", "uniform"]}, cv=2, n_jobs=2).fit(X, y)
assert search.search_report_.calls_answered == 4
assert not {"dask", "distributed", "pyspark", "numba"} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100, cwd=".")


@pytest.mark.parametrize("name", [name for name in dmlgbm.__all__ if name.endswith("SearchCV")])
def test_the_html_view_of_a_search_warns_of_nothing(name: str) -> None:
    search = getattr(dmlgbm, name)(DMLGBMClassifier(), {"num_leaves": [3, 5]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert name in search._repr_html_()
