"""Workers that die, time that runs out, and Ctrl-C: searches end with the same results, or with the best so far."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_equality import require_same_results
from search_models import DeadlyTree, SlowOnManyRows, TracedTree, fits_in
from sklearn import model_selection
from sklearn.exceptions import FitFailedWarning

from dmlgbm import GridSearchCV, HalvingGridSearchCV, HyperbandSearchCV
from dmlgbm.tuning.outcomes import WorkerLostError
from dmlgbm.tuning.search_run import SearchStoppedWarning

pytestmark = pytest.mark.processes

GRID = {"max_depth": [1, 2, 3, 4]}


def test_a_worker_that_is_killed_costs_one_fit(rows: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    model = DeadlyTree(log=str(log), deadly_depth=2, once=str(tmp_path / "once"))
    ours = GridSearchCV(model, GRID, cv=2, n_jobs=2, refit=False).fit(*rows)
    assert ours.search_report_.units_lost == 1
    assert len(fits_in(log)) == 9
    theirs = model_selection.GridSearchCV(TracedTree(), GRID, cv=2, refit=False).fit(*rows)
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


def test_what_a_killed_worker_was_given_ahead_of_time_runs_once(rows: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    model = DeadlyTree(log=str(log), deadly_depth=2, once=str(tmp_path / "once"))
    grid = {"max_depth": list(range(1, 13))}
    search = GridSearchCV(model, grid, cv=4, n_jobs=2, refit=False).fit(*rows)
    assert search.search_report_.units_lost == 1
    assert len(fits_in(log)) == 49
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()


@pytest.mark.fault
def test_workers_killed_at_random_do_not_change_the_results(rows: Any, tmp_path: Path) -> None:
    n_killed = 3

    def kill_now_and_then() -> None:
        killed: set[int] = set()
        while len(killed) < n_killed:
            time.sleep(0.4)
            living = {int(process) for _, _, process in fits_in(tmp_path)} - killed
            victim = next((each for each in sorted(living) if _is_alive(each)), None)
            if victim is not None:
                killed.add(victim)
                os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then, daemon=True)
    killer.start()
    grid = {"max_depth": [1, 2, 3, 4, 5, 6]}
    search = GridSearchCV(TracedTree(log=str(tmp_path), pause=0.3), grid, cv=4, n_jobs=2, refit=False).fit(*rows)
    killer.join(30)
    assert 1 <= search.search_report_.units_lost <= n_killed
    assert len(fits_in(tmp_path)) <= 24 + n_killed
    theirs = model_selection.GridSearchCV(TracedTree(), grid, cv=4, refit=False).fit(*rows)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


@pytest.mark.fault
def test_a_candidate_that_kills_every_worker_counts_as_failed(rows: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"cv": 2, "n_jobs": 2, "max_retries": 1, "refit": False}
    model = DeadlyTree(log=str(tmp_path), deadly_depth=2)
    with pytest.warns(FitFailedWarning, match=r"given up after 2 lost workers.*SIGKILL.*memory"):
        search = GridSearchCV(model, GRID, **options).fit(*rows)
    np.testing.assert_array_equal(np.isnan(search.cv_results_["mean_test_score"]), [False, True, False, False])
    assert Counter(depth for depth, _, _ in fits_in(tmp_path))["2"] == 4
    with pytest.raises(WorkerLostError, match=r"Candidate 1 .* was given up after 2 lost workers"):
        GridSearchCV(model, GRID, error_score="raise", **options).fit(*rows)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_time_budget_returns_the_best_so_far(n_jobs: int, rows: Any) -> None:
    model = TracedTree(pause=0.15)
    grid = {"max_depth": list(range(1, 60))}
    # On a busy machine the start of workers alone may take longer than the budget.
    GridSearchCV(TracedTree(), {"max_depth": [1]}, cv=2, n_jobs=n_jobs).fit(*rows)
    started = time.monotonic()
    with pytest.warns(SearchStoppedWarning, match="stopped by time_budget after"):
        search = GridSearchCV(model, grid, cv=2, n_jobs=n_jobs, time_budget=2.0).fit(*rows)
    assert time.monotonic() - started < 12
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores[0])
    assert np.isnan(scores[-1])
    assert search.best_score_ == np.nanmax(scores)
    assert search.predict(rows[0]).shape == (300,)
    assert search.search_report_.stopped == "time_budget"
    finished = np.isfinite(search.search_report_.finished_at)
    np.testing.assert_array_equal(finished, np.isfinite(scores))


def test_a_time_budget_that_is_too_short_is_an_error(rows: Any) -> None:
    with pytest.raises(TimeoutError, match="time_budget ended before any candidate was evaluated on all folds"):
        GridSearchCV(TracedTree(pause=0.2), GRID, cv=3, time_budget=0.1).fit(*rows)


def test_a_stopped_halving_search_takes_the_best_of_its_last_complete_round(rows: Any) -> None:
    grid = {"max_depth": [1, 2, 3, 4, 5, 6, 7, 8, 9], "random_state": [0]}
    whole = model_selection.HalvingGridSearchCV(TracedTree(), grid, cv=2, random_state=0).fit(*rows)
    # Folds of the first round have 16 rows to learn from and take no time, those of the second 49 and six seconds
    # together: the budget ends amid the second round on any machine.
    model = SlowOnManyRows(pause=1.0, many=40)
    with pytest.warns(SearchStoppedWarning):
        search = HalvingGridSearchCV(model, grid, cv=2, random_state=0, time_budget=3.0).fit(*rows)
    assert search.n_iterations_ < whole.n_iterations_ or np.isnan(search.cv_results_["mean_test_score"]).any()
    assert np.isfinite(search.best_score_)
    assert search.cv_results_["params"][search.best_index_] == search.best_params_


def test_a_stopped_hyperband_search_has_a_result(rows: Any) -> None:
    space = {"max_depth": [1, 2, 3, 4, 5, 6], "random_state": [0, 1, 2, 3, 4, 5]}
    with pytest.warns(SearchStoppedWarning):
        search = HyperbandSearchCV(
            TracedTree(pause=0.05), space, cv=2, min_resources=10, random_state=0, time_budget=1.5
        ).fit(*rows)
    assert np.isfinite(search.best_score_)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_returns_the_best_so_far(n_jobs: int, rows: Any, tmp_path: Path) -> None:
    def interrupt_when_some_are_done() -> None:
        deadline = time.monotonic() + 60
        while len(fits_in(tmp_path)) < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_some_are_done, daemon=True).start()
    model = TracedTree(log=str(tmp_path), pause=0.15)
    with pytest.warns(SearchStoppedWarning, match="stopped by Ctrl-C"):
        search = GridSearchCV(model, {"max_depth": list(range(1, 40))}, cv=2, n_jobs=n_jobs).fit(*rows)
    assert len(fits_in(tmp_path)) < 20
    assert np.isfinite(search.best_score_)
    again = GridSearchCV(TracedTree(), GRID, cv=2, n_jobs=n_jobs).fit(*rows)
    require_same_results(again, model_selection.GridSearchCV(TracedTree(), GRID, cv=2).fit(*rows))


def test_ctrl_c_before_anything_is_complete_interrupts(rows: Any, tmp_path: Path) -> None:
    def interrupt_at_the_first_fit() -> None:
        deadline = time.monotonic() + 60
        while not fits_in(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_at_the_first_fit, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        GridSearchCV(TracedTree(log=str(tmp_path), pause=0.5), GRID, cv=3).fit(*rows)
