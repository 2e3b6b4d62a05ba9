"""Lost workers cost time, not the model: whatever happens to them, training ends with the bytes of a quiet run."""

from __future__ import annotations

import os
import signal as signals
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dmlgbm import DMLGBMRegressor
from ranks.losses import TrainingLostError
from tests.dask_backend.tables import in_partitions, mixed_frame, signal

N_ITERATIONS = 12
N_ROWS = 1201


@pytest.fixture
def fragile() -> Iterator[Client]:
    """A cluster of its own for a test that harms it."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


def data() -> tuple[pd.DataFrame, pd.Series]:
    X = mixed_frame(N_ROWS)
    return X, pd.Series(signal(X))


def estimator(**parameters: Any) -> DMLGBMRegressor:
    return DMLGBMRegressor(n_estimators=N_ITERATIONS, num_leaves=15, **parameters)


def lazy_data() -> tuple[dd.DataFrame, dd.Series]:
    X, y = data()
    return in_partitions(X, 4), in_partitions(y, 4)


@pytest.fixture(scope="module")
def quiet() -> DMLGBMRegressor:
    """The model of an undisturbed local fit."""
    X, y = data()
    return estimator().fit(X, y, eval_set=[(X, y)])


def worker_processes(client: Client) -> list[int]:
    return list(client.run(os.getpid).values())


class At:
    """A callback that does something once, after a chosen iteration; `seen` are the iterations it was called for."""

    def __init__(self, iteration: int, action: Any) -> None:
        self.iteration = iteration
        self.action = action
        self.seen: list[int] = []

    def __call__(self, state: Any) -> None:
        self.seen.append(state.iteration)
        if state.iteration == self.iteration:
            self.action()


def fit_disturbed(client: Client, action: Any, iteration: int = 4, **parameters: Any) -> tuple[DMLGBMRegressor, At]:
    X, y = lazy_data()
    disturbance = At(iteration, action)
    model = estimator(**parameters).fit(X, y, eval_set=[(X, y)], callbacks=[slow_down, disturbance])
    return model, disturbance


def slow_down(state: Any) -> None:
    time.sleep(0.02)


@pytest.mark.fault
def test_killed_worker_does_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    victim = worker_processes(fragile)[0]
    model, disturbance = fit_disturbed(fragile, lambda: os.kill(victim, signals.SIGKILL))
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.evals_result_ == quiet.evals_result_
    assert disturbance.seen == list(range(1, N_ITERATIONS + 1))


@pytest.mark.fault
def test_after_too_many_losses_the_error_tells_each(fragile: Client) -> None:
    victim = worker_processes(fragile)[0]
    X, y = in_partitions(mixed_frame(20_000), 4), in_partitions(pd.Series(signal(mixed_frame(20_000))), 4)
    kill = At(2, lambda: os.kill(victim, signals.SIGKILL))
    with pytest.raises(TrainingLostError, match="max_restarts=0") as caught:
        DMLGBMRegressor(n_estimators=2000, max_restarts=0).fit(X, y, callbacks=[kill])
    assert "after iteration" in str(caught.value)
    assert "rank" in str(caught.value)


def test_a_new_client_goes_on_from_the_checkpoint(
    cluster: LocalCluster, quiet: DMLGBMRegressor, tmp_path: Path
) -> None:
    class GoneError(RuntimeError):
        pass

    def vanish() -> None:
        raise GoneError

    with Client(cluster) as first, pytest.raises(GoneError):
        fit_disturbed(first, vanish, 6, checkpoint_dir=tmp_path)
    [left] = list(tmp_path.iterdir())
    assert left.stat().st_size > 0
    with Client(cluster) as second:
        model, later = fit_disturbed(second, lambda: None, checkpoint_dir=str(tmp_path))
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.evals_result_ == quiet.evals_result_
    assert later.seen[0] > 1  # what the first client had seen was not trained again
    assert later.seen[-1] == N_ITERATIONS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault
def test_retired_worker_does_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    worker = next(iter(fragile.scheduler_info(n_workers=-1)["workers"]))
    model, _ = fit_disturbed(fragile, lambda: fragile.retire_workers([worker]))
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()


@pytest.mark.fault
def test_restarted_workers_do_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    workers = list(fragile.scheduler_info(n_workers=-1)["workers"])
    model, _ = fit_disturbed(fragile, lambda: fragile.restart_workers(workers, timeout=60))
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()


@pytest.mark.fault
def test_scaling_up_and_down_does_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    for n_workers in (4, 1):
        model, _ = fit_disturbed(fragile, lambda n=n_workers: fragile.cluster.scale(n))
        assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
        fragile.wait_for_workers(n_workers, timeout=30)


@pytest.mark.fault
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(20))
def test_kill_at_a_random_moment_does_not_change_the_model(seed: int, quiet: DMLGBMRegressor) -> None:
    rng = np.random.default_rng(seed)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        X, y = lazy_data()
        estimator().fit(X, y)  # so that the moment falls into the fit and not into compiling
        victim = worker_processes(client)[int(rng.integers(2))]
        timer = threading.Timer(float(rng.uniform(0, 1.2)), os.kill, (victim, signals.SIGKILL))
        timer.start()
        try:
            model = estimator().fit(X, y, eval_set=[(X, y)], callbacks=[slow_down])
        finally:
            timer.join()
        assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
        assert model.evals_result_ == quiet.evals_result_
