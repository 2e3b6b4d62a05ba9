"""A row of weight k counts like k rows, in every loss and wherever ranks run; a row without weight is not there."""

from __future__ import annotations

from typing import Any, cast

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from sklearn.metrics import accuracy_score, r2_score

from dmlgbm.collectives import Communicator
from dmlgbm.neural import DMLLinearClassifier, DMLLinearRegressor, DMLMLPClassifier, DMLMLPRegressor
from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.evaluation import evaluate
from dmlgbm.neural.lone_communicator import LoneCommunicator
from dmlgbm.neural.shards import RowShard

STEPS = {"optimiser": "sgd", "learning_rate": 0.1, "max_epochs": 5, "random_state": 0, "dtype": "float64"}


def table(n_rows: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 4))
    return X, (X[:, 0] + X[:, 1] > 0.3).astype(int) + (X[:, 2] > 1), rng.integers(1, 4, n_rows)


def assert_weights_are_repetitions(model: Any, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
    """With all rows in one batch; weights of any scale."""
    twin = type(model)(**model.get_params())
    weighted = model.set_params(batch_size=len(X)).fit(X, y, 0.25 * weights)
    repeated = twin.set_params(batch_size=int(weights.sum())).fit(np.repeat(X, weights, 0), np.repeat(y, weights, 0))
    np.testing.assert_allclose(weighted.parameters_, repeated.parameters_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(weighted.history_["loss"], repeated.history_["loss"], rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        DMLLinearClassifier(loss="hinge", **STEPS),
        DMLMLPClassifier((6,), **STEPS),
        DMLLinearRegressor(loss="squared", **STEPS),
        DMLLinearRegressor(loss="absolute", **STEPS),
        DMLMLPRegressor((6,), loss="huber", **STEPS),
    ],
    ids=lambda model: f"{type(model).__name__} {model.loss}",
)
def test_every_loss_counts_rows_by_weight(model: Any) -> None:
    X, y, weights = table()
    assert_weights_are_repetitions(model, X, y + 0.1 * X[:, 3] if "Regressor" in type(model).__name__ else y, weights)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"backend": "processes"}, marks=pytest.mark.processes),
        {"strategy": "tensor"},
        {"strategy": "pipeline"},
        {"strategy": "local_sgd", "strategy_options": {"synchronous_epochs": 5}},
    ],
    ids=str,
)
def test_ranks_count_rows_by_weight(changes: dict[str, Any]) -> None:
    X, y, weights = table()
    if changes.get("strategy") == "local_sgd":  # each rank has its own rows: let both have as many
        weights[30:] = weights[:30]
    assert_weights_are_repetitions(DMLMLPClassifier((6,), n_ranks=2, **STEPS, **changes), X, y, weights)


def test_a_student_counts_rows_by_weight() -> None:
    X, y, weights = table()
    options = {"strategy": "ensemble_distil", "strategy_options": {"distil_epochs": 3}}
    assert_weights_are_repetitions(DMLMLPClassifier((6,), **STEPS, **options), X, y, weights)


def test_rows_without_weight_are_not_there() -> None:
    X, y, weights = table()
    weights[::3] = 0
    here = weights > 0
    settings = {**STEPS, "batch_size": 7, "hidden_layer_sizes": (6,), "dropout": 0.2, "early_stopping": True}
    given = DMLMLPClassifier(**settings).fit(X, y, weights)
    left = DMLMLPClassifier(**settings).fit(X[here], y[here], weights[here])
    np.testing.assert_array_equal(given.parameters_, left.parameters_)
    assert given.history_["score"] == left.history_["score"]


def test_scores_go_by_weight() -> None:
    X, y, weights = table()
    lone = cast(Communicator, LoneCommunicator())
    classes = NetworkBlueprint(4, 3, "logistic", ()).build()
    rows = RowShard.of_all(X, y, 0, 1, weights.astype(float))
    predicted = classes.outputs(X).argmax(axis=1)
    assert evaluate(classes, rows, True, lone) == pytest.approx(accuracy_score(y, predicted, sample_weight=weights))
    values = NetworkBlueprint(4, 2, "squared", ()).build()
    targets = X[:, :2] + 0.5
    rows = RowShard.of_all(X, targets, 0, 1, weights.astype(float))
    expected = r2_score(targets, values.outputs(X), sample_weight=weights)
    assert evaluate(values, rows, False, lone) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [DMLMLPClassifier, DMLMLPRegressor])
def test_workers_of_a_cluster_count_rows_by_weight(client: Client, kind: Any) -> None:
    X, y, weights = table()
    weights[:20] = 0  # all rows of the first partition, and the only ones of a class
    y[0] = 7
    chunks = ((20, 25, 15),)
    lazy = [da.from_array(X, chunks=(chunks[0], 4)), da.from_array(y, chunks=chunks)]
    settings = {**STEPS, "batch_size": 12, "hidden_layer_sizes": (6,)}
    local = kind(**settings).fit(X, y, weights)
    for given in (weights, da.from_array(weights, chunks=chunks)):
        found = kind(**settings).fit(*lazy, given)
        np.testing.assert_allclose(found.parameters_, local.parameters_, rtol=0, atol=1e-9)
    if kind is DMLMLPClassifier:
        np.testing.assert_array_equal(found.classes_, local.classes_)
    with pytest.raises(ValueError, match=r"partition 1: sample_weight must not be negative, got -1.0 in row 5"):
        kind(**settings).fit(*lazy, np.where(np.arange(60) == 25, -1.0, 1.0))


def test_torch_modules_count_rows_by_weight() -> None:
    torch = pytest.importorskip("torch")
    from dmlgbm.neural import DMLTorchClassifier

    X, y, weights = table()
    torch.manual_seed(0)
    assert_weights_are_repetitions(DMLTorchClassifier(torch.nn.Linear(4, 3), **STEPS), X, y, weights)
