"""Searches on Spark give scikit-learn's results, place their data once, stop in time and say what they need."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.tree import DecisionTreeClassifier

from dmlgbm import DMLGBMClassifier, GridSearchCV, RandomizedSearchCV
from dmlgbm.tuning.executors.base import ExecutorError


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 5))
    return X, (X[:, 0] + X[:, 1] ** 2 + rng.normal(scale=0.3, size=240) > 1).astype(int)


class SlowTree(DecisionTreeClassifier):
    """Takes a while."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        time.sleep(0.5)
        return super().fit(X, y, sample_weight, check_input)


class DyingTree(DecisionTreeClassifier):
    """Kills its process, as often as is asked for, and leaves marks; fails to be read where `unreadable`."""

    def __init__(self, max_depth: int = 1, marks: str = "", n_deaths: int = 0, unreadable: bool = False) -> None:
        super().__init__(max_depth=max_depth, random_state=0)
        self.marks = marks
        self.n_deaths = n_deaths
        self.unreadable = unreadable

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        for number in range(self.n_deaths):
            with contextlib.suppress(FileExistsError):
                (Path(self.marks) / str(number)).touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y, sample_weight, check_input)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("unreadable"):
            raise ValueError(f"{'x' * 1000} this is the cause")
        super().__setstate__(state)


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (DMLGBMClassifier(num_leaves=7), {"n_estimators": [2, 4], "learning_rate": [0.1, 0.3]}),
        pytest.param(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}, marks=pytest.mark.slow),
    ],
    ids=["sharing work", "foreign estimator"],
)
def test_search_on_spark_is_that_of_scikit_learn(spark: Any, rows: Any, estimator: Any, grid: Any) -> None:
    expected = model_selection.GridSearchCV(estimator, grid, cv=2, scoring=accuracy).fit(*rows)
    found = GridSearchCV(estimator, grid, cv=2, scoring=accuracy, backend="spark").fit(*rows)
    assert found.best_params_ == expected.best_params_
    for name, column in expected.cv_results_.items():
        if name.startswith("split"):
            assert found.cv_results_[name].tobytes() == column.tobytes(), name
    assert spark.sparkContext not in vars(found).values()


def test_folds_are_binned_once_for_all_executors(spark: Any, rows: Any) -> None:
    grid = {"max_bin": [15, 31], "learning_rate": [0.1, 0.2, 0.3], "n_estimators": [2, 3]}
    estimator = DMLGBMClassifier(num_leaves=7)
    expected = model_selection.GridSearchCV(estimator, grid, cv=2).fit(*rows)
    found = GridSearchCV(estimator, grid, cv=2, backend=spark).fit(*rows)
    assert found.cv_results_["split1_test_score"].tobytes() == expected.cv_results_["split1_test_score"].tobytes()
    assert found.search_report_.counters["folds_prepared"] == 4
    assert found.search_report_.counters["preparations_saved"] == found.search_report_.calls_asked


def accuracy(estimator: Any, X: Any, y: Any) -> float:
    return float(np.mean(estimator.predict(X) == y))


@pytest.mark.slow
def test_time_budget_ends_a_search_and_leaves_no_job_behind(spark: Any, rows: Any) -> None:
    # The first units of Python workers wait for imports.
    GridSearchCV(SlowTree(random_state=0), {"max_depth": [1, 2]}, cv=2, backend=spark).fit(*rows)
    grid = {"max_depth": list(range(1, 400))}
    started = time.monotonic()
    found = GridSearchCV(SlowTree(random_state=0), grid, cv=2, backend=spark, time_budget=10.0).fit(*rows)
    assert time.monotonic() - started < 60
    scores = found.cv_results_["mean_test_score"]
    assert np.isnan(scores).any()
    assert not np.isnan(scores).all()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def test_without_a_session_the_message_says_what_to_do(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ExecutorError, match=r"found no session: make one with .* install Java 17"):
        GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1]}, backend="spark").fit(*rows)


def test_auto_leaves_an_application_on_this_machine_alone_and_says_so(spark: Any, rows: Any) -> None:
    found = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2).fit(*rows)
    assert found.search_report_.backend == "local"
    assert 'backend="auto" chose "local": the Spark application runs on this machine' in str(found.search_report_)


