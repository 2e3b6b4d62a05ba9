"""Which client a fit uses: the one that is given, that holds the data, or that is current; the model keeps none."""

from __future__ import annotations

import asyncio
import pickle
import signal as signals
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn.base import clone

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor
from dmlgbm.dask_backend import worker_holdings
from dmlgbm.dask_backend.cluster import DaskCluster
from tests.dask_backend.tables import in_partitions, mixed_frame, signal

pytestmark = pytest.mark.processes


def data() -> tuple[pd.DataFrame, pd.Series]:
    X = mixed_frame(600)
    return X, pd.Series(signal(X))


@pytest.fixture
def given(cluster: LocalCluster) -> Any:
    """A client that is not the current one."""
    with Client(cluster, set_as_default=False) as own:
        yield own


def test_a_given_client_is_used_and_not_kept(given: Client) -> None:
    X, y = data()
    model = DMLGBMRegressor(n_estimators=3).fit(in_partitions(X, 2), in_partitions(y, 2), client=given)
    assert model.fit_report_.n_ranks == 2
    assert model.booster_.to_bytes() == DMLGBMRegressor(n_estimators=3).fit(X, y).booster_.to_bytes()
    assert "client" not in model.get_params()
    assert not any(isinstance(value, Client) for value in vars(model).values())
    assert not hasattr(clone(model), "booster_")
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()


def test_classifiers_and_rankers_take_a_client_too(given: Client) -> None:
    X, y = data()
    grades = np.digitize(y, [0.0, 1.0])
    lazy = in_partitions(X, 2)
    classifier = DMLGBMClassifier(n_estimators=2).fit(lazy, in_partitions(pd.Series(grades), 2), client=given)
    # Local targets are cut where X is, which computes lengths: on the given cluster as well.
    ranker = DMLGBMRanker(n_estimators=2).fit(lazy, grades, group=da.from_array(np.array([300, 300])), client=given)
    assert classifier.fit_report_.n_ranks == ranker.fit_report_.n_ranks == 2


def test_a_given_client_comes_before_the_current_one(given: Client) -> None:
    X, y = data()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as other,
        Client(other),
    ):
        model = DMLGBMRegressor(n_estimators=2).fit(in_partitions(X, 2), in_partitions(y, 2), client=given)
    assert model.fit_report_.n_ranks == 2


def test_data_that_another_client_holds_is_refused(cluster: LocalCluster, given: Client) -> None:
    X, y = data()
    with Client(cluster, set_as_default=False) as holder:
        held = holder.persist(in_partitions(X, 2))
        with pytest.raises(ValueError, match=r"The data is held by the client Client-.* persist the data with"):
            DMLGBMRegressor(n_estimators=2).fit(held, in_partitions(y, 2), client=given)


def test_local_rows_refuse_a_client(given: Client) -> None:
    X, y = data()
    for model in (DMLGBMRegressor(), DMLGBMRanker()):
        with pytest.raises(ValueError, match="client was passed, but X is not a Dask collection"):
            model.fit(X, y, client=given)


def test_a_given_client_that_is_closed_is_refused(cluster: LocalCluster) -> None:
    X, y = data()
    with Client(cluster, set_as_default=False) as closed:
        pass
    with pytest.raises(ValueError, match=r"is closed: connect a new client"):
        DMLGBMRegressor().fit(in_partitions(X, 2), in_partitions(y, 2), client=closed)


def test_reasons_for_the_mode_are_logged_and_kept(given: Client, caplog: pytest.LogCaptureFixture) -> None:
    X, y = data()
    with caplog.at_level("INFO", logger="dmlgbm"):
        model = DMLGBMRegressor(n_estimators=1).fit(in_partitions(X, 2), in_partitions(y, 2), client=given)
    assert f"tree_learner='{model.plan_.tree_learner}' on 2 ranks" in caplog.text
    assert str(model.plan_) in caplog.text


