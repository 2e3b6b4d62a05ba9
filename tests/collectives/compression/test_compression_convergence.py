"""Distributed gradient descent ends near the same loss with every codec."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlgbm.collectives.compression import (
    BFloat16,
    Codec,
    Compressor,
    Float16,
    Float16Sum,
    Int8,
    NoCompression,
    OneBit,
    PowerSGD,
    RandomK,
    TopK,
    compressed_all_reduce,
)
from tests.reference.threaded_ranks import ThreadedRank, run_on_ranks

Array = npt.NDArray[Any]
WORLD_SIZE = 3
N_ROWS, N_INPUTS, N_OUTPUTS = 40, 12, 10


def problem(rank: int) -> tuple[Array, Array]:
    """One rank's rows of a least-squares problem with several outputs and noise."""
    truth = np.random.default_rng(0).normal(size=(N_INPUTS, N_OUTPUTS))
    random = np.random.default_rng(rank + 1)
    inputs = random.normal(size=(N_ROWS, N_INPUTS))
    return inputs, inputs @ truth + 0.3 * random.normal(size=(N_ROWS, N_OUTPUTS))


def loss(weights: Array) -> float:
    return float(np.mean([np.mean((x @ weights - y) ** 2) for x, y in map(problem, range(WORLD_SIZE))]))


def loss_after_training(codec: Codec, n_steps: int, batch_size: int = 10) -> float:
    def work(rank: ThreadedRank) -> Array:
        inputs, targets = problem(rank.rank)
        compressor = Compressor(codec)
        weights = np.zeros((N_INPUTS, N_OUTPUTS), np.float32)
        random = np.random.default_rng(100 + rank.rank)
        for step in range(n_steps):
            rows = random.choice(N_ROWS, batch_size, replace=False)
            x, y = inputs[rows], targets[rows]
            gradient = (x.T @ (x @ weights - y) / batch_size).astype(np.float32)
            total = compressed_all_reduce(rank, gradient, compressor, "weights")
            weights -= np.float32(0.05 / (1 + step / 150) / WORLD_SIZE) * total
        return weights

    results = run_on_ranks(WORLD_SIZE, work)
    assert len({weights.tobytes() for weights in results}) == 1
    return loss(results[0])


@pytest.fixture(scope="module")
def uncompressed_loss() -> float:
    return loss_after_training(NoCompression(), n_steps=600)


@pytest.mark.medium
@pytest.mark.parametrize(
    "codec",
    [
        Float16(),
        Float16Sum(),
        BFloat16(),
        Int8(block_size=64),
        OneBit(block_size=64),
        TopK(0.1),
        RandomK(0.1),
        PowerSGD(rank=1),
    ],
    ids=lambda codec: codec.name,
)
def test_descent_reaches_the_uncompressed_loss_within_a_thousandth(codec: Codec, uncompressed_loss: float) -> None:
    assert uncompressed_loss < 0.01 * loss(np.zeros((N_INPUTS, N_OUTPUTS)))
    assert loss_after_training(codec, n_steps=600) <= 1.001 * uncompressed_loss
