"""Networks compute what they should: every gradient is the slope of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dmlgbm.neural.blueprints import EmbeddingBlueprint, NetworkBlueprint
from dmlgbm.neural.layers import ACTIVATIONS
from dmlgbm.neural.losses import LOSSES, probabilities_of
from dmlgbm.neural.model import Pass
from dmlgbm.neural.network import Network
from dmlgbm.neural.random_numbers import normal, permutation, uniform

N_ROWS = 9


def batch(n_features: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N_ROWS, n_features))


def targets_for(loss: str, n_outputs: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    if LOSSES[loss].classifies:
        return rng.integers(0, max(2, n_outputs), N_ROWS)
    return rng.normal(size=(N_ROWS, n_outputs))


def a_pass(n_rows: int = N_ROWS) -> Pass:
    return Pass(step=7, row_numbers=np.arange(n_rows), n_rows=n_rows)


def assert_slopes(network: Network, X: Any, y: np.ndarray) -> None:
    """Compare every gradient with a central difference of the loss."""
    network.parameters += 0.01 * normal(5, len(network.parameters))  # away from kinks and from zeros
    network.compute_gradients(X, y, a_pass())
    gradients = network.gradients.copy()
    step = 1e-6
    for position in range(len(gradients)):
        kept = network.parameters[position]
        losses = []
        for change in (step, -step):
            network.parameters[position] = kept + change
            losses.append(network.compute_gradients(X, y, a_pass()))
        network.parameters[position] = kept
        slope = (losses[0] - losses[1]) / (2 * step)
        assert gradients[position] == pytest.approx(slope, abs=1e-6, rel=1e-5), network.parts


@pytest.mark.parametrize(
    "settings",
    [
        *({"activation": activation} for activation in ACTIVATIONS),
        {"batch_norm": True, "activation": "tanh"},
        {"dropout": 0.4},
        {"residual": True},
        {"residual": True, "batch_norm": True, "activation": "tanh", "hidden_layer_sizes": (5,)},
        {"embedding": EmbeddingBlueprint((1, 3), (4, 3), (3, 2))},
        {"hidden_layer_sizes": ()},
        {"bias": False, "hidden_layer_sizes": ()},
    ],
    ids=str,
)
def test_gradients_are_slopes(settings: dict[str, Any]) -> None:
    X = batch()
    X[:, 1], X[:, 3] = np.arange(N_ROWS) % 4, np.arange(N_ROWS) % 3
    blueprint = {"hidden_layer_sizes": (4, 3), "dtype": "float64", **settings}
    assert_slopes(NetworkBlueprint(5, 3, "logistic", **blueprint).build(), X, targets_for("logistic", 3))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_gradients_of_losses_are_slopes(loss: str, n_outputs: int) -> None:
    network = NetworkBlueprint(5, n_outputs, loss, (4,), "tanh", dtype="float64").build()
    assert_slopes(network, batch(), targets_for(loss, n_outputs))


def test_sparse_rows_give_the_gradients_of_dense_ones() -> None:
    X = np.where(batch() > 0, batch(), 0.0)
    dense, sparse = (NetworkBlueprint(5, 3, "logistic", (4,), dtype="float64").build() for _ in range(2))
    y = targets_for("logistic", 3)
    assert dense.compute_gradients(X, y, a_pass()) == pytest.approx(
        sparse.compute_gradients(csr_matrix(X), y, a_pass())
    )
    np.testing.assert_allclose(sparse.gradients, dense.gradients, atol=1e-12)
    np.testing.assert_allclose(sparse.outputs(csr_matrix(X)), dense.outputs(X), atol=1e-12)


def test_dropout_of_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    blueprint = NetworkBlueprint(5, 3, "logistic", (40,), dropout=0.5, dtype="float64")
    X = batch()
    whole = blueprint.build().forward(X, a_pass())
    part = blueprint.build().forward(X[4:], Pass(7, np.arange(4, N_ROWS), N_ROWS))
    np.testing.assert_allclose(part, whole[4:], atol=1e-12)
    later = blueprint.build().forward(X, Pass(8, np.arange(N_ROWS), N_ROWS))
    assert np.abs(later - whole).max() > 1e-3


def test_dropout_keeps_the_share_it_says() -> None:
    network = NetworkBlueprint(200, 2, "squared", (), dtype="float64").build()
    assert network.n_outputs == 2
    from dmlgbm.neural.layers import Dropout

    layer = Dropout(0.25)
    kept = layer.forward(np.ones((500, 200)), Pass(0, np.arange(500), 500))
    assert np.mean(kept == 0) == pytest.approx(0.25, abs=0.01)
    assert kept.mean() == pytest.approx(1.0, abs=0.02)


def test_losses_stay_finite_at_extreme_scores() -> None:
    scores = np.array([[1000.0], [-1000.0]])
    loss, gradient = LOSSES["logistic"]().value_and_gradient(scores.copy(), np.array([0, 1]))
    assert loss == pytest.approx(2000.0)
    np.testing.assert_allclose(gradient, [[1.0], [-1.0]])
    np.testing.assert_allclose(probabilities_of(scores), [[0, 1], [1, 0]], atol=1e-12)
    many = np.array([[1000.0, -1000.0, 0.0]])
    assert LOSSES["logistic"]().value(many, np.array([1])) == pytest.approx(2000.0)


def test_random_numbers_are_spread_as_they_should() -> None:
    numbers = uniform(11, 20_000)
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert numbers.mean() == pytest.approx(0.5, abs=0.01)
    draws = normal(12, 20_000)
    assert (draws.mean(), draws.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))
    order = permutation(13, 1000)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    assert (order != permutation(14, 1000)).any()
