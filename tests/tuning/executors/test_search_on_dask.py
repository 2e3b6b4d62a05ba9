"""Searches on a Dask cluster of real processes: scikit-learn's results, also when a worker is lost."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from search_equality import require_same_results
from search_models import BusyTree, DeadlyTree, LazyBoosting, TracedTree, fits_in
from sklearn import model_selection
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning

from dmlgbm import DMLGBMClassifier, GridSearchCV, HalvingGridSearchCV, cross_val_score, cross_validate
from dmlgbm.tuning import collections
from dmlgbm.tuning.executors import dask as dask_executor
from dmlgbm.tuning.executors.base import ExecutorError
from dmlgbm.tuning.executors.dask import DaskExecutor

pytestmark = pytest.mark.processes

GRID = {"max_depth": [1, 2, 3, 4]}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def test_searches_on_dask_are_bit_equal_to_scikit_learns(client: Client, rows: Any) -> None:
    theirs = model_selection.GridSearchCV(TracedTree(), GRID, cv=3, scoring=["accuracy", "roc_auc"], refit="roc_auc")
    theirs.fit(*rows)
    for backend in ("auto", "dask", client):
        ours = GridSearchCV(TracedTree(), GRID, cv=3, scoring=["accuracy", "roc_auc"], refit="roc_auc", backend=backend)
        require_same_results(ours.fit(*rows), theirs)
        assert ours.search_report_.backend == "dask"
    boosted = DMLGBMClassifier(num_leaves=4)
    options: dict[str, Any] = {"resource": "n_estimators", "min_resources": 2, "max_resources": 8, "cv": 2}
    grid = {"learning_rate": [0.05, 0.1, 0.3, 0.5]}
    for share_work in (False, True):
        ours = HalvingGridSearchCV(boosted, grid, share_work=share_work, **options).fit(*rows)
        require_same_results(ours, model_selection.HalvingGridSearchCV(boosted, grid, **options).fit(*rows))
    np.testing.assert_array_equal(
        cross_val_score(TracedTree(), *rows, cv=3), model_selection.cross_val_score(TracedTree(), *rows, cv=3)
    )


def test_collections_that_fit_are_gathered_once(client: Client, rows: Any) -> None:
    X, y = rows
    theirs = model_selection.GridSearchCV(TracedTree(), GRID, cv=2).fit(X, y)
    lazy = da.from_array(X, chunks=(70, -1)), da.from_array(y, chunks=70)
    ours = GridSearchCV(TracedTree(), GRID, cv=2, backend="dask").fit(*lazy)
    require_same_results(ours, theirs)
    assert ours.search_report_.backend == "dask"


def test_cross_validation_takes_collections_too(client: Client, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows
    weight = np.linspace(0.5, 2.0, len(y))
    model = DMLGBMClassifier(n_estimators=2)
    theirs = model_selection.cross_val_score(model, X, y, cv=2, params={"sample_weight": weight})
    lazy = da.from_array(X, chunks=(100, -1)), da.from_array(y, chunks=100)
    params = {"sample_weight": da.from_array(weight, chunks=100)}
    np.testing.assert_array_equal(cross_val_score(model, *lazy, cv=2, params=params), theirs)
    monkeypatch.setattr(collections, "_bytes_that_fit", lambda backend: 1000.0)
    theirs = model_selection.cross_validate(model, X, y, cv=2)
    in_pieces = cross_validate(model, *lazy, cv=2, return_estimator=True)
    np.testing.assert_array_equal(in_pieces["test_score"], theirs["test_score"])
    assert [each.fit_report_.n_ranks for each in in_pieces["estimator"]] == [2, 2]


def test_collections_that_do_not_fit_are_trained_on_by_all_workers(
    client: Client, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows
    monkeypatch.setattr(collections, "_bytes_that_fit", lambda backend: 1000.0)
    grid = {"num_leaves": [3, 5]}
    theirs = model_selection.GridSearchCV(DMLGBMClassifier(n_estimators=2), grid, cv=2).fit(X, y)
    lazy = da.from_array(X, chunks=(100, -1)), da.from_array(y, chunks=100)
    ours = GridSearchCV(DMLGBMClassifier(n_estimators=2), grid, cv=2).fit(*lazy)
    require_same_results(ours, theirs)
    assert ours.best_estimator_.fit_report_.n_ranks == 2
    with pytest.raises(ValueError, match="TracedTree cannot train on Dask collections"):
        GridSearchCV(TracedTree(), GRID, cv=2).fit(*lazy)


def test_nothing_is_left_on_the_cluster(client: Client, rows: Any) -> None:
    GridSearchCV(TracedTree(), GRID, cv=2, backend=client).fit(*rows)
    kept = client.run(_searches_kept)
    assert all(count == 0 for count in kept.values()), kept


def _searches_kept() -> int:
    from dmlgbm.tuning.executors import dask

    return len(dask._searches)


def test_units_are_small_and_the_data_goes_out_once(client: Client, rows: Any) -> None:
    reports = []
    for n_candidates in (4, 40):
        grid = {"max_depth": list(range(1, n_candidates + 1))}
        reports.append(GridSearchCV(TracedTree(), grid, cv=2, backend=client, refit=False).fit(*rows).search_report_)
    assert reports[0].bytes_placed == reports[1].bytes_placed > 300 * 6 * 8
    assert reports[1].bytes_of_units / reports[1].units < 2_000


def test_a_closed_client_is_refused(rows: Any) -> None:
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        gone = Client(cluster, set_as_default=False)
        gone.close()
    with pytest.raises(ExecutorError, match="is closed: connect a new one"):
        GridSearchCV(TracedTree(), GRID, backend=gone).fit(*rows)


def test_a_cluster_without_workers_is_refused_with_the_remedy(rows: Any) -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as empty,
        pytest.raises(
            ExecutorError, match=r"has no workers: start some.*client.wait_for_workers\(1\).*backend=\"local\""
        ),
    ):
        GridSearchCV(TracedTree(), GRID, backend=empty).fit(*rows)


def test_short_units_share_tasks_and_change_no_result(
    client: Client, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[int]] = []
    start = DaskExecutor._start

    def counting(executor: DaskExecutor, numbers: list[int]) -> None:
        started.append(numbers)
        start(executor, numbers)

    monkeypatch.setattr(DaskExecutor, "_start", counting)
    monkeypatch.setattr(dask_executor, "_SECONDS_OF_A_TASK", 60.0)  # as much as leaves enough for the other worker
    grid = {"max_depth": list(range(1, 21))}
    theirs = model_selection.GridSearchCV(TracedTree(), grid, cv=3).fit(*rows)
    ours = GridSearchCV(TracedTree(), grid, cv=3, backend=client).fit(*rows)
    require_same_results(ours, theirs)
    assert sorted(number for numbers in started for number in numbers) == list(range(60))
    assert max(map(len, started)) > 1
    assert len(started) < 30
    started.clear()
    monkeypatch.setattr(dask_executor, "_SECONDS_OF_A_TASK", 0.0)
    require_same_results(GridSearchCV(TracedTree(), grid, cv=3, backend=client).fit(*rows), theirs)
    assert len(started) == 60


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_a_call_that_kills_its_workers_takes_no_others_of_its_task_along(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_executor, "_SECONDS_OF_A_TASK", 60.0)
    grid = {"max_depth": list(range(1, 17))}
    model = DeadlyTree(deadly_depth=9)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
        pytest.warns(FitFailedWarning, match="was lost"),
    ):
        ours = GridSearchCV(model, grid, cv=2, backend=client, n_jobs=1, max_retries=0, refit=False).fit(*rows)
    theirs = model_selection.GridSearchCV(TracedTree(), grid, cv=2, refit=False).fit(*rows)
    expected = theirs.cv_results_["mean_test_score"].copy()
    expected[8] = np.nan
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"], expected)


@pytest.mark.fault
def test_a_lost_dask_worker_does_not_change_the_results(rows: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    model = DeadlyTree(log=str(log), deadly_depth=2, once=str(tmp_path / "once"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        ours = GridSearchCV(model, GRID, cv=2, backend=client, refit=False).fit(*rows)
    theirs = model_selection.GridSearchCV(TracedTree(), GRID, cv=2, refit=False).fit(*rows)
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])
    assert len(fits_in(log)) <= 8 + 4  # results that the lost worker still held are computed again


def test_workers_are_found_while_the_client_forgets_them(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client updates what it knows of its scheduler every two seconds, without workers."""
    update = client._update_scheduler_info

    async def overtaken(n_workers: int = 0) -> None:
        await update(n_workers=0)

    monkeypatch.setattr(client, "_update_scheduler_info", overtaken)
    assert sorted(DaskExecutor(client, None).threads_of_workers().values()) == [1, 1]


