"""Workers that are stopped (SIGSTOP) keep their connections and answer nobody: a search goes on without them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import pytest
from distributed import Client, LocalCluster
from search_equality import require_same_results
from search_models import TracedTree, fits_in
from sklearn import model_selection

from dmlgbm import GridSearchCV
from dmlgbm.tuning.executors.worker_pool import stop_idle_workers

GRID = {"max_depth": [1, 2, 3, 4]}

# Dask itself would wait for five minutes, a pipe for ever: the time of a test is what holds the deadline.
pytestmark = [pytest.mark.fault, pytest.mark.timeout(200)]


@contextlib.contextmanager
def stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def stopping_at_the_first_fit(log: Path) -> Iterator[None]:
    """Stop the process that wrote the first trace of a fit."""
    victims = contextlib.ExitStack()

    def stop() -> None:
        deadline = time.monotonic() + 60
        while not (fits := fits_in(log)) and time.monotonic() < deadline:
            time.sleep(0.02)
        victims.enter_context(stopped(int(fits[0][2])))

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    with victims:
        yield
        thread.join()


@pytest.fixture
def client() -> Iterator[Client]:
    """Workers with nannies, which start them anew."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def require_results_and_a_note(search: Any, rows: Any, note: str) -> None:
    require_same_results(search, model_selection.GridSearchCV(TracedTree(), GRID, cv=2).fit(*rows))
    [told] = [each for each in search.search_report_.notes if "left out" in each]
    assert note in told


def test_a_dask_worker_that_stops_during_a_fit_is_left_out(client: Client, rows: Any, tmp_path: Path) -> None:
    with stopping_at_the_first_fit(tmp_path):
        search = GridSearchCV(TracedTree(log=str(tmp_path), pause=1.0), GRID, cv=2, backend=client).fit(*rows)
    require_results_and_a_note(search, rows, "it has not been heard of for 30 s")


def test_a_dask_worker_that_is_stopped_before_a_search_is_left_out(client: Client, rows: Any) -> None:
    [victim, *_] = client.run(os.getpid).values()
    with stopped(victim):
        search = GridSearchCV(TracedTree(pause=1.0), GRID, cv=2, backend=client).fit(*rows)
    require_results_and_a_note(search, rows, "it has not been heard of for 30 s")


def test_a_dask_worker_that_is_stopped_does_not_keep_collections_from_a_search(
    client: Client, rows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    X, y = rows
    [victim, *_] = client.run(os.getpid).values()
    with stopped(victim):
        lazy = da.from_array(X, chunks=(20, -1)), da.from_array(y, chunks=20)
        search = GridSearchCV(TracedTree(), GRID, cv=2, backend=client).fit(*lazy)
    require_same_results(search, model_selection.GridSearchCV(TracedTree(), GRID, cv=2).fit(*rows))
    assert "is left out and started anew: it has not been heard of for 30 s" in caplog.text


def test_a_worker_process_that_stops_during_a_fit_is_replaced(rows: Any, tmp_path: Path) -> None:
    stop_idle_workers()
    with stopping_at_the_first_fit(tmp_path):
        search = GridSearchCV(TracedTree(log=str(tmp_path), pause=1.0), GRID, cv=2, n_jobs=2).fit(*rows)
    require_results_and_a_note(search, rows, "it was stopped by a signal for 30 s")
    assert search.search_report_.units_lost == 1
