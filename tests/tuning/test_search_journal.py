"""A search that finds its journal repeats nothing, whatever ended it before; a journal of another search is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_equality import require_same_results
from search_models import TracedTree, fits_in
from sklearn import model_selection

from dmlgbm import GridSearchCV, HyperbandSearchCV, cross_validate
from dmlgbm.tuning.journal import JournalError

pytestmark = pytest.mark.processes

GRID = {"max_depth": [1, 2, 3]}


def test_a_second_run_repeats_nothing(rows: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    options: dict[str, Any] = {"cv": 2, "scoring": ["accuracy", "roc_auc"], "refit": False, "return_train_score": True}
    first = GridSearchCV(TracedTree(log=str(log)), GRID, journal=tmp_path / "journal", **options).fit(*rows)
    assert len(fits_in(log)) == 6
    again = GridSearchCV(TracedTree(log=str(log)), GRID, journal=tmp_path / "journal", **options).fit(*rows)
    assert len(fits_in(log)) == 6
    assert again.search_report_.calls_from_journal == 6
    assert again.search_report_.calls_answered == 0
    require_same_results(again, first)
    require_same_results(again, model_selection.GridSearchCV(TracedTree(log=str(log)), GRID, **options).fit(*rows))


def test_a_wider_grid_runs_only_what_is_new(rows: Any, tmp_path: Path) -> None:
    GridSearchCV(TracedTree(), GRID, cv=2, journal=tmp_path / "journal").fit(*rows)
    wider = GridSearchCV(TracedTree(), {"max_depth": [1, 2, 3, 4]}, cv=2, journal=tmp_path / "journal").fit(*rows)
    assert (wider.search_report_.calls_from_journal, wider.search_report_.calls_answered) == (6, 2)


def test_an_interrupted_line_is_run_again(rows: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = GridSearchCV(TracedTree(), GRID, cv=2, journal=path).fit(*rows)
    text = path.read_text()
    path.write_text(text[:-20])
    again = GridSearchCV(TracedTree(), GRID, cv=2, journal=path).fit(*rows)
    assert (again.search_report_.calls_from_journal, again.search_report_.calls_answered) == (5, 1)
    require_same_results(again, first)
    assert len(path.read_text().splitlines()) == 7


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"X": lambda X: X + 1}, "X"),
        ({"y": lambda y: 1 - y}, "y"),
        ({"estimator": TracedTree(random_state=5)}, "estimator's random_state"),
        ({"scoring": "roc_auc"}, "scoring"),
        ({"error_score": 0.0}, "error_score"),
    ],
)
def test_a_journal_of_another_search_names_what_changed(
    change: dict[str, Any], name: str, rows: Any, tmp_path: Path
) -> None:
    X, y = rows
    GridSearchCV(TracedTree(), GRID, cv=2, scoring="accuracy", journal=tmp_path / "journal").fit(X, y)
    options = {"cv": 2, "scoring": change.get("scoring", "accuracy"), "error_score": change.get("error_score", np.nan)}
    search = GridSearchCV(change.get("estimator", TracedTree()), GRID, journal=tmp_path / "journal", **options)
    with pytest.raises(JournalError, match=f"belongs to another search: {name} changed"):
        search.fit(change.get("X", np.copy)(X), change.get("y", np.copy)(y))


def test_files_that_are_no_journals_and_options_without_journal_are_refused(rows: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("remember the milk\n")
    with pytest.raises(JournalError, match="is not a search journal"):
        GridSearchCV(TracedTree(), GRID, journal=tmp_path / "notes").fit(*rows)
    assert (tmp_path / "notes").read_text() == "remember the milk\n"
    GridSearchCV(TracedTree(), GRID, cv=2, journal=tmp_path / "journal").fit(*rows)
    with (tmp_path / "journal").open("a") as file:
        file.write('{"key": "0"}\n')
    with pytest.raises(JournalError, match=r"has no result in line \d+"):
        GridSearchCV(TracedTree(), GRID, cv=2, journal=tmp_path / "journal").fit(*rows)
    with pytest.raises(TypeError):
        cross_validate(TracedTree(), *rows, journal=tmp_path / "journal")


def test_hyperband_goes_on_from_its_journal(rows: Any, tmp_path: Path) -> None:
    def search() -> Any:
        space = {"max_depth": [1, 2, 3, 4], "random_state": [0, 1, 2]}
        return HyperbandSearchCV(
            TracedTree(), space, cv=2, max_resources=90, min_resources=10, random_state=0, journal=tmp_path / "journal"
        ).fit(*rows)

    first, again = search(), search()
    require_same_results(again, first)
    assert again.search_report_.calls_answered == 0


CLIENT = """
import sys
from sklearn.datasets import make_classification
from search_models import TracedTree
from dmlgbm import GridSearchCV
X, y = make_classification(300, 6, n_informative=4, flip_y=0.2, random_state=0)
log, journal, n_jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
grid = {"max_depth": [1, 2, 3, 4, 5]}
search = GridSearchCV(TracedTree(log=log, pause=0.2), grid, cv=2, journal=journal, n_jobs=n_jobs, refit=False).fit(X, y)
print(search.search_report_.calls_from_journal, search.cv_results_["mean_test_score"].tolist())
"""


@pytest.mark.fault
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_killed_client_repeats_at_most_what_was_running(n_jobs: int, rows: Any, tmp_path: Path) -> None:
    log, journal = tmp_path / "log", tmp_path / "journal"
    log.mkdir()
    command = [sys.executable, "-c", CLIENT, str(log), str(journal), str(n_jobs)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    client = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 60
    while not (journal.exists() and len(journal.read_text().splitlines()) >= 4):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.send_signal(signal.SIGKILL)
    client.wait(10)
    time.sleep(0.5)  # the workers of a dead client end by themselves
    n_finished = len(journal.read_text().splitlines()) - 1
    n_before = len(fits_in(log))
    assert n_before - n_finished <= n_jobs
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"{n_finished} ")
    assert len(fits_in(log)) == n_before + 10 - n_finished
    X, y = rows
    theirs = model_selection.GridSearchCV(TracedTree(), {"max_depth": [1, 2, 3, 4, 5]}, cv=2, refit=False).fit(X, y)
    assert done.stdout.split(" ", 1)[1].strip() == str(theirs.cv_results_["mean_test_score"].tolist())
