"""Torch modules train through the same strategies, to the weights that torch itself finds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch", reason="torch is not installed")

from neural.batches import BatchSource  # noqa: E402
from neural.model import Pass  # noqa: E402
from neural.settings import TrainingSettings  # noqa: E402
from neural.shards import RowShard  # noqa: E402
from neural.torch_models.estimators import DMLTorchClassifier, DMLTorchRegressor  # noqa: E402
from neural.torch_models.model import TorchPlan  # noqa: E402
from neural.training import Job  # noqa: E402
from tests.neural.runs import N_CLASSES, N_FEATURES, alone, job, rows, together  # noqa: E402


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)
    ).double()


def torch_job(**changes: object) -> Job:
    settings = {"max_epochs": 3, "batch_size": 24, "learning_rate": 1e-2, "optimiser": "adam", **changes}
    return Job(TorchPlan(module(), "logistic", "float64"), TrainingSettings(**settings), True)


def test_training_takes_the_steps_of_torch() -> None:
    X, y = rows()
    asked = torch_job(optimiser="adamw", optimiser_options={"weight_decay": 0.0})
    trained = alone(asked, X, y)
    own = module()
    optimiser = torch.optim.Adam(own.parameters(), lr=1e-2)
    source = BatchSource(RowShard.of_all(X, y, 0, 1), 24, "reshuffle", 0, 0, 1)
    for epoch in range(3):
        for batch in source.global_epoch(epoch):
            optimiser.zero_grad()
            scores = own(torch.from_numpy(X[batch.positions]))
            torch.nn.functional.cross_entropy(scores, torch.from_numpy(y[batch.positions])).backward()
            optimiser.step()
    theirs = np.concatenate([value.detach().numpy().ravel() for value in own.parameters()])
    np.testing.assert_allclose(trained.parameters, theirs, rtol=0, atol=1e-9)


def test_a_network_and_the_same_module_agree() -> None:
    X, y = rows()
    asked = job(max_epochs=3, hidden_layer_sizes=(16,))
    network = asked.plan.build()
    same = torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, N_CLASSES)
    ).double()
    with torch.no_grad():
        for part, value in zip(network.parts, same.parameters(), strict=True):
            value.copy_(torch.from_numpy(network.view(network.parameters, part).T))
    ours, theirs = alone(asked, X, y), alone(Job(TorchPlan(same, "logistic", "float64"), asked.settings, True), X, y)
    built = TorchPlan(same, "logistic", "float64").build()
    for part, other in zip(network.parts, built.parts, strict=True):
        np.testing.assert_allclose(
            network.view(ours.parameters, part).T, built.view(theirs.parameters, other), rtol=0, atol=1e-9
        )


def test_ranks_end_with_the_weights_of_one_process() -> None:
    X, y = rows()
    single = alone(torch_job(), X, y)
    several = together(torch_job(), X, y, 3)[2]
    np.testing.assert_allclose(several.parameters, single.parameters, rtol=0, atol=1e-9)


def test_layers_are_reported_from_the_last_to_the_first() -> None:
    model = torch_job().plan.build()
    X, y = rows()
    seen: list[int] = []
    model.compute_gradients(X[:24], y[:24], Pass(0, np.arange(24), 24), seen.append)
    assert seen == [2, 1, 0]
    model.compute_gradients(X[:0], y[:0], Pass(0, np.arange(0), 24), seen.append)
    assert seen == [2, 1, 0, 2, 1, 0]
    assert not model.gradients.any()


def test_estimators_clone_pickle_and_score() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)).astype(np.float32)
    labels = np.where(X[:, 0] > 0, "up", "down")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    before = [value.detach().clone() for value in net.parameters()]
    model = clone(DMLTorchClassifier(net, max_epochs=20, random_state=0, learning_rate=1e-2)).fit(X, labels)
    assert model.score(X, labels) > 0.95
    assert all(torch.equal(*pair) for pair in zip(before, net.parameters(), strict=True))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    values = (3 * X[:, 1] + 100).astype(np.float64)
    regressor = DMLTorchRegressor(torch.nn.Linear(6, 1), max_epochs=60, learning_rate=3e-2, random_state=0)
    assert regressor.fit(X, values).score(X, values) > 0.99


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"module must be a torch.nn.Module"):
        DMLTorchClassifier("net").fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="no parameters"):
        DMLTorchClassifier(torch.nn.ReLU()).fit(np.eye(4), [0, 1, 0, 1])
