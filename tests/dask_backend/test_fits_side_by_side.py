"""Fits side by side, over TLS, watched and interrupted: each ends as if it were alone, and leaves nothing behind."""

from __future__ import annotations

import _thread
import json
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dask import config
from distributed import Client, LocalCluster, Security, worker_client

from dmlgbm import DMLGBMClassifier, DMLGBMRegressor
from dmlgbm.dask_backend import worker_holdings
from dmlgbm.dask_backend.shared_settings import SharedSetting
from tests.dask_backend.tables import in_partitions, mixed_frame, signal
from tests.reference.leftovers import soon_equals

pytestmark = pytest.mark.processes


def data(seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    X = mixed_frame(seed=seed)
    return X, pd.Series(signal(X))


def fit_lazily(seed: int = 0, client: Client | None = None, **parameters: Any) -> DMLGBMRegressor:
    X, y = data(seed)
    model = DMLGBMRegressor(n_estimators=6, **parameters)
    # `Client.as_current` in several threads would leave a setting of Dask's behind.
    return model.fit(in_partitions(X, 4), in_partitions(y, 4), client=client)


def fit_locally(seed: int = 0) -> DMLGBMRegressor:
    X, y = data(seed)
    return DMLGBMRegressor(n_estimators=6).fit(X, y)


def test_fits_at_once_of_one_client_give_their_own_models(client: Client) -> None:
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda seed: fit_lazily(seed, client), range(4)))
    for seed, model in enumerate(models):
        assert model.booster_.to_bytes() == fit_locally(seed).booster_.to_bytes()


def test_fits_at_once_of_several_clients_give_their_own_models(cluster: LocalCluster) -> None:
    def fit(seed: int) -> bytes:
        with Client(cluster, set_as_default=False) as own:
            return fit_lazily(seed, own).booster_.to_bytes()

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(fit, range(3)))
    assert found == [fit_locally(seed).booster_.to_bytes() for seed in range(3)]


def test_settings_of_dask_are_taken_back_when_the_last_of_several_fits_ends() -> None:
    setting, order = SharedSetting("a-setting-of-this-test", 1), ExitStack()
    first, second = setting.held(), setting.held()
    order.enter_context(first)
    second.__enter__()
    order.close()
    assert config.get("a-setting-of-this-test") == 1
    second.__exit__(None, None, None)
    assert config.get("a-setting-of-this-test", None) is None


def _fit_in_a_task(seed: int) -> bytes:
    return fit_lazily(seed).booster_.to_bytes()


def test_a_fit_inside_a_task_uses_the_cluster(client: Client) -> None:
    found = client.gather([client.submit(_fit_in_a_task, seed, pure=False) for seed in range(2)])
    assert found == [fit_locally(seed).booster_.to_bytes() for seed in range(2)]


def _fit_as_worker_client(seed: int) -> tuple[bytes, int]:
    with worker_client() as own:
        found = fit_lazily(seed, own).booster_.to_bytes()
        return found, own.submit(lambda: 7, pure=False).result()  # the task has not come back before its time


def _fit_in_a_thread_of_a_task(seed: int) -> bytes:
    with worker_client() as own, ThreadPoolExecutor(1) as pool:
        return pool.submit(fit_lazily, seed, own).result().booster_.to_bytes()


def test_a_fit_inside_a_task_that_has_left_its_queue_uses_the_cluster(client: Client) -> None:
    futures = [client.submit(_fit_as_worker_client, seed, pure=False) for seed in range(2)]
    in_thread = client.submit(_fit_in_a_thread_of_a_task, 0, pure=False)
    expected = [fit_locally(seed).booster_.to_bytes() for seed in range(2)]
    assert client.gather(futures) == [(each, 7) for each in expected]
    assert in_thread.result() == expected[0]
    # Every thread of a worker is on its seat again.
    assert set(client.run(_size_of_pool).values()) == {1}
    assert client.gather([client.submit(_fit_in_a_task, 0, pure=False)]) == expected[:1]


def _size_of_pool(dask_worker: Any) -> int:
    return len(dask_worker.executors["default"]._threads)


def _kept() -> int:
    return len(worker_holdings._holdings)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("dmlgbm", "collectives"))]


