"""The parameter server strategy: its steps, its consistencies, and what it sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.batches import BatchSource
from dmlgbm.neural.shards import RowShard
from tests.neural.runs import SGD, accuracy, agreeing, job, rows, together
from tests.reference import shared_training as reference


def test_bsp_is_the_mean_of_all_workers_steps() -> None:
    X, y = rows()
    asked = job("parameter_server", max_epochs=2, **SGD)
    model, n_ranks = asked.blueprint.build(), 2
    weights = model.parameters.copy()
    sources = [
        BatchSource(RowShard.of_all(X, y, 0, 1), 12, "reshuffle", hash_of(0, "worker", rank), 0, 1)
        for rank in range(n_ranks)
    ]
    for epoch in (1, 2):
        batches = [list(source.own_epoch(epoch, 12))[:10] for source in sources]
        for step in range(10):
            moves = [reference.gradient(model, X, y, each[step].positions, weights) for each in batches]
            weights = weights - 0.1 * np.mean(moves, axis=0)
    result = agreeing(together(asked, X, y, n_ranks))
    np.testing.assert_allclose(result.parameters, weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"consistency": "ssp", "staleness": 2},
        {"consistency": "asp", "double_buffer": True},
        {"backup_workers": 1},
        {"push_interval": 2, "pull_interval": 3},
        {"consistency": "ssp", "send_above": 1.0, "n_servers": 2},
    ],
    ids=str,
)
def test_every_consistency_of_the_server_learns_and_ends_with_one_model(options: dict[str, Any]) -> None:
    X, y = rows()
    asked = job("parameter_server", options, max_epochs=4, batch_norm=True)
    result = agreeing(together(asked, X, y, 3))
    epochs = result.so_far.epochs
    assert epochs[-1]["loss"] < epochs[0]["loss"]
    assert all(rank["bytes_sent"] > 0 for rank in epochs[0]["ranks"])
    n_done = 0.0
    for number, epoch in enumerate(epochs, start=1):
        # What workers did beyond the end of an epoch counts for the next one.
        n_done += sum(rank["steps"] for rank in epoch["ranks"])
        assert n_done >= number * 3 * 10
        if options.get("consistency") == "ssp":
            assert epoch["staleness_max"] <= options.get("staleness", 3)


@pytest.mark.parametrize(
    ("options", "codec"), [({"send_above": 2.0}, None), ({}, ("top_k", {"fraction": 0.05}))], ids=str
)
def test_what_a_worker_has_not_sent_outlives_the_epoch(
    options: dict[str, Any], codec: tuple[str, dict[str, Any]] | None
) -> None:
    X, y = rows()
    settings = {"compression": codec[0], "compression_options": codec[1]} if codec else {}
    changes: dict[str, Any] = {"batch_size": 240, "max_epochs": 20, **SGD}  # one step in an epoch
    asked = job("parameter_server", options, **changes, **settings)
    part = agreeing(together(asked, X, y, 2)).so_far.epochs
    whole = agreeing(together(job("parameter_server", **changes), X, y, 2)).so_far.epochs
    assert part[0]["loss"] - part[-1]["loss"] > 0.75 * (whole[0]["loss"] - whole[-1]["loss"])


def test_what_servers_send_counts_for_the_ranks_that_run_them() -> None:
    X, y = rows()
    asked = job("parameter_server", max_epochs=2)
    size = asked.blueprint.build().parameters.nbytes
    for epoch in agreeing(together(asked, X, y, 3)).so_far.epochs:
        n_pulls = sum(rank["steps"] for rank in epoch["ranks"])
        assert epoch["ranks"][0]["bytes_sent"] > n_pulls * size
        assert epoch["bytes_sent"] > 2 * n_pulls * size


@pytest.mark.medium
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"send_above": 12.0}, {}),
        ({}, {"compression": "top_k", "compression_options": {"fraction": 0.01}}),
        ({"consistency": "asp", "double_buffer": True}, {"compression": "top_k"}),
    ],
    ids=str,
)
def test_pushes_and_pulls_of_what_changed_send_less_and_lose_nothing(
    options: dict[str, Any], settings: dict[str, Any]
) -> None:
    X, y = rows()
    changes: dict[str, Any] = {"max_epochs": 15, "hidden_layer_sizes": (64, 64)}
    whole = agreeing(together(job("parameter_server", **changes), X, y, 2))
    asked = job("parameter_server", options, **changes, **settings)
    part = agreeing(together(asked, X, y, 2))
    assert part.so_far.epochs[-1]["bytes_sent"] < 0.3 * whole.so_far.epochs[-1]["bytes_sent"]
    assert accuracy(asked, part, X, y) > accuracy(asked, whole, X, y) - 0.05
