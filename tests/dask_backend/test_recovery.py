"""Lost workers cost time, not the model: whatever happens to them, training ends with the bytes of a quiet run."""

from __future__ import annotations

import contextlib
import os
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Status

from dmlgbm import DMLGBMRegressor
from dmlgbm.dask_backend import cluster as cluster_module
from dmlgbm.dask_backend import heartbeats, ingestion, worker_holdings
from dmlgbm.gbdt.ranks.losses import TrainingLostError
from tests.dask_backend.tables import in_partitions, mixed_frame, signal

pytestmark = pytest.mark.processes

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


def unhurried(target: Any, prediction: Any) -> tuple[str, float, bool]:
    """A metric that takes its time, so that what happens on the client happens while the ranks are training."""
    time.sleep(0.1)
    return "unhurried", float(np.abs(target - prediction).max()), False


def estimator(**parameters: Any) -> DMLGBMRegressor:
    return DMLGBMRegressor(n_estimators=N_ITERATIONS, num_leaves=15, eval_metric=unhurried, **parameters)


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
    model = estimator(**parameters).fit(X, y, eval_set=[(X, y)], callbacks=[disturbance])
    return model, disturbance


@pytest.mark.fault
def test_killed_worker_does_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    victim = worker_processes(fragile)[0]
    model, disturbance = fit_disturbed(fragile, lambda: os.kill(victim, signals.SIGKILL))
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.evals_result_ == quiet.evals_result_
    assert disturbance.seen == list(range(1, N_ITERATIONS + 1))
    report = model.fit_report_
    assert report.n_restarts == len(report.losses) >= 1
    assert "after iteration" in report.losses[0]
    assert report.losses[0] in str(report)
    # Also the trees of the generation that was lost.
    assert report.n_trees == N_ITERATIONS
    assert report.evaluations == quiet.evals_result_


@pytest.mark.fault
def test_worker_that_is_killed_before_leaves_are_refitted_does_not_change_the_model(fragile: Client) -> None:
    victim = worker_processes(fragile)[0]
    killed: list[int] = []

    def kill_at_the_end(state: Any) -> None:
        if state.stop_reason is not None:
            killed.append(victim)
            os.kill(victim, signals.SIGKILL)

    stopping = {"early_stopping": True, "early_stopping_rounds": 2, "learning_rate": 0.9, "n_estimators": 200}
    model, expected = (DMLGBMRegressor(refit_after_stopping=True, **stopping) for _ in range(2))
    X, y = lazy_data()
    model.fit(X, y, callbacks=[kill_at_the_end])
    expected.fit(X.compute(), y.compute())
    assert killed == [victim]
    assert model.booster_.to_bytes() == expected.booster_.to_bytes()
    assert model.best_iteration_ == expected.best_iteration_ == model.n_iter_


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
    assert model.fit_report_.n_restarts >= 1


@pytest.mark.fault
def test_restarted_workers_do_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    workers = list(fragile.scheduler_info(n_workers=-1)["workers"])
    model, _ = fit_disturbed(fragile, lambda: fragile.restart_workers(workers, timeout=60))
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.fit_report_.n_restarts >= 1


@pytest.mark.fault
def test_loss_of_all_workers_at_once_does_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    victims = worker_processes(fragile)

    def kill_all() -> None:
        for victim in victims:
            os.kill(victim, signals.SIGKILL)

    model, disturbance = fit_disturbed(fragile, kill_all)
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.fit_report_.n_restarts >= 1
    assert disturbance.seen == list(range(1, N_ITERATIONS + 1))


FIT_WITHOUT_END = """
import sys
from distributed import Client
from tests.dask_backend.test_recovery import estimator, lazy_data
if __name__ == "__main__":
    X, y = lazy_data()
    with Client(sys.argv[1]):
        estimator().set_params(n_estimators=100_000).fit(
            X, y, eval_set=[(X, y)], callbacks=[lambda state: print(state.iteration, flush=True)]
        )
"""