def test_workers_are_found_while_the_client_forgets_them(given: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client updates what it knows of its scheduler every two seconds, without workers."""
    update = given._update_scheduler_info

    async def overtaken(n_workers: int = 0) -> None:
        await update(n_workers=0)

    monkeypatch.setattr(given, "_update_scheduler_info", overtaken)
    found = DaskCluster(given, "fit")
    assert sorted(found.workers().values()) == [1, 1]
    assert found.memory() > 0.0


def test_fits_and_predictions_of_an_asynchronous_client_are_awaited(cluster: LocalCluster) -> None:
    X, y = data()
    lazy = in_partitions(X, 2), in_partitions(y, 2)
    ticks = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def fit() -> tuple[DMLGBMRegressor, np.ndarray]:
        async with Client(cluster.scheduler_address, asynchronous=True) as own:
            ticking = asyncio.ensure_future(tick())
            given = await DMLGBMRegressor(n_estimators=2).fit(*lazy, client=own)
            model = await DMLGBMRegressor(n_estimators=3).fit(*lazy)
            ticking.cancel()
            predicted = await model.predict(lazy[0])
            assert given.fit_report_.n_ranks == 2
            return model, await own.compute(predicted)

    model, predicted = asyncio.run(fit())
    local = DMLGBMRegressor(n_estimators=3).fit(X, y)
    assert isinstance(model, DMLGBMRegressor)
    assert model.booster_.to_bytes() == local.booster_.to_bytes()
    assert (predicted == local.predict(X)).all()
    assert len(ticks) > 2  # the event loop went on meanwhile


def test_a_fit_that_is_no_longer_awaited_ends(cluster: LocalCluster, client: Client) -> None:
    X, y = data()
    lazy = in_partitions(X, 2), in_partitions(y, 2)

    async def fit() -> None:
        async with Client(cluster.scheduler_address, asynchronous=True, set_as_default=False) as own:
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()
            fitting = asyncio.ensure_future(
                DMLGBMRegressor(n_estimators=1_000_000).fit(
                    *lazy, client=own, callbacks=[lambda state: loop.call_soon_threadsafe(begun.set)]
                )
            )
            await begun.wait()
            fitting.cancel()
            await fitting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(fit())
    assert set(client.run(lambda: len(worker_holdings._holdings)).values()) == {0}


def _prefixes(dask_scheduler: Any) -> set[str]:
    return {prefix for prefix in dask_scheduler.task_prefixes if prefix.startswith("dmlgbm")}


def test_the_dashboard_tells_the_steps_of_a_fit_apart(given: Client) -> None:
    X, y = data()
    lazy = in_partitions(X, 2), in_partitions(y, 2)
    DMLGBMRegressor(n_estimators=1).fit(*lazy, eval_set=[lazy], client=given)
    steps = {prefix.split("-")[1] if "-" in prefix else "" for prefix in given.run_on_scheduler(_prefixes)}
    assert {"read", "described", "sample", "summary", "bin", "watch", "rank"} <= steps
    assert "" not in steps  # Dask takes words of eight letters such as "describe" for hashes and drops them


def slow_reading(X: pd.DataFrame, n_partitions: int) -> Any:
    def slow(part: pd.DataFrame) -> pd.DataFrame:  # inside a function, so that workers need not import this file
        time.sleep(2.0)
        return part

    return in_partitions(X, n_partitions).map_partitions(slow, meta=X)


def _n_finished(dask_scheduler: Any) -> int:
    return sum(task.state == "memory" and "slow" in str(task.key) for task in dask_scheduler.tasks.values())


def _n_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def test_tasks_that_are_cancelled_end_in_a_clear_error(cluster: LocalCluster) -> None:
    X, y = data()
    with Client(cluster, set_as_default=False) as own:
        slow = own.persist(slow_reading(X, 2))
        timer = threading.Timer(0.5, own.cancel, (slow,), {"force": True})
        timer.start()
        with pytest.raises(CancelledError, match=r"Tasks of this fit were cancelled.* persist it again"):
            DMLGBMRegressor(n_estimators=2).fit(slow, in_partitions(y, 2), client=own)
        timer.join()


def test_interrupt_while_reading_leaves_no_reads(given: Client) -> None:
    X, y = data()
    slow = slow_reading(X, 40)  # takes 40 s on two workers

    def interrupt() -> None:
        while not given.run_on_scheduler(_n_finished):
            time.sleep(0.1)
        signals.pthread_kill(threading.main_thread().ident, signals.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        DMLGBMRegressor(n_estimators=2).fit(slow, in_partitions(y, 40), client=given)
    thread.join()
    deadline = time.monotonic() + 20
    while given.run_on_scheduler(_n_tasks) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert given.run_on_scheduler(_n_tasks) == 0
    assert caught.tb is not None  # which still holds all that the fit had


def test_what_is_no_client_is_refused() -> None:
    X, y = data()
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client, got 'tcp://nowhere'"):
        DMLGBMRegressor().fit(in_partitions(X, 2), in_partitions(y, 2), client="tcp://nowhere")
