"""Short trainings that several tests compare: the same job on one rank or on several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from dmlgbm.collectives import Communicator
from dmlgbm.collectives.joining.launch import run_threads
from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.lone_communicator import LoneCommunicator
from dmlgbm.neural.settings import TrainingSettings
from dmlgbm.neural.shards import RowShard
from dmlgbm.neural.training import Job, Trained, train

N_FEATURES = 12
N_CLASSES = 4
SGD = {"optimiser": "sgd", "learning_rate": 0.1}


def rows(n_rows: int = 240, seed: int = 3, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    y = np.argmax(X @ rng.normal(size=(N_FEATURES, N_CLASSES)) + rng.normal(size=(n_rows, N_CLASSES)), axis=1)
    return X.astype(dtype), y.astype(np.int64)


def job(strategy: str = "allreduce", options: dict[str, Any] | None = None, **changes: Any) -> Job:
    """A small network; keyword arguments go to the blueprint or to the settings, whichever knows them."""
    blueprint_names = NetworkBlueprint.__dataclass_fields__
    blueprint: dict[str, Any] = {"hidden_layer_sizes": (16, 8), "dtype": "float64"}
    settings: dict[str, Any] = {"max_epochs": 10, "batch_size": 24, "learning_rate": 1e-2, "optimiser": "adam"}
    for name, value in changes.items():
        (blueprint if name in blueprint_names else settings)[name] = value
    return Job(
        NetworkBlueprint(N_FEATURES, N_CLASSES, "logistic", **blueprint),
        TrainingSettings(**settings),
        True,
        strategy,
        options or {},
    )


Sharding = Callable[[np.ndarray, np.ndarray, int, int], RowShard]


def scattered(X: np.ndarray, y: np.ndarray, rank: int, world_size: int) -> RowShard:
    """Every rank has rows of its own, unequally many, as on a cluster."""
    owner = (np.arange(len(X)) * 7 % 10 >= 6 if world_size == 2 else np.arange(len(X)) % world_size).astype(int)
    mine = np.flatnonzero(owner == rank)
    return RowShard.of_part(X[mine], y[mine], mine.astype(np.int64), len(X))


def alone(job: Job, X: np.ndarray, y: np.ndarray, **options: Any) -> Trained:
    return train(cast(Communicator, LoneCommunicator()), job, RowShard.of_all(X, y, 0, 1), **options)


def together(job: Job, X: np.ndarray, y: np.ndarray, n_ranks: int, shard: Sharding = RowShard.of_all) -> list[Trained]:
    def work(communicator: Communicator) -> Trained:
        return train(communicator, job, shard(X, y, communicator.rank, communicator.world_size))

    return run_threads(work, n_ranks)


def accuracy(asked: Job, trained: Trained, X: np.ndarray, y: np.ndarray) -> float:
    model = asked.blueprint.build()
    model.parameters[...] = trained.parameters
    model.buffers[...] = trained.buffers
    return float(np.mean(model.outputs(X).argmax(axis=1) == y))


def agreeing(results: list[Trained]) -> Trained:
    for result in results[1:]:
        np.testing.assert_array_equal(result.parameters, results[0].parameters)
        np.testing.assert_array_equal(result.buffers, results[0].buffers)
    return results[0]