def test_contexts_are_backends_also_where_spark_sklearn_has_them(spark: Any, rows: Any) -> None:
    context, tree = spark.sparkContext, DecisionTreeClassifier(random_state=0)
    grid: dict[str, Any] = {"max_depth": [1, 2]}
    searches = [
        GridSearchCV(tree, grid, cv=2, backend=context),
        GridSearchCV(context, tree, grid, cv=2),
        RandomizedSearchCV(context, tree, grid, n_iter=2, cv=2),
    ]
    assert all(clone(search).backend is context for search in searches)
    assert "backend" in searches[1].get_params()
    assert searches[1].fit(*rows).search_report_.backend == "spark"
    with pytest.raises(TypeError, match=r"X is a Spark DataFrame, and a search cuts its folds .* X.toPandas\(\)"):
        searches[0].fit(spark.range(3), "id")


@pytest.mark.slow
def test_fit_parameters_travel_with_the_bins(spark: Any, rows: Any) -> None:
    estimator, weight = DMLGBMClassifier(num_leaves=7), np.linspace(0.5, 2.0, 240)
    grid = {"learning_rate": [0.1, 0.3], "n_estimators": [2, 4]}
    expected = model_selection.GridSearchCV(estimator, grid, cv=2).fit(*rows, sample_weight=weight)
    found = GridSearchCV(estimator, grid, cv=2, backend=spark).fit(*rows, sample_weight=weight)
    assert found.cv_results_["split1_test_score"].tobytes() == expected.cv_results_["split1_test_score"].tobytes()
    assert found.search_report_.counters["folds_prepared"] == 2


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_a_lost_python_worker_of_local_mode_costs_one_attempt(spark: Any, rows: Any, tmp_path: Path) -> None:
    grid = {"max_depth": [1, 2]}
    expected = model_selection.GridSearchCV(DyingTree(), grid, cv=2).fit(*rows)
    model = DyingTree(marks=str(tmp_path), n_deaths=2)
    found = GridSearchCV(model, grid, cv=2, backend=spark).fit(*rows)
    assert found.cv_results_["mean_test_score"].tobytes() == expected.cv_results_["mean_test_score"].tobytes()
    assert found.search_report_.units_lost == len(list(tmp_path.iterdir())) == 2
    (tmp_path / "0").unlink()
    with pytest.warns(FitFailedWarning, match="given up after 1 lost workers.*Python worker exited unexpectedly"):
        GridSearchCV(model, {"max_depth": [1]}, cv=2, backend=spark, max_retries=0, n_jobs=1, refit=False).fit(*rows)


@contextlib.contextmanager
def all_slots_taken(context: Any, seconds: float) -> Iterator[None]:
    """Somebody else's job in the same application."""
    from pyspark import InheritableThread

    def run() -> None:
        context.setJobGroup("somebody else's", "", interruptOnCancel=True)
        with contextlib.suppress(Exception):  # cancelled
            context.parallelize(range(2), 2).foreach(lambda _: time.sleep(seconds))

    thread: threading.Thread = InheritableThread(target=run)
    thread.start()
    until = time.monotonic() + 60
    while not context.statusTracker().getJobIdsForGroup("somebody else's") and time.monotonic() < until:
        time.sleep(0.05)
    try:
        yield
    finally:
        context.cancelJobGroup("somebody else's")
        thread.join(60)


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_time_budget_ends_a_search_that_gets_no_slot(spark: Any, rows: Any) -> None:
    with all_slots_taken(spark.sparkContext, 100):
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="time_budget ended before any candidate"):
            GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, backend=spark, time_budget=1.0).fit(*rows)
        assert time.monotonic() - started < 50
        assert len(spark.sparkContext.statusTracker().getActiveJobsIds()) == 1


@pytest.mark.slow
def test_searches_on_a_session_are_copied_and_nested(spark: Any, rows: Any) -> None:
    inner = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2]}, cv=2, backend=spark)
    assert clone(inner).backend is spark
    theirs = model_selection.GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2]}, cv=2)
    grid = {"estimator__min_samples_leaf": [1, 9]}
    expected = model_selection.GridSearchCV(theirs, grid, cv=2).fit(*rows)
    found = GridSearchCV(inner.set_params(backend="spark"), grid, cv=2, backend=spark).fit(*rows)
    assert found.cv_results_["mean_test_score"].tobytes() == expected.cv_results_["mean_test_score"].tobytes()


@pytest.mark.slow
def test_what_a_python_worker_cannot_read_is_told_with_its_cause(spark: Any, rows: Any) -> None:
    with pytest.raises(ExecutorError, match=r"could not run a unit: .* this is the cause"):
        GridSearchCV(DyingTree(unreadable=True), {"max_depth": [1]}, cv=2, backend=spark, refit=False).fit(*rows)
