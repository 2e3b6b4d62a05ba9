"""What searches say about input they cannot use, before anything runs where that is possible."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_models import FussyTree, TracedTree, fits_in, picky_score
from sklearn import model_selection
from sklearn.pipeline import Pipeline

import dmlgbm
from dmlgbm import DMLGBMClassifier, GridSearchCV, HyperbandSearchCV
from dmlgbm.tuning.executors import registry
from dmlgbm.tuning.executors.base import ExecutorError

pytestmark = pytest.mark.processes


def test_unknown_parameters_are_refused_before_anything_runs(rows: Any, tmp_path: Path) -> None:
    grid = [{"max_depth": [1, 2]}, {"depth": [1]}]
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        GridSearchCV(TracedTree(log=str(tmp_path)), grid).fit(*rows)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        GridSearchCV(Pipeline([("tree", TracedTree())]), {"tree__depth": [1]}).fit(*rows)
    assert fits_in(tmp_path) == []


def test_parameters_of_steps_that_a_candidate_puts_in_and_aliases_are_known(rows: Any) -> None:
    pipeline = Pipeline([("model", TracedTree())])
    grid = [{"model": [DMLGBMClassifier(n_estimators=2)], "model__num_leaves": [3]}, {"model__max_depth": [2]}]
    assert len(GridSearchCV(pipeline, grid, cv=2).fit(*rows).cv_results_["params"]) == 2
    search = GridSearchCV(DMLGBMClassifier(n_estimators=2), {"num_iterations": [1, 3]}, cv=2, refit=False).fit(*rows)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("grid", [[], {"max_depth": []}])
def test_an_empty_grid_is_refused(grid: Any, rows: Any) -> None:
    with pytest.raises(ValueError, match=r"No fits were performed|empty"):
        GridSearchCV(TracedTree(), grid).fit(*rows)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_scorer_that_fails_for_some_folds_gives_error_score_there(n_jobs: int, rows: Any) -> None:
    searches = []
    for package, options in ((model_selection, {}), (dmlgbm, {"n_jobs": n_jobs})):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search = package.GridSearchCV(
                FussyTree(), {"max_depth": [1, 2]}, scoring=picky_score, cv=3, refit=False, **options
            ).fit(*rows)
        assert any("Scoring failed" in str(each.message) for each in caught)
        searches.append(search.cv_results_)
    theirs, ours = searches
    assert [bool(np.isnan(ours[f"split{fold}_test_score"]).all()) for fold in range(3)] == [True, False, False]
    for fold in range(3):
        np.testing.assert_array_equal(ours[f"split{fold}_test_score"], theirs[f"split{fold}_test_score"])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_all_candidates_failing_is_an_error_with_the_cause(n_jobs: int, rows: Any) -> None:
    with pytest.raises(ValueError, match=r"All the 4 fits failed[\s\S]*no tree of depth 2 today"):
        GridSearchCV(FussyTree(bad_depths=(1, 2)), {"max_depth": [1, 2]}, cv=2, n_jobs=n_jobs).fit(*rows)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_error_score_raise_raises_the_models_own_error(n_jobs: int, rows: Any) -> None:
    search = GridSearchCV(FussyTree(bad_depths=(2,)), {"max_depth": [1, 2]}, cv=2, n_jobs=n_jobs, error_score="raise")
    with pytest.raises(FloatingPointError, match="no tree of depth 2 today"):
        search.fit(*rows)


def test_backends_that_do_not_exist_are_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'local', 'dask', 'spark'"):
        GridSearchCV(FussyTree(), {}, backend="sparc").fit(*rows)
    with pytest.raises(TypeError, match=r"a distributed.Client, a SparkSession or a SparkContext, got 3 of type int"):
        GridSearchCV(FussyTree(), {}, backend=3).fit(*rows)


def test_dask_without_a_client_says_how_to_connect(rows: Any) -> None:
    with pytest.raises(ExecutorError, match=r"connect one with distributed.Client"):
        GridSearchCV(FussyTree(), {}, backend="dask").fit(*rows)


def test_a_backend_whose_package_is_missing_says_what_to_install(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("a_package_that_is_not_there", "open_it", "pyspark", 'pip install "dmlgbm[spark]"')
    monkeypatch.setitem(registry._DISTRIBUTED, "spark", missing)
    with pytest.raises(ExecutorError, match=r"needs pyspark.*pip install \"dmlgbm\[spark\]\""):
        GridSearchCV(FussyTree(), {}, backend="spark").fit(*rows)


def test_auto_runs_locally_in_a_process_of_spark_connect(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    search = GridSearchCV(FussyTree(), {"max_depth": [1]}, cv=2).fit(*rows)
    assert search.search_report_.backend == "local"
    assert search.search_report_.notes == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_budget": -1}, "time_budget must be None or a number of seconds above 0, got -1"),
        ({"time_budget": "long"}, "time_budget must be"),
        ({"max_retries": 1.5}, "max_retries must be a whole number from 0, got 1.5"),
        ({"n_jobs": 0}, "n_jobs == 0 has no meaning"),
    ],
)
def test_settings_out_of_range_are_named(options: dict[str, Any], message: str, rows: Any) -> None:
    with pytest.raises(ValueError, match=message):
        GridSearchCV(FussyTree(), {}, backend="local", **options).fit(*rows)


@pytest.mark.parametrize("n_jobs", ["two", 1.5, True])
def test_numbers_of_jobs_that_are_no_whole_numbers_are_refused(n_jobs: Any, rows: Any) -> None:
    with pytest.raises(TypeError, match=f"n_jobs must be None or a whole number, got {n_jobs!r}"):
        GridSearchCV(FussyTree(), {}, n_jobs=n_jobs).fit(*rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resource": "trees"}, "resource='trees' is neither 'n_samples' nor a parameter of FussyTree"),
        ({"resource": "max_depth"}, "max_resources='auto' needs resource='n_samples'"),
        ({"max_resources": 500}, "max_resources=500 is more than the 300 rows"),
        ({"max_resources": 10, "min_resources": 20}, "min_resources=20 is more than max_resources=10"),
        ({"factor": 1}, "factor must be a number above 1, got 1"),
        ({"resource": "max_depth", "max_resources": 4}, "resource='max_depth' is searched over too"),
    ],
)
def test_hyperband_names_what_is_wrong_with_its_resources(options: dict[str, Any], message: str, rows: Any) -> None:
    with pytest.raises(ValueError, match=message):
        HyperbandSearchCV(FussyTree(), {"max_depth": [1, 2]}, cv=2, **options).fit(*rows)
