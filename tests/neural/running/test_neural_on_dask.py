"""Dask collections train to the weights of a local fit, wherever partitions lie and whatever happens to workers."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Security

from dmlgbm.collectives.parameter_server import channels, reactor
from dmlgbm.gbdt.ranks.losses import TrainingLostError
from dmlgbm.neural import DMLLinearRegressor, DMLMLPClassifier, DMLMLPRegressor
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.running.generations import Survivor

SETTINGS = {"hidden_layer_sizes": (16,), "max_epochs": 4, "batch_size": 50, "dtype": "float64", "random_state": 0}


def table(n_rows: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 6))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 > 1, "yes", "no")


def in_chunks(X: np.ndarray, y: np.ndarray) -> tuple[da.Array, da.Array]:
    bounds = (0, 140, 141, 300, len(X))
    chunks = tuple(np.diff(bounds).tolist())
    return da.from_array(X, chunks=(chunks, X.shape[1])), da.from_array(y, chunks=(chunks,))


@pytest.mark.parametrize("changes", [{}, {"batch_norm": True, "early_stopping": True}], ids=["plain", "held out rows"])
def test_workers_end_with_the_weights_of_a_local_fit(client: Client, changes: dict[str, bool]) -> None:
    X, y = table()
    local = DMLMLPClassifier(**SETTINGS, **changes).fit(X, y)
    lazy = DMLMLPClassifier(**SETTINGS, **changes).fit(*in_chunks(X, y))
    assert lazy.history_.n_ranks == 2
    np.testing.assert_allclose(lazy.parameters_, local.parameters_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(lazy.history_["loss"], local.history_["loss"])
    predicted = lazy.predict(in_chunks(X, y)[0])
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(predicted.compute(), local.predict(X))


def test_frames_with_categories_and_empty_partitions(client: Client) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"kind": rng.choice(["a", "b", "c"], 300), "size": rng.normal(size=300)})
    target = pd.Series(np.where(frame["kind"] == "b", 1.0, -1.0) + frame["size"])
    # The first partition has no rows any more.
    lazy, y = (
        dd.from_pandas(each, npartitions=3).map_partitions(lambda part: part[part.index >= 100])
        for each in (frame, target)
    )
    settings = {"dtype": "float64", "max_epochs": 3, "random_state": 0}
    model = DMLLinearRegressor(**settings)
    with pytest.raises(ValueError, match="could not convert"):
        model.fit(lazy, y)
    perceptron = DMLMLPRegressor((8,), categorical_columns=["kind"], **settings)
    perceptron.fit(lazy, y)
    local = DMLMLPRegressor((8,), categorical_columns=["kind"], **settings).fit(frame[100:], target[100:])
    np.testing.assert_allclose(perceptron.parameters_, local.parameters_, rtol=0, atol=1e-9)
    assert list(perceptron.feature_names_in_) == ["kind", "size"]
    np.testing.assert_allclose(perceptron.predict(lazy).compute(), local.predict(frame[100:]), atol=1e-9)


def test_partitions_with_different_columns_are_refused(client: Client) -> None:
    from dask import delayed

    blocks = [da.from_delayed(delayed(np.ones)((4, width)), shape=(4, 3), dtype=float) for width in (3, 2)]
    X = da.concatenate(blocks)
    with pytest.raises(ValueError, match="partition 1 of X has 2 features, but partition 0 has 3"):
        DMLLinearRegressor(batch_size=2).fit(X, da.ones(8, chunks=4))


def test_a_backend_for_local_rows_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="backend must be one of auto, dask"):
        DMLMLPClassifier(backend="threads").fit(*in_chunks(*table()))


def test_without_a_client_the_fit_runs_in_this_process() -> None:
    X, y = table()
    local = DMLMLPClassifier(**SETTINGS).fit(X, y)
    with dask.config.set(scheduler="threads"):
        lazy = DMLMLPClassifier(**SETTINGS).fit(*in_chunks(X, y))
    assert lazy.history_.n_ranks == 1
    np.testing.assert_allclose(lazy.parameters_, local.parameters_, rtol=0, atol=1e-9)


@pytest.fixture
def fragile() -> Iterator[Client]:
    """A cluster of its own for a test that harms it."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def killed_after_three_epochs(
    fragile: Client, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Client:
    """One of the workers is killed (or gets another signal) when the client has seen the commit of the third epoch."""
    sent = getattr(request, "param", signal.SIGKILL)
    victims = [next(iter(fragile.run(os.getpid).values()))]
    keep = Survivor.keep

    def keep_and_kill(self: Survivor, commit: Commit) -> None:
        keep(self, commit)
        if commit.epoch >= 3 and victims:
            os.kill(victims.pop(), sent)

    monkeypatch.setattr(Survivor, "keep", keep_and_kill)
    return fragile


