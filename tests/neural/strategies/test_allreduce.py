"""Synchronous all-reduce on any number of ranks is training in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.strategies.allreduce import make_buckets
from tests.neural.runs import Sharding, alone, job, rows, scattered, together

OPTIMISERS = {
    "sgd": {"optimiser": "sgd", "learning_rate": 0.1},
    "momentum": {"optimiser": "sgd", "learning_rate": 0.05, "optimiser_options": {"momentum": 0.9}},
    "nesterov": {
        "optimiser": "sgd",
        "learning_rate": 0.05,
        "optimiser_options": {"momentum": 0.9, "nesterov": True},
    },
    "adam": {"optimiser": "adam"},
    "adamw": {"optimiser": "adamw", "schedule": "cosine", "warmup_steps": 5},
    "lamb": {"optimiser": "lamb", "l2": 1e-3, "clip_norm": 1.0},
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("batch_norm", [False, True], ids=["plain", "batch norm"])
@pytest.mark.parametrize("n_ranks", [2, *(pytest.param(n_ranks, marks=pytest.mark.slow) for n_ranks in (3, 4, 7))])
def test_ranks_end_with_the_weights_of_one_process_after_100_steps(name: str, batch_norm: bool, n_ranks: int) -> None:
    X, y = rows()
    asked = job(batch_norm=batch_norm, **OPTIMISERS[name])
    single = alone(asked, X, y)
    assert sum(epoch["steps"] for epoch in single.so_far.epochs) == 100
    initial = asked.blueprint.build().parameters
    assert np.abs(single.parameters - initial).max() > 1e-2
    for result in together(asked, X, y, n_ranks):
        np.testing.assert_allclose(result.parameters, single.parameters, rtol=0, atol=1e-6)
        np.testing.assert_allclose(result.buffers, single.buffers, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.3},
        {"residual": True, "batch_norm": True},
        {"sampling": "replacement"},
        {"activation": "tanh", "batch_size": 37},
    ],
    ids=str,
)
@pytest.mark.parametrize("shard", [RowShard.of_all, scattered], ids=["shared rows", "own rows"])
def test_where_rows_lie_does_not_change_the_weights(changes: dict[str, Any], shard: Sharding) -> None:
    X, y = rows()
    asked = job(max_epochs=3, **changes)
    single = alone(asked, X, y)
    results = together(asked, X, y, 2, shard)
    np.testing.assert_array_equal(results[0].parameters, results[1].parameters)
    np.testing.assert_allclose(results[0].parameters, single.parameters, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [{"overlap": False}, {"accumulate": 3}, {"bucket_bytes": 1}, {"bucket_bytes": 600, "accumulate": 2}],
    ids=str,
)
def test_options_change_the_traffic_and_not_the_weights(options: dict[str, Any]) -> None:
    X, y = rows()
    single = alone(job(max_epochs=2), X, y)
    result = together(job(max_epochs=2, options=options), X, y, 2)[0]
    np.testing.assert_allclose(result.parameters, single.parameters, rtol=0, atol=1e-9)


def test_a_rank_without_rows_takes_part() -> None:
    X, y = rows()

    def all_on_rank_0(X: np.ndarray, y: np.ndarray, rank: int, world_size: int) -> RowShard:
        numbers = np.arange(len(X) if rank == 0 else 0)
        return RowShard.of_part(X[numbers], y[numbers], numbers, len(X))

    asked = job(max_epochs=2, batch_norm=True)
    result = together(asked, X, y, 2, all_on_rank_0)[1]
    np.testing.assert_allclose(result.parameters, alone(asked, X, y).parameters, rtol=0, atol=1e-9)


def test_single_precision_stays_close() -> None:
    X, y = rows(dtype="float32")
    asked = job(dtype="float32")
    single, several = alone(asked, X, y), together(asked, X, y, 2)[0]
    assert several.parameters.dtype == np.float32
    np.testing.assert_allclose(several.parameters, single.parameters, rtol=0, atol=1e-4)


def test_buckets_cover_every_parameter_once_from_the_last_layer_to_the_first() -> None:
    model = NetworkBlueprint(12, 4, "logistic", (16, 8), batch_norm=True).build()
    for bucket_bytes in (1, 300, 1 << 20):
        buckets = make_buckets(model, bucket_bytes)
        assert [bucket.stop for bucket in buckets[1:]] == [bucket.start for bucket in buckets[:-1]]
        assert (buckets[-1].start, buckets[0].stop) == (0, len(model.parameters))
    assert len(make_buckets(model, 1)) == model.n_layers
    assert len(make_buckets(model, 1 << 20)) == 1


def test_history_tells_bytes_and_waiting_of_every_rank() -> None:
    X, y = rows()
    asked = job(max_epochs=2)
    epochs = together(asked, X, y, 2)[1].so_far.epochs
    size = asked.blueprint.build().gradients.nbytes
    for epoch in epochs:
        assert len(epoch["ranks"]) == 2
        # Each of 10 steps sends at least the gradients once, and headers on top.
        assert all(rank["bytes_sent"] >= 10 * size for rank in epoch["ranks"])
        assert epoch["bytes_sent"] == sum(rank["bytes_sent"] for rank in epoch["ranks"])
        assert all(0 < rank["wait_seconds"] <= rank["seconds"] for rank in epoch["ranks"])
    assert epochs[1]["loss"] < epochs[0]["loss"]
    assert epochs[0]["loss"] == pytest.approx(alone(asked, X, y).so_far.epochs[0]["loss"])


def test_codecs_see_the_shapes_of_layers_and_send_less() -> None:
    X, y = rows()

    def bytes_sent(**changes: Any) -> float:
        result = together(job(max_epochs=2, hidden_layer_sizes=(64, 64), **changes), X, y, 2)[0]
        assert np.isfinite(result.parameters).all()
        return result.so_far.epochs[-1]["bytes_sent"]

    plain = bytes_sent()
    assert bytes_sent(compression="power_sgd", compression_options={"rank": 1}) < plain / 4
    assert bytes_sent(compression="top_k", compression_options={"fraction": 0.01}) < plain / 4
