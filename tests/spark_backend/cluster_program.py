"""A Spark application in a process of its own: fits, predicts and searches on a master, and kills executors meanwhile.

`python cluster_program.py MASTER fit search` prints a line of JSON: what was the same as in this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from conftest import new_session
from sklearn import model_selection
from sklearn.tree import DecisionTreeClassifier
from spark_tables import mixed_frame, on_spark
from spark_tables import signal as signal_of

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor, GridSearchCV
from dmlgbm.gbdt.system.cores import limited_threads


class SlowTree(DecisionTreeClassifier):
    """Takes a while, so that an executor can be killed meanwhile."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        time.sleep(0.3)
        return super().fit(X, y, sample_weight, check_input)


def executor_of(_: int) -> int:
    """The process of the executor: the Python worker's parent is a daemon, and that one's parent is the executor."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def executors(session: Any, n_tasks: int = 8) -> list[int]:
    found = session.sparkContext.parallelize(range(n_tasks), n_tasks).map(executor_of).collect()
    return sorted(set(found) - {os.getpid()})


class KillAt:
    """A callback that kills an executor after some iteration, once."""

    def __init__(self, iteration: int, victim: int) -> None:
        self._iteration = iteration
        self._victim = victim
        self.seen: list[int] = []

    def __call__(self, state: Any) -> None:
        self.seen.append(state.iteration)
        if state.iteration == self._iteration:
            os.kill(self._victim, signal.SIGKILL)


def fit_with_a_loss(session: Any) -> dict[str, Any]:
    table = mixed_frame(6000)
    table = table.assign(target=signal_of(table))
    X, y = table.drop(columns="target"), table["target"]
    settings = {"n_estimators": 60, "num_leaves": 31, "tree_learner": "data"}
    expected = DMLGBMRegressor(**settings).fit(X, y)
    frame = on_spark(session, table, 4)
    undisturbed = DMLGBMRegressor(**settings).fit(frame, "target")
    kill = KillAt(7, executors(session)[0])
    started = time.monotonic()
    disturbed = DMLGBMRegressor(**settings).fit(frame, "target", callbacks=[kill])
    predictions = [row.prediction for row in disturbed.predict(frame).select("prediction").collect()]
    return {
        "n_ranks": undisturbed.fit_report_.n_ranks,
        "fit is the same": undisturbed.booster_.to_bytes() == expected.booster_.to_bytes(),
        "fit after a loss is the same": disturbed.booster_.to_bytes() == expected.booster_.to_bytes(),
        "restarts": disturbed.fit_report_.n_restarts,
        "callbacks saw every iteration once": kill.seen == list(range(1, 61)),
        "predictions are the same": predictions == expected.predict(X).tolist(),
        "seconds": time.monotonic() - started,
    }


def search_with_a_loss(session: Any) -> dict[str, Any]:
    import threading

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    grid = {"max_depth": [1, 2, 3, 4]}
    expected = model_selection.GridSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=3).fit(X, y)
    victim = executors(session)[0]
    killer = threading.Timer(1.0, os.kill, (victim, signal.SIGKILL))
    killer.start()
    found = GridSearchCV(SlowTree(random_state=0), grid, cv=3, backend=session).fit(X, y)
    killer.join()
    scores = "mean_test_score"
    return {
        "search after a loss is the same": found.cv_results_[scores].tolist() == expected.cv_results_[scores].tolist(),
        "executor was killed": victim not in executors(session),
    }


def search_over_bins(session: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)
    estimator, grid = DMLGBMClassifier(num_leaves=5), {"n_estimators": [2, 4], "learning_rate": [0.1, 0.3]}
    expected = model_selection.GridSearchCV(estimator, grid, cv=3).fit(X, y)
    found = GridSearchCV(estimator, grid, cv=3, backend=session).fit(X, y)
    with limited_threads(1):  # this machine, as far as the choice of "auto" goes
        small_machine = GridSearchCV(estimator, grid, cv=3).fit(X, y).search_report_
    scores = "mean_test_score"
    return {
        "auto chooses the larger cluster and says so": small_machine.backend == "spark"
        and 'chose "spark"' in str(small_machine),
        "search over bins is the same": found.cv_results_[scores].tolist() == expected.cv_results_[scores].tolist(),
        "folds are binned once": found.search_report_.counters["folds_prepared"] == 3,
    }


def main() -> None:
    parts = {"fit": fit_with_a_loss, "search": search_with_a_loss, "bins": search_over_bins}
    session = new_session(sys.argv[1])
    told: dict[str, Any] = {}
    try:
        for name in sys.argv[2:]:
            told |= parts[name](session)
    finally:
        session.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