@pytest.mark.fault
def test_a_killed_worker_costs_no_accuracy(killed_after_three_epochs: Client) -> None:
    X, y = table(4000)
    settings = {**SETTINGS, "max_epochs": 150, "patience": None}
    quiet = DMLMLPClassifier(**settings).fit(X, y)
    disturbed = DMLMLPClassifier(**settings).fit(*in_chunks(X, y))
    assert len(disturbed.history_.losses) == 1
    assert len(disturbed.history_) == 150
    np.testing.assert_allclose(disturbed.parameters_, quiet.parameters_, rtol=0, atol=1e-6)
    assert abs(disturbed.score(X, y) - quiet.score(X, y)) <= 0.005


@pytest.mark.fault
@pytest.mark.parametrize("killed_after_three_epochs", [signal.SIGSTOP], indirect=True, ids=["stopped"])
def test_a_stopped_worker_is_lost_after_rank_timeout(killed_after_three_epochs: Client) -> None:
    settings = {**SETTINGS, "max_epochs": 150, "patience": None, "rank_timeout": 20}
    disturbed = DMLMLPClassifier(**settings).fit(*in_chunks(*table(4000)))
    assert len(disturbed.history_) == 150
    [loss] = disturbed.history_.losses
    assert "has not been heard of for 20 s (rank_timeout)" in loss


@pytest.mark.fault
def test_too_many_losses_are_told(killed_after_three_epochs: Client) -> None:
    settings = {**SETTINGS, "max_epochs": 3000, "patience": None, "max_restarts": 0}
    with pytest.raises(TrainingLostError, match=r"max_restarts=0:\n  1. after [0-9]+ epochs: rank"):
        DMLMLPClassifier(**settings).fit(*in_chunks(*table(4000)))


@pytest.mark.processes
def test_a_tls_cluster_encrypts_ranks_and_the_parameter_server(
    security: Security, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: set[type] = set()

    class Watched(channels.Channel):
        def __init__(self, connection: socket.socket, *others: int) -> None:
            connections.add(type(connection))
            super().__init__(connection, *others)

    # Workers run in this process, so that their connections can be looked at.
    monkeypatch.setattr(reactor, "Channel", Watched)
    X, y = table()
    changes = {"strategy": "parameter_server", "optimiser": "sgd", "learning_rate": 0.1}
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            security=security,
            protocol="tls://",
            dashboard_address=None,
        ) as cluster,
        Client(cluster, security=security) as client,
    ):
        assert all(worker.startswith("tls://") for worker in client.scheduler_info(n_workers=-1)["workers"])
        local = DMLMLPClassifier(**SETTINGS).fit(X, y)
        lazy = DMLMLPClassifier(**SETTINGS).fit(*in_chunks(X, y))
        np.testing.assert_allclose(lazy.parameters_, local.parameters_, rtol=0, atol=1e-9)
        assert not connections
        model = DMLMLPClassifier(**(SETTINGS | changes)).fit(*in_chunks(X, y))
    assert model.history_.n_ranks == 2
    assert model.loss_ < model.history_["loss"][0]
    assert connections == {ssl.SSLSocket}