def test_nothing_is_left_on_the_workers(client: Client) -> None:
    fit_lazily()
    assert set(client.run(_kept).values()) == {0}
    assert list(client.run(_threads).values()) == [[], []]
    deadline = time.monotonic() + 10
    while any(client.has_what().values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(client.has_what().values())


def test_fitted_estimator_is_plain(client: Client) -> None:
    model = fit_lazily()
    again = pickle.loads(pickle.dumps(model))
    X, _ = data()
    assert (again.predict(X) == fit_locally().predict(X)).all()
    assert again.plan_.tree_learner in ("data", "feature", "voting")
    assert again.fit_report_.n_trees == 6


def test_report_of_a_fit_is_complete_plain_and_printable(client: Client) -> None:
    X, y = data()
    lazy = in_partitions(X, 4), in_partitions(pd.Series(np.digitize(y, [0.5, 1.5])), 4)
    model = DMLGBMClassifier(n_estimators=5).fit(*lazy, eval_set=[lazy], eval_names=["own"])
    report = model.fit_report_
    assert report.n_trees == len(report.bytes_per_tree) == len(report.wait_per_tree) == 15
    assert min(report.rounds_per_tree) > 0
    assert min(report.bytes_per_tree) > 0
    assert len(report.bytes_by_rank) == len(report.wait_by_rank) == report.n_ranks == 2
    assert report.bytes_sent >= 2 * sum(report.bytes_per_tree)
    assert report.seconds > 0
    assert report.evaluations == model.evals_result_
    assert report.losses == []
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
    assert pickle.loads(pickle.dumps(report)) == report
    assert "15 trees" in str(report)
    assert "own multi_logloss" in str(report)


def test_threads_of_a_worker_and_n_jobs_do_not_change_the_model() -> None:
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster):
        expected = fit_locally().booster_.to_bytes()
        assert fit_lazily().booster_.to_bytes() == expected
        assert fit_lazily(n_jobs=1).booster_.to_bytes() == expected


def test_workers_that_are_threads_of_one_process_train_together() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        model = fit_lazily()
        assert model.fit_report_.n_ranks == 2
        assert model.booster_.to_bytes() == fit_locally().booster_.to_bytes()


def test_tls_cluster_trains_to_the_same_model(security: Security) -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, security=security, protocol="tls://", dashboard_address=None
        ) as cluster,
        Client(cluster, security=security) as client,
    ):
        assert all(worker.startswith("tls://") for worker in client.scheduler_info(n_workers=-1)["workers"])
        model = fit_lazily()
        assert model.fit_report_.n_ranks == 2
        assert model.booster_.to_bytes() == fit_locally().booster_.to_bytes()


def test_callbacks_run_once_on_the_client_and_can_stop(client: Client) -> None:
    X, y = data()
    here = threading.get_ident()
    seen: list[tuple[int, int, int]] = []

    def watch(state: Any) -> None:
        assert threading.get_ident() == here
        seen.append((state.iteration, state.booster_so_far().n_iterations, len(state.evaluations)))
        if state.iteration == 4:
            state.stop("enough")

    lazy = in_partitions(X, 3), in_partitions(y, 3)
    found = DMLGBMRegressor(n_estimators=50).fit(*lazy, eval_set=[lazy], callbacks=[watch])
    assert seen == [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1)]
    seen.clear()
    local = DMLGBMRegressor(n_estimators=50).fit(X, y, eval_set=[(X, y)], callbacks=[watch])
    assert found.booster_.to_bytes() == local.booster_.to_bytes()
    assert found.evals_result_ == local.evals_result_


def test_functions_of_the_user_are_trained_with(client: Client) -> None:
    X, y = data()

    def squared(target: Any, score: Any) -> Any:
        return score - target, np.ones_like(target)

    def worst(target: Any, prediction: Any) -> Any:
        return "worst", float(np.abs(target - prediction).max()), False

    lazy = in_partitions(X, 3), in_partitions(y, 3)
    found = DMLGBMRegressor(n_estimators=4, objective=squared, eval_metric=worst).fit(*lazy, eval_set=[lazy])
    local = DMLGBMRegressor(n_estimators=4, objective=squared, eval_metric=worst).fit(X, y, eval_set=[(X, y)])
    assert found.booster_.to_bytes() == local.booster_.to_bytes()
    assert found.evals_result_ == local.evals_result_


def test_interrupt_stops_the_ranks(client: Client) -> None:
    X, y = data()
    lazy = in_partitions(X, 3), in_partitions(y > 1, 3)
    with pytest.raises(KeyboardInterrupt):
        DMLGBMClassifier(n_estimators=100_000).fit(
            *lazy, callbacks=[lambda state: _thread.interrupt_main() if state.iteration == 3 else None]
        )
    assert soon_equals(lambda: list(client.run(_threads).values()), [[], []]), client.run(_threads)
    assert soon_equals(lambda: set(client.run(_kept).values()), {0}), client.run(_kept)
    assert fit_lazily().booster_.to_bytes() == fit_locally().booster_.to_bytes()


def test_workers_that_train_do_without_scikit_learn() -> None:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        fit_lazily()
        # A lambda travels by value: a function of this file would load what this file imports.
        [loaded] = client.run(lambda: sorted(__import__("sys").modules)).values()
    assert "dmlgbm.gbdt" in loaded
    assert "sklearn" not in loaded