@pytest.mark.fault
def test_client_that_is_killed_leaves_nothing_on_the_workers(fragile: Client, tmp_path: Path) -> None:
    script = tmp_path / "fit_without_end.py"
    script.write_text(FIT_WITHOUT_END)
    root = str(Path(__file__).resolve().parents[2])
    lost = subprocess.Popen(
        [sys.executable, str(script), fragile.scheduler.address],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    try:
        assert lost.stdout is not None
        assert lost.stdout.readline().strip() == b"1"
        assert set(fragile.run(kept).values()) == {1}
    finally:
        lost.kill()
        lost.wait(timeout=10)
        lost.stdout.close()
    deadline = time.monotonic() + 60
    while set(fragile.run(kept).values()) != {0} and time.monotonic() < deadline:
        time.sleep(0.2)
    assert set(fragile.run(kept).values()) == {0}
    assert set(fragile.run(rank_threads).values()) == {0}


def kept() -> int:
    return len(worker_holdings._holdings)


def rank_threads() -> int:
    return sum(each.name.startswith("dmlgbm") for each in threading.enumerate())


@pytest.mark.fault
def test_scaling_up_and_down_does_not_change_the_model(fragile: Client, quiet: DMLGBMRegressor) -> None:
    for n_workers, n_restarts in ((4, 0), (1, 1)):
        model, _ = fit_disturbed(fragile, lambda n=n_workers: fragile.cluster.scale(n))
        assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
        assert model.fit_report_.n_restarts >= n_restarts
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
            model = estimator().fit(X, y, eval_set=[(X, y)])
        finally:
            timer.join()
        assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
        assert model.evals_result_ == quiet.evals_result_


@pytest.mark.fault
@pytest.mark.timeout(240)
@pytest.mark.parametrize("iteration", [0, 4])
def test_frozen_worker_is_left_out_and_does_not_change_the_model(
    fragile: Client, quiet: DMLGBMRegressor, iteration: int
) -> None:
    """A process that is stopped keeps its connections; Dask itself would wait for it for five minutes."""
    X, y = lazy_data()
    estimator().fit(X, y)  # so that nothing is compiled within the time below
    victim = worker_processes(fragile)[0]

    def freeze() -> None:
        os.kill(victim, signals.SIGSTOP)

    if iteration == 0:
        freeze()  # before anything is read
    began = time.monotonic()
    try:
        model, _ = fit_disturbed(fragile, freeze, iteration)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signals.SIGKILL)
    assert time.monotonic() - began < 100  # 30 s of silence, and what a busy machine takes for the rest
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.evals_result_ == quiet.evals_result_
    if iteration:
        assert "has not been heard of for 30 s (worker_timeout)" in model.fit_report_.losses[0]


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_frozen_worker_is_waited_for_as_long_as_asked(fragile: Client, quiet: DMLGBMRegressor) -> None:
    X, y = lazy_data()
    estimator().fit(X, y)
    victim = worker_processes(fragile)[0]
    try:
        model, _ = fit_disturbed(fragile, lambda: os.kill(victim, signals.SIGSTOP), worker_timeout=20)
        assert "has not been heard of for 20 s (worker_timeout)" in model.fit_report_.losses[0]
        assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signals.SIGKILL)
    # Its nanny starts it anew: nobody else has to.
    fragile.wait_for_workers(2, timeout=60)


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_frozen_worker_that_goes_on_in_time_is_not_lost(fragile: Client, quiet: DMLGBMRegressor) -> None:
    victim = worker_processes(fragile)[0]

    def freeze() -> None:
        os.kill(victim, signals.SIGSTOP)
        threading.Timer(2.0, os.kill, (victim, signals.SIGCONT)).start()

    model, _ = fit_disturbed(fragile, freeze)
    assert model.fit_report_.losses == []
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()


