"""Strategies against slow and obvious versions of themselves, and what they refuse."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.collectives.session import PROBE_SECONDS
from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.batches import BatchSource
from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.settings import TrainingSettings
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.strategies import make_strategy, strategy_names
from dmlgbm.neural.strategies.fedavg import FedAvg
from dmlgbm.neural.strategies.gossip import Gossip, random_pairs
from dmlgbm.neural.strategies.parts.client_rows import ClientRows
from dmlgbm.neural.strategies.pipeline import stage_bounds
from dmlgbm.neural.training import Job, Trained, train
from tests.neural.runs import N_FEATURES, SGD, accuracy, agreeing, alone, job, rows, scattered, together
from tests.reference import shared_training as reference

# Local SGD and federated averaging.


@pytest.mark.parametrize("interval", [1, 4])
def test_local_sgd_is_the_mean_of_models_trained_apart(interval: int) -> None:
    X, y = rows()
    asked = job("local_sgd", {"interval": interval}, max_epochs=2, **SGD)
    model, n_ranks = asked.blueprint.build(), 3
    common = model.parameters.copy()
    shards = [scattered(X, y, rank, n_ranks) for rank in range(n_ranks)]
    for epoch in range(2):
        sources = [BatchSource(shard, 24, "reshuffle", 0, rank, n_ranks) for rank, shard in enumerate(shards)]
        batches = [
            [shard.numbers[batch.positions] for batch in source.own_epoch(epoch, 8)]
            for source, shard in zip(sources, shards, strict=True)
        ]
        for first in range(0, 10, interval):
            models = [
                reference.descend(model, X, y, each[first : min(10, first + interval)], common, 0.1) for each in batches
            ]
            common = np.mean(models, axis=0)  # the ranks own equally many rows
    result = agreeing(together(asked, X, y, n_ranks, scattered))
    np.testing.assert_allclose(result.parameters, common, rtol=0, atol=1e-9)


def test_post_local_sgd_begins_with_common_steps() -> None:
    X, y = rows()
    always = agreeing(together(job("local_sgd", {"interval": 1}, max_epochs=2, **SGD), X, y, 2))
    common = job("local_sgd", {"interval": 99, "synchronous_epochs": 2}, max_epochs=2, **SGD)
    result = agreeing(together(common, X, y, 2))
    np.testing.assert_allclose(result.parameters, always.parameters, rtol=0, atol=1e-9)


@pytest.mark.parametrize("send_above", [3.0, 8.0])
def test_sending_what_changed_most_sends_less_and_loses_nothing(send_above: float) -> None:
    X, y = rows()
    whole = agreeing(together(job("local_sgd", {"interval": 1}, max_epochs=16), X, y, 2))
    asked = job("local_sgd", {"interval": 1, "send_above": send_above}, max_epochs=16)
    part = agreeing(together(asked, X, y, 2))
    assert part.so_far.epochs[-1]["bytes_sent"] < 0.5 * whole.so_far.epochs[-1]["bytes_sent"]
    assert accuracy(asked, part, X, y) > accuracy(asked, whole, X, y) - 0.05


def fed_job(options: dict[str, Any], **changes: Any) -> Job:
    return job("fedavg", {"n_clients": 6, "client_fraction": 0.5, **options}, **{"max_epochs": 3, **SGD, **changes})


def test_fedavg_is_the_mean_of_clients_models_by_rows() -> None:
    X, y = rows(230)
    asked = fed_job({"local_epochs": 2, "partition": "dirichlet", "local_batch_size": 10})
    strategy = make_strategy("fedavg", asked.strategy_options)
    assert isinstance(strategy, FedAvg)
    parts = ClientRows("dirichlet", 2, 0.5).deal(y, 6, 0)
    model = asked.blueprint.build()
    weights = model.parameters.copy()
    for round_ in range(3):
        models, counts = [], []
        for client in strategy.drawn(0, round_).tolist():
            if not len(parts[client]):
                continue
            source = BatchSource(
                RowShard.of_all(X, y, 0, 1).with_owned(parts[client]),
                10,
                "reshuffle",
                hash_of(0, "client", client),
                0,
                1,
            )
            batches = [
                batch.positions
                for epoch in range(2)
                for batch in source.own_epoch(round_ * 2 + epoch, min(10, len(parts[client])))
            ]
            models.append(reference.descend(model, X, y, batches, weights, 0.1))
            counts.append(len(parts[client]))
        weights = np.average(models, axis=0, weights=counts)
    np.testing.assert_allclose(alone(asked, X, y).parameters, weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(agreeing(together(asked, X, y, 3)).parameters, weights, rtol=0, atol=1e-9)


def test_fedsgd_with_all_clients_is_gradient_descent_on_all_rows() -> None:
    X, y = rows()
    asked = fed_job({"client_fraction": 1.0, "local_batch_size": "all"})
    model = asked.blueprint.build()
    weights = reference.descend(model, X, y, [np.arange(len(X))] * 3, model.parameters.copy(), 0.1)
    np.testing.assert_allclose(agreeing(together(asked, X, y, 2)).parameters, weights, rtol=0, atol=1e-9)


def test_secure_aggregation_has_the_same_bits_whoever_is_lost_and_is_the_plain_mean() -> None:
    X, y = rows()
    options = {"n_clients": 4, "client_fraction": 1.0, "lost_fraction": 0.25}
    plain = alone(fed_job(options, max_epochs=1), X, y)
    secure = fed_job({**options, "secure": True}, max_epochs=1)
    single, several = alone(secure, X, y), agreeing(together(secure, X, y, 2))
    np.testing.assert_array_equal(single.parameters, several.parameters)
    np.testing.assert_allclose(single.parameters, plain.parameters, rtol=0, atol=1e-6)
    assert not np.array_equal(alone(fed_job({**options, "lost_fraction": 0.0}), X, y).parameters, plain.parameters)


@pytest.mark.medium
def test_krum_survives_sign_flippers_and_the_mean_does_not() -> None:
    X, y = rows(600)
    base = {"n_clients": 10, "client_fraction": 1.0, "local_epochs": 3, "local_batch_size": 10}
    attack = {"sign_flippers": 0.2, "flip_scale": 10.0}
    changes = {"max_epochs": 20, "learning_rate": 0.2}
    clean = fed_job(base, **changes)
    honest = accuracy(clean, alone(clean, X, y), X, y)
    for aggregator in ("krum", "multi_krum", "trimmed_mean", "median"):
        asked = fed_job({**base, **attack, "aggregator": aggregator}, **changes)
        assert accuracy(asked, alone(asked, X, y), X, y) > honest - 0.25, aggregator
    asked = fed_job({**base, **attack, "clip_update": 20.0}, **changes)
    assert accuracy(asked, alone(asked, X, y), X, y) < honest - 0.3


def test_fedprox_keeps_clients_near_the_model_of_the_group() -> None:
    X, y = rows()
    options = {"n_clients": 6, "client_fraction": 1.0, "local_epochs": 5, "partition": "classes"}
    moved = []
    for proximal in (0.0, 5.0):
        asked = job("fedprox", {**options, "proximal": proximal}, max_epochs=1, **SGD)
        moved.append(np.linalg.norm(alone(asked, X, y).parameters - asked.blueprint.build().parameters))
    assert moved[1] < 0.6 * moved[0]


def test_private_updates_have_noise_and_a_budget() -> None:
    X, y = rows()
    options = {"client_fraction": 0.5, "clip_update": 0.5, "noise_multiplier": 1.0}
    noisy = alone(fed_job(options, max_epochs=1), X, y)
    quiet = alone(fed_job({**options, "noise_multiplier": 1e-9}, max_epochs=1), X, y)
    deviation = np.std(noisy.parameters - quiet.parameters)
    assert deviation == pytest.approx(0.5 / 3.0, rel=0.2)
    with pytest.raises(ValueError, match="rounds fit"):
        alone(fed_job({**options, "epsilon": 1.0}, max_epochs=500), X, y)


@pytest.mark.parametrize("partition", ["iid", "classes", "dirichlet"])
def test_every_row_belongs_to_one_client(partition: Any) -> None:
    targets = np.random.default_rng(0).integers(0, 10, 500)
    parts = ClientRows(partition, 2, 0.3).deal(targets, 20, 4)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(500))
    if partition == "classes":
        assert all(len(np.unique(targets[part])) == 2 for part in parts)


# Gossip, ADMM, ensembles.


def test_gossip_waits_for_a_late_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows()
    asked = job("gossip", {"interval": 10}, max_epochs=2, **SGD)
    quiet = agreeing(together(asked, X, y, 3))
    finish = Gossip.finish_epoch

    def finish_late(self: Gossip, context: RankContext) -> None:
        finish(self, context)
        if context.rank == 1:  # the others wait in the collective that ends the epoch; then neighbours meet
            time.sleep(2 * PROBE_SECONDS)

    monkeypatch.setattr(Gossip, "finish_epoch", finish_late)
    np.testing.assert_array_equal(agreeing(together(asked, X, y, 3)).parameters, quiet.parameters)


def test_ring_gossip_is_the_mean_of_neighbours_after_every_step() -> None:
    X, y = rows()
    asked = job("gossip", max_epochs=1, **SGD)
    model, n_ranks = asked.blueprint.build(), 4
    shards = [RowShard.of_all(X, y, rank, n_ranks) for rank in range(n_ranks)]
    batches = [
        list(BatchSource(shard, 24, "reshuffle", 0, rank, n_ranks).own_epoch(0, 6)) for rank, shard in enumerate(shards)
    ]
    models = [model.parameters.copy()] * n_ranks
    for step in range(10):
        moved = [
            reference.descend(model, X, y, [batches[rank][step].positions], models[rank], 0.1)
            for rank in range(n_ranks)
        ]
        models = [np.mean([moved[(rank + k) % n_ranks] for k in (-1, 0, 1)], axis=0) for rank in range(n_ranks)]
    result = agreeing(together(asked, X, y, n_ranks))
    np.testing.assert_allclose(result.parameters, np.mean(models, axis=0), rtol=0, atol=1e-9)


def test_random_neighbours_are_pairs() -> None:
    for n_ranks in (2, 5, 8):
        for meeting in range(10):
            pairs = random_pairs(n_ranks, 3, meeting)
            np.testing.assert_array_equal(pairs[pairs], np.arange(n_ranks))
            assert np.count_nonzero(pairs == np.arange(n_ranks)) == n_ranks % 2
    X, y = rows()
    epochs = agreeing(together(job("gossip", {"neighbours": "random"}, max_epochs=4), X, y, 3)).so_far.epochs
    assert epochs[-1]["loss"] < epochs[0]["loss"]


@pytest.mark.parametrize(("staleness", "codec"), [(0, None), (2, None), (0, "int8")])
def test_admm_comes_to_the_least_squares_solution_of_all_rows(staleness: int, codec: str | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, N_FEATURES))
    X[:60] += 0.7  # ranks see different rows
    y = (X @ rng.normal(size=(N_FEATURES, 1)) + 0.3 + 0.5 * rng.normal(size=(120, 1))).astype(np.float64)
    settings = TrainingSettings(max_epochs=20, batch_size=120, learning_rate=0.15, optimiser="sgd", compression=codec)
    blueprint = NetworkBlueprint(N_FEATURES, 1, "squared", (), dtype="float64")
    options = {"local_epochs": 40, "rho": 1.0, "rounds": 2, "staleness": staleness}
    result = agreeing(together(Job(blueprint, settings, False, "admm", options), X, y, 2))
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(120)]), y[:, 0], rcond=None)[0]
    np.testing.assert_allclose(result.parameters, exact, rtol=0, atol=5e-3)


def test_a_student_answers_like_its_teachers_together() -> None:
    X, y = rows(600)
    asked = job("ensemble_distil", {"distil_epochs": 10}, max_epochs=20, batch_norm=True)
    result = agreeing(together(asked, X, y, 2))
    n_bytes = [epoch["bytes_sent"] for epoch in result.so_far.epochs]
    assert max(n_bytes[:10]) < 0.2 * min(n_bytes[10:])  # teachers train without a word but the one they end with
    assert accuracy(asked, result, X, y) > 0.8


# Work on one model shared by ranks.

OPTIMISERS = {
    "sgd": {"optimiser": "sgd", "learning_rate": 0.05, "optimiser_options": {"momentum": 0.9}, "clip_norm": 0.5},
    "adam": {"optimiser": "adam", "l2": 1e-3},
    "adamw": {"optimiser": "adamw", "schedule": "cosine", "dropout": 0.2},
    "batch norm": {"optimiser": "adam", "batch_norm": True},
}


@pytest.mark.medium
@pytest.mark.parametrize("strategy", ["tensor", "pipeline"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_shared_models_end_with_the_weights_of_one_process_after_100_steps(strategy: str, name: str) -> None:
    X, y = rows()
    changes = OPTIMISERS[name]
    options = {"micro_batches": 1 if name == "batch norm" else 3} if strategy == "pipeline" else {}
    single = alone(job(**changes), X, y)
    result = agreeing(together(job(strategy, options, **changes), X, y, 3))
    np.testing.assert_allclose(result.parameters, single.parameters, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.buffers, single.buffers, rtol=0, atol=1e-6)
    assert result.so_far.epochs[-1]["loss"] == pytest.approx(single.so_far.epochs[-1]["loss"], rel=1e-6)


def test_stages_of_a_pipeline_are_cut_where_the_largest_is_smallest() -> None:
    model = NetworkBlueprint(30, 4, "logistic", (64, 8, 50, 20, 5), batch_norm=True).build()
    costs = [model.layer_range(layer)[1] - model.layer_range(layer)[0] for layer in range(model.n_layers)]
    blocks = [costs[k] + (costs[k + 1] if k + 1 < len(costs) else 0) for k in range(0, len(costs), 2)]
    for n_stages in (1, 2, 3, 6):
        bounds = stage_bounds(model, n_stages)
        sizes = [
            sum(array.size for layer in model.layers[a:b] for array in layer.parameters)
            for a, b in itertools.pairwise(bounds)
        ]
        assert len(sizes) == n_stages
        assert max(sizes) == reference.smallest_largest_stage(blocks, n_stages)


# Codecs and refusals.


@pytest.mark.medium
@pytest.mark.parametrize(
    ("strategy", "codec"),
    [
        ("allreduce", ("power_sgd", {"rank": 1})),
        ("allreduce", ("top_k", {"fraction": 0.1})),
        ("local_sgd", ("power_sgd", {"rank": 1})),
        ("gossip", ("top_k", {"fraction": 0.1})),
        ("parameter_server", ("top_k", {"fraction": 0.1})),
        ("parameter_server", ("one_bit", {})),
        ("ensemble_distil", ("int8", {})),
        ("fedavg", ("one_bit", {})),
        ("tensor", ("int8", {})),
        ("tensor", ("top_k", {"fraction": 0.1})),
        ("pipeline", ("int8", {})),
        ("pipeline", ("top_k", {"fraction": 0.1})),
    ],
    ids=str,
)
def test_codecs_send_less_and_still_learn(strategy: str, codec: tuple[str, dict[str, Any]]) -> None:
    X, y = rows()
    options = {"n_clients": 4, "client_fraction": 1.0} if strategy == "fedavg" else {}
    changes = {"max_epochs": 6, "dtype": "float32", "hidden_layer_sizes": (32, 32)}
    X = X.astype(np.float32)
    plain = agreeing(together(job(strategy, options, **changes), X, y, 2)).so_far.epochs
    asked = job(strategy, options, compression=codec[0], compression_options=codec[1], **changes)
    coded = agreeing(together(asked, X, y, 2)).so_far.epochs
    assert coded[-1]["bytes_sent"] < 0.6 * plain[-1]["bytes_sent"]
    assert coded[2]["loss"] < coded[0]["loss"]


@pytest.mark.parametrize(
    ("strategy", "options", "changes", "told"),
    [
        ("admm", {}, {}, "linear models"),
        ("pipeline", {"micro_batches": 2}, {"batch_norm": True}, "micro_batches=1"),
        ("pipeline", {}, {"hidden_layer_sizes": ()}, "at most 1 ranks"),
        ("tensor", {}, {"residual": True}, "cannot spread"),
        ("tensor", {}, {"optimiser": "lamb"}, "lamb"),
        ("tensor", {}, {"compression": "power_sgd"}, "'tensor' cannot use compression='power_sgd'"),
        ("pipeline", {}, {"compression": "random_k"}, "'pipeline' cannot use compression='random_k'"),
        ("parameter_server", {}, {"compression": "power_sgd"}, "'parameter_server' cannot use compression='power_sgd'"),
        ("parameter_server", {"send_above": 1.0}, {"compression": "int8"}, "exclude"),
        ("admm", {}, {"compression": "random_k", "hidden_layer_sizes": ()}, "'admm' cannot use compression='random_k'"),
        ("parameter_server", {"backup_workers": 2}, {}, "at most 1"),
        ("gossip", {"neighbours": "random"}, {"compression": "fp16"}, "ring"),
        ("gossip", {}, {"compression": "power_sgd"}, "sums payloads"),
        ("local_sgd", {"send_above": 1.0}, {"compression": "fp16"}, "exclude"),
        ("fedavg", {"aggregator": "krum"}, {"compression": "fp16"}, "openly"),
        ("ensemble_distil", {"distil_epochs": 9}, {"max_epochs": 9}, "teachers"),
        ("ensemble_distil", {}, {"loss": "hinge"}, "logistic"),
    ],
    ids=str,
)
def test_a_strategy_says_what_it_cannot_train(
    strategy: str, options: dict[str, Any], changes: dict[str, Any], told: str
) -> None:
    X, y = rows()
    changes = dict(changes)
    loss = changes.pop("loss", "logistic")
    asked = job(strategy, options, **changes)
    asked = Job(NetworkBlueprint(**{**vars(asked.blueprint), "loss": loss}), asked.settings, True, strategy, options)
    with pytest.raises(ValueError, match=told):
        together(asked, X, y, 2)


@pytest.mark.parametrize("strategy", ["tensor", "pipeline"])
def test_shared_models_refuse_rows_that_are_apart(strategy: str) -> None:
    X, y = rows()
    with pytest.raises(ValueError, match="all rows on every rank"):
        together(job(strategy), X, y, 2, scattered)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("parameter_server", {"consistency": "later"}),
        ("parameter_server", {"staleness": 2}),
        ("parameter_server", {"consistency": "asp", "backup_workers": 1}),
        ("parameter_server", {"push_interval": 0}),
        ("local_sgd", {"interval": 0}),
        ("fedavg", {"partition": "letters"}),
        ("fedavg", {"client_fraction": 0.0}),
        ("fedavg", {"secure": True, "aggregator": "median"}),
        ("fedavg", {"noise_multiplier": 1.0}),
        ("fedavg", {"epsilon": 1.0}),
        ("fedavg", {"local_batch_size": "some"}),
        ("fedprox", {"proximal": -1.0}),
        ("gossip", {"neighbours": "all"}),
        ("admm", {"rho": 0.0}),
        ("ensemble_distil", {"soft": 2.0}),
        ("pipeline", {"micro_batches": 0}),
    ],
    ids=str,
)
def test_bad_options_are_named(strategy: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        make_strategy(strategy, options)


def test_every_strategy_is_known_by_its_name() -> None:
    for name in strategy_names():
        assert make_strategy(name).name == name


# Early stopping.


@pytest.mark.parametrize("watched", [True, False])
def test_early_stopping_of_a_distilled_ensemble_sees_students_only(watched: bool) -> None:
    X, y = rows()
    # No epoch is ever better than the first one that counts.
    asked = job("ensemble_distil", {"distil_epochs": 8}, max_epochs=14, patience=3, tolerance=100.0)

    def work(communicator: Communicator) -> Trained:
        shards = [RowShard.of_all(X, y, communicator.rank, communicator.world_size) for _ in range(2)]
        return train(communicator, asked, shards[0], shards[1] if watched else None)

    trained = agreeing(run_threads(work, 2))
    assert trained.so_far.best_epoch == 6
    assert len(trained.so_far.epochs) == 10
    assert all(("score" in epoch) == watched for epoch in trained.so_far.epochs)
    if watched:
        score = trained.so_far.epochs[6]["score"]
        assert accuracy(asked, trained, X, y) == pytest.approx(score)


def test_a_target_score_waits_for_the_student() -> None:
    X, y = rows()
    asked = job("ensemble_distil", {"distil_epochs": 3}, max_epochs=6, target_score=-100.0)
    assert len(agreeing(together(asked, X, y, 2)).so_far.epochs) == 4
