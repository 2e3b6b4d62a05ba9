"""A run that goes on from a commit, on as many ranks as before, ends as if nothing had happened."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.training import Job, Trained, train
from tests.neural.runs import N_CLASSES, N_FEATURES, agreeing, job, rows

N_EPOCHS = 4
TOP_K = {"compression": "top_k", "compression_options": {"fraction": 0.1}}


def run(asked: Job, n_ranks: int, start: Commit | None = None) -> tuple[Trained, list[Commit]]:
    X, y = rows()
    commits: list[Commit] = []

    def work(communicator: Communicator) -> Trained:
        shard = RowShard.of_all(X, y, communicator.rank, communicator.world_size)
        return train(communicator, asked, shard, start=start, on_commit=commits.append)

    return agreeing(run_threads(work, n_ranks)), commits


@pytest.mark.medium
@pytest.mark.parametrize(
    ("strategy", "options", "settings"),
    [
        ("allreduce", {}, {"batch_norm": True}),
        ("allreduce", {}, TOP_K),
        ("allreduce", {}, {"compression": "power_sgd"}),
        ("local_sgd", {"interval": 4}, {}),
        ("local_sgd", {"interval": 4, "send_above": 3.0}, {}),
        ("local_sgd", {"interval": 4}, TOP_K),
        ("gossip", {}, {"batch_norm": True}),
        ("gossip", {"neighbours": "random", "interval": 3}, {}),
        ("gossip", {"towards": 0.5}, TOP_K),
        ("fedavg", {"n_clients": 6}, TOP_K),
        ("fedavg", {"n_clients": 6, "send_above": 3.0, "server_momentum": 0.5}, {}),
        ("ensemble_distil", {"distil_epochs": 2}, {}),
        ("ensemble_distil", {"distil_epochs": 1}, TOP_K),
        ("parameter_server", {}, {}),
        ("parameter_server", {"push_interval": 2, "pull_interval": 2}, TOP_K),
        ("parameter_server", {"send_above": 2.0}, {}),
        ("admm", {}, {}),
    ],
)
def test_the_same_ranks_go_on_as_if_nothing_had_happened(strategy: str, options: Any, settings: Any) -> None:
    asked = job(strategy, options, max_epochs=N_EPOCHS, **settings)
    if strategy == "admm":
        asked = Job(NetworkBlueprint(N_FEATURES, N_CLASSES, "logistic"), asked.settings, True, strategy, options)
    quiet, commits = run(asked, 3)
    again, _ = run(asked, 3, Commit.from_bytes(commits[1].to_bytes()))
    # Servers add up what workers push in the order in which it comes.
    exact = strategy not in ("parameter_server", "admm")
    np.testing.assert_allclose(again.parameters, quiet.parameters, rtol=0, atol=0 if exact else 1e-9)
    np.testing.assert_array_equal(again.buffers, quiet.buffers)


@pytest.mark.parametrize("strategy", ["allreduce", "local_sgd"])
def test_fewer_ranks_go_on_and_say_what_is_lost(strategy: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = job(strategy, max_epochs=N_EPOCHS)
    _, commits = run(asked, 3)
    with caplog.at_level(logging.WARNING, "dmlgbm"):
        again, _ = run(asked, 2, commits[1])
    assert len(again.so_far.epochs) == N_EPOCHS
    told = [record for record in caplog.records if "2 ranks instead of 3" in record.getMessage()]
    assert len(told) == (strategy == "local_sgd")