def pause(is_paused: bool, dask_worker: Any) -> None:
    """What the worker's memory monitor does at 80 % of its memory."""
    dask_worker.status = Status.paused if is_paused else Status.running


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_paused_worker_goes_on_training(fragile: Client, quiet: DMLGBMRegressor) -> None:
    first = next(iter(fragile.scheduler_info(n_workers=-1)["workers"]))
    model, _ = fit_disturbed(fragile, lambda: fragile.run(pause, True, workers=[first]))
    assert model.fit_report_.losses == []
    assert model.fit_report_.n_ranks == 2
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    # The next fit does without it.
    model, _ = fit_disturbed(fragile, lambda: fragile.run(pause, False, workers=[first]))
    assert model.fit_report_.n_ranks == 1
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_cluster_that_stays_without_workers_ends_in_a_clear_error(
    fragile: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (heartbeats, cluster_module):
        monkeypatch.setattr(module, "SECONDS_WITHOUT_WORKERS", 3.0)
    with pytest.raises(TrainingLostError, match=r"has had no workers that take tasks for .* s: start workers"):
        fit_disturbed(fragile, lambda: fragile.cluster.scale(0))


def let_go_of_workers_before_bins_are_cut(client: Client, monkeypatch: pytest.MonkeyPatch, then: Any = None) -> None:
    """The last worker goes between the sample, of more bytes than one place takes, and its cut into blocks."""
    end_step = ingestion.PartitionSource.end_step

    def end_and_lose(source: Any) -> None:
        end_step(source)
        monkeypatch.setattr(ingestion.PartitionSource, "end_step", end_step)
        client.cluster.scale(0)
        until = time.monotonic() + 60
        while client.sync(client.scheduler.identity, n_workers=-1)["workers"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        if then is not None:
            then()

    monkeypatch.setattr(ingestion, "_BYTES_IN_ONE_PLACE", 0)
    monkeypatch.setattr(ingestion.PartitionSource, "end_step", end_and_lose)


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_cluster_whose_workers_go_before_bins_are_cut_ends_in_a_clear_error(
    fragile: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (heartbeats, cluster_module):
        monkeypatch.setattr(module, "SECONDS_WITHOUT_WORKERS", 3.0)
    let_go_of_workers_before_bins_are_cut(fragile, monkeypatch)
    X, y = lazy_data()
    with pytest.raises(TrainingLostError, match=r"has had no workers that take tasks for 3 s: start workers"):
        estimator().fit(X, y, eval_set=[(X, y)])


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_workers_that_come_after_all_were_lost_cut_the_bins(
    fragile: Client, quiet: DMLGBMRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = threading.Timer(2.0, fragile.cluster.scale, (1,))
    let_go_of_workers_before_bins_are_cut(fragile, monkeypatch, then=later.start)
    X, y = lazy_data()
    model = estimator().fit(X, y, eval_set=[(X, y)])
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_workers_that_come_later_take_over_from_all_that_were_lost(fragile: Client, quiet: DMLGBMRegressor) -> None:
    """Also when the last ones go while what the first ones held is placed again."""

    def scale_down_and_up() -> None:
        fragile.cluster.scale(0)
        threading.Timer(8.0, fragile.cluster.scale, (1,)).start()

    model, _ = fit_disturbed(fragile, scale_down_and_up)
    assert model.booster_.to_bytes() == quiet.booster_.to_bytes()
    assert model.fit_report_.n_ranks == 1


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_killed_scheduler_ends_in_an_error_that_speaks_of_checkpoints(tmp_path: Path) -> None:
    address_file, folder = str(tmp_path / "scheduler.json"), tmp_path / "kept"
    dask, both = [sys.executable, "-m", "dask"], ["--no-dashboard", "--scheduler-file", address_file]
    scheduler = subprocess.Popen([*dask, "scheduler", "--port", "0", *both])
    worker = subprocess.Popen([*dask, "worker", "--nthreads", "1", "--no-nanny", *both])
    try:
        with Client(scheduler_file=address_file, timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
            X, y = lazy_data()
            kill = At(6, lambda: os.kill(scheduler.pid, signals.SIGKILL))
            model = DMLGBMRegressor(n_estimators=100_000, checkpoint_dir=folder)
            with pytest.raises(TrainingLostError, match=r"scheduler at .* was lost: .* With checkpoint_dir set"):
                model.fit(X, y, callbacks=[kill])
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait(timeout=10)
    assert list(folder.iterdir())  # what another fit goes on from