def test_searches_on_a_client_are_copied_and_nested(client: Client, rows: Any, tmp_path: Path) -> None:
    inner = GridSearchCV(TracedTree(), {"max_depth": [1, 2]}, cv=2, backend=client)
    for copied in (clone(inner), copy.deepcopy(inner), clone(clone(inner).fit(*rows))):
        assert copied.backend is client
        assert copied.get_params()["estimator__max_depth"] == 3
    theirs = model_selection.GridSearchCV(TracedTree(), {"max_depth": [1, 2]}, cv=2)
    expected = model_selection.cross_val_score(theirs, *rows, cv=2)
    np.testing.assert_array_equal(model_selection.cross_val_score(inner, *rows, cv=2), expected)
    grid = {"estimator__random_state": [0, 1]}
    nested = model_selection.GridSearchCV(theirs, grid, cv=2).fit(*rows)
    # Inside a fit of another search a search runs where it is, whatever it was told.
    for backend, of_inner in ((client, client), (client, "dask"), ("local", client)):
        inner.set_params(backend=of_inner)
        journal = tmp_path / f"{backend!s:.5}{of_inner!s:.5}"
        ours = GridSearchCV(inner, grid, cv=2, backend=backend, journal=journal)
        require_same_results(ours.fit(*rows), nested)


