"""Torch modules train through the same strategies, to the weights that torch itself finds."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.medium

from dmlgbm.neural.batches import BatchSource  # noqa: E402
from dmlgbm.neural.model import Pass  # noqa: E402
from dmlgbm.neural.settings import TrainingSettings  # noqa: E402
from dmlgbm.neural.shards import RowShard  # noqa: E402
from dmlgbm.neural.strategies import strategy_names  # noqa: E402
from dmlgbm.neural.torch_models.estimators import DMLTorchClassifier, DMLTorchRegressor  # noqa: E402
from dmlgbm.neural.torch_models.model import TorchBlueprint  # noqa: E402
from dmlgbm.neural.training import Job  # noqa: E402
from tests.neural.runs import (  # noqa: E402
    N_CLASSES,
    N_FEATURES,
    Sharding,
    agreeing,
    alone,
    job,
    rows,
    scattered,
    together,
)


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)
    ).double()


def torch_job(**changes: object) -> Job:
    settings = {"max_epochs": 3, "batch_size": 24, "learning_rate": 1e-2, "optimiser": "adam", **changes}
    return Job(TorchBlueprint(module(), "logistic", "float64"), TrainingSettings(**settings), True)


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
    network = asked.blueprint.build()
    same = torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, N_CLASSES)
    ).double()
    with torch.no_grad():
        for part, value in zip(network.parts, same.parameters(), strict=True):
            value.copy_(torch.from_numpy(network.view(network.parameters, part).T))
    ours, theirs = (
        alone(asked, X, y),
        alone(Job(TorchBlueprint(same, "logistic", "float64"), asked.settings, True), X, y),
    )
    built = TorchBlueprint(same, "logistic", "float64").build()
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
    model = torch_job().blueprint.build()
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


# What depends on rows beside each other, or on chance.


class Convolved(torch.nn.Module):
    """Dropout as a layer, of channels and as a function; both batch normalisations, one of them over positions."""

    def __init__(self, norm: type = torch.nn.BatchNorm1d) -> None:
        super().__init__()
        self.first = torch.nn.Conv1d(1, 3, 3)
        self.channels = torch.nn.Dropout1d(0.3)
        self.norms = torch.nn.ModuleList([norm(3), norm(8, momentum=None, affine=False)])
        self.second = torch.nn.Linear(3 * (N_FEATURES - 2), 8)
        self.last = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(8, N_CLASSES))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        hidden = self.norms[0](self.channels(self.first(X[:, None])))
        hidden = torch.nn.functional.dropout(self.second(torch.relu(hidden).flatten(1)), 0.2, self.training)
        return self.last(self.norms[1](hidden))


@pytest.mark.parametrize(
    ("norm", "share"),
    [
        (torch.nn.SyncBatchNorm, scattered),
        pytest.param(torch.nn.SyncBatchNorm, RowShard.of_all, marks=pytest.mark.slow),
        pytest.param(torch.nn.BatchNorm1d, scattered, marks=pytest.mark.slow),
        pytest.param(torch.nn.BatchNorm1d, RowShard.of_all, marks=pytest.mark.slow),
    ],
)
def test_dropout_and_batch_norm_are_those_of_one_process(norm: type, share: Sharding) -> None:
    X, y = rows()
    torch.manual_seed(0)
    settings = TrainingSettings(max_epochs=3, batch_size=7, learning_rate=1e-2, optimiser="adam")
    asked = Job(TorchBlueprint(Convolved(norm).double(), "logistic", "float64", 5), settings, True)
    single = alone(asked, X, y)
    for n_ranks in (2, 3):
        several = agreeing(together(asked, X, y, n_ranks, share))
        np.testing.assert_allclose(several.parameters, single.parameters, rtol=0, atol=1e-8)
        np.testing.assert_allclose(several.buffers, single.buffers, rtol=0, atol=1e-8)


def test_batch_norm_over_ranks_has_the_moments_of_torch() -> None:
    X, y = rows(96)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(N_FEATURES, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 4)).double()
    settings = TrainingSettings(max_epochs=1, batch_size=96, learning_rate=1e-2, optimiser="sgd")
    trained = agreeing(together(Job(TorchBlueprint(net, "logistic", "float64"), settings, True), X, y, 3))
    own = copy.deepcopy(net)
    torch.nn.functional.cross_entropy(own(torch.from_numpy(X)), torch.from_numpy(y)).backward()
    stepped = [(value - 1e-2 * value.grad).detach().numpy().ravel() for value in own.parameters()]
    np.testing.assert_allclose(trained.parameters, np.concatenate(stepped), rtol=0, atol=1e-12)
    moments = np.concatenate([own[1].running_mean.numpy(), own[1].running_var.numpy()])
    np.testing.assert_allclose(trained.buffers, moments, rtol=0, atol=1e-12)


def test_dropout_leaves_out_the_share_it_should() -> None:
    blueprint = TorchBlueprint(
        torch.nn.Sequential(torch.nn.Linear(50, 40), torch.nn.Dropout(0.25)).double(), "squared", "float64"
    )
    model = blueprint.build()
    masks = []
    for step in range(2):
        model.compute_gradients(np.ones((200, 50)), np.zeros((200, 40)), Pass(step, np.arange(200), 200))
        masks.append((model._outputs == 0).numpy())
    assert all(abs(mask.mean() - 0.25) < 0.02 for mask in masks)
    assert 0.3 < (masks[0] != masks[1]).mean() < 0.45  # 2 * 0.25 * 0.75


class Noisy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(N_FEATURES, N_CLASSES)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.inner(X + 0.1 * torch.randn_like(X))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Noisy(), "would differ with the number of ranks"),
        (
            torch.nn.Sequential(
                torch.nn.Unflatten(1, (3, 4)),
                torch.nn.InstanceNorm1d(3, track_running_stats=True),
                torch.nn.Flatten(),
                torch.nn.Linear(12, N_CLASSES),
            ),
            "track_running_stats=False",
        ),
    ],
)
def test_what_several_ranks_cannot_do_alike_is_refused(net: torch.nn.Module, message: str) -> None:
    X, y = rows()
    model = DMLTorchClassifier(net, max_epochs=1, random_state=0)
    model.fit(X, y)
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(n_ranks=2).fit(X, y)
    clone(model).set_params(n_ranks=2, strategy="local_sgd").fit(X, y)


class Pair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(N_FEATURES, N_CLASSES)

    def forward(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(X), X


def test_outputs_that_do_not_fit_are_named() -> None:
    X, y = rows()
    with pytest.raises(TypeError, match=r"must return one tensor .* got a tuple"):
        DMLTorchClassifier(Pair()).fit(X, y)
    with pytest.raises(ValueError, match="must have 4 outputs for this y, got 3"):
        DMLTorchClassifier(torch.nn.Linear(N_FEATURES, 3)).fit(X, y)
    with pytest.raises(ValueError, match="must have 1 or 2 outputs for this y, got 4"):
        DMLTorchClassifier(torch.nn.Linear(N_FEATURES, 4)).fit(X, y > 1)
    with pytest.raises(ValueError, match="must have 2 outputs for this y, got 1"):
        DMLTorchRegressor(torch.nn.Linear(N_FEATURES, 1)).fit(X, X[:, :2])
    with pytest.raises(ValueError, match="for each of 200 rows, got a tensor of shape"):
        DMLTorchClassifier(torch.nn.Sequential(torch.nn.Linear(N_FEATURES, 4), torch.nn.Flatten(0))).fit(X, y)


@pytest.mark.parametrize("strategy", strategy_names())
def test_every_strategy_takes_torch_modules_or_refuses_them_in_words(strategy: str) -> None:
    X, y = rows()
    model = DMLTorchClassifier(module(), max_epochs=2, n_ranks=2, strategy=strategy, random_state=0)
    if strategy in ("admm", "ensemble_distil", "pipeline", "tensor"):
        with pytest.raises(ValueError, match=f"strategy '{strategy}'"):
            model.fit(X, y)
    else:
        assert model.fit(X, y).n_iter_ == 2