def test_fits_of_a_search_may_use_the_cluster_that_they_run_on(client: Client, rows: Any) -> None:
    """Every worker has one thread, and a unit on it."""
    grid = {"num_leaves": [2, 3, 4, 5]}
    theirs = model_selection.GridSearchCV(DMLGBMClassifier(n_estimators=2), grid, cv=2, refit=False).fit(*rows)
    ours = GridSearchCV(LazyBoosting(), grid, cv=2, backend=client, refit=False).fit(*rows)
    require_same_results(ours, theirs)
    assert client.run(_threads_of_pool) == dict.fromkeys(client.scheduler_info()["workers"], 1)


def test_searches_in_tasks_leave_their_seats_to_their_units(client: Client, rows: Any) -> None:
    theirs = model_selection.GridSearchCV(TracedTree(), GRID, cv=2).fit(*rows)
    tasks = [client.submit(_searched, rows, backend, pure=False) for backend in ("auto", "dask", "dask")]
    for found, used in client.gather(tasks):
        assert used == "dask"
        np.testing.assert_array_equal(found["mean_test_score"], theirs.cv_results_["mean_test_score"])
    assert client.run(_threads_of_pool) == dict.fromkeys(client.scheduler_info()["workers"], 1)


def _searched(rows: Any, backend: str) -> tuple[dict[str, Any], str]:
    search = GridSearchCV(TracedTree(), GRID, cv=2, backend=backend).fit(*rows)
    return search.cv_results_, search.search_report_.backend


def _threads_of_pool(dask_worker: Any) -> int:
    return len(dask_worker.executor._threads)


@pytest.mark.parametrize("model", [BusyTree, TracedTree], ids=["in steps", "in one call"])
def test_fits_that_a_time_budget_leaves_do_not_block_the_next_search(
    client: Client, rows: Any, tmp_path: Path, model: Any
) -> None:
    GridSearchCV(model(), {"max_depth": [1]}, cv=2, backend=client).fit(*rows)
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="time_budget ended before any candidate"):
        GridSearchCV(
            model(log=str(tmp_path), pause=300.0), GRID, cv=2, backend=client, time_budget=3.0, refit=False
        ).fit(*rows)
    assert len(fits_in(tmp_path)) >= 1
    GridSearchCV(TracedTree(), GRID, cv=2, backend=client).fit(*rows)
    while model is BusyTree and len(list(tmp_path.glob("ended-*"))) < len(list(tmp_path.glob("[0-9]*"))):
        assert time.monotonic() - started < 100
        time.sleep(0.05)
    assert time.monotonic() - started < 100
    assert all(count == 0 for count in client.run(_searches_kept).values())
