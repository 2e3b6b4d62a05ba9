"""The estimators are scikit-learn citizens, learn what they should, and can be saved."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits, make_regression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmlgbm.neural import DMLLinearClassifier, DMLLinearRegressor, DMLMLPClassifier, DMLMLPRegressor

# The same code answers most checks of all four: the cheaper two run always, the others with the slow tests.
QUICK = [DMLLinearClassifier(max_epochs=100), DMLLinearRegressor(max_epochs=100)]
SLOW = [DMLMLPClassifier(), DMLMLPRegressor(), DMLLinearClassifier(), DMLLinearRegressor()]


@pytest.mark.medium
@parametrize_with_checks(QUICK)
def test_scikit_learn_finds_nothing_to_object_to(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(SLOW)
def test_scikit_learn_finds_nothing_to_object_to_in_any(estimator: Any, check: Any) -> None:
    check(estimator)


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_norm": True, "dropout": 0.1},
        {"residual": True, "activation": "elu", "optimiser": "adamw", "schedule": "cosine"},
        {"optimiser": "lamb", "learning_rate": 0.02, "clip_norm": 1.0},
        {"optimiser": "sgd", "learning_rate": 0.1, "optimiser_options": {"momentum": 0.9, "nesterov": True}},
        {"sampling": "replacement", "loss": "hinge"},
    ],
    ids=str,
)
def test_perceptrons_learn_digits(changes: dict[str, Any]) -> None:
    X, y = digits()
    model = DMLMLPClassifier((64,), max_epochs=20, batch_size=50, random_state=0, **changes).fit(X[:1300], y[:1300])
    assert model.score(X[1300:], y[1300:]) > 0.85
    assert model.history_["loss"][-1] < model.history_["loss"][0]


def test_a_linear_model_finds_the_coefficients() -> None:
    X, y, truth = make_regression(600, 5, n_informative=5, coef=True, noise=0.1, random_state=0)
    for table in (X, csr_matrix(X)):
        model = DMLLinearRegressor(max_epochs=300, schedule="cosine", learning_rate=0.05, l2=0, patience=None).fit(
            table, y
        )
        np.testing.assert_allclose(model.coef_, truth, rtol=1e-2, atol=0.2)
        np.testing.assert_allclose(model.predict(table), X @ model.coef_ + model.intercept_, rtol=1e-6, atol=1e-6)


def test_logistic_regression_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    y = (X @ [2.0, -1.0, 0.5, 0.0] + rng.logistic(size=800) > 0).astype(int)
    theirs = LogisticRegression(C=1e6).fit(X, y)
    ours = DMLLinearClassifier(l2=0, max_epochs=300, schedule="cosine", learning_rate=0.05, patience=None).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.02)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=0.01)


def test_hinge_has_no_probabilities() -> None:
    model = DMLLinearClassifier(loss="hinge").fit(*digits())
    assert not hasattr(model, "predict_proba")
    assert model.decision_function(digits()[0]).shape == (1797, 10)
    assert model.score(*digits()) > 0.9


def test_sparse_rows_train_to_the_weights_of_dense_ones() -> None:
    X, y = digits()
    X = X.astype(np.float64)
    dense, sparse = (
        DMLMLPClassifier((16,), max_epochs=3, random_state=0).fit(table, y) for table in (X, csr_matrix(X))
    )
    np.testing.assert_allclose(sparse.parameters_, dense.parameters_, atol=1e-9)


def test_categories_become_vectors_and_unknown_ones_have_their_own() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=600), "kind": rng.choice(["a", "b", "c", None], 600)})
    target = frame["kind"].map({"a": 3.0, "b": -3.0, "c": 0.0}).fillna(1.0) + frame["size"]
    model = DMLMLPRegressor((16,), categorical_columns=["kind"], max_epochs=100, learning_rate=1e-2, random_state=0)
    model.fit(frame, target)
    assert model.score(frame, target) > 0.98
    unknown = pd.DataFrame({"size": [0.0, 0.0], "kind": ["never seen", None]})
    first, second = model.predict(unknown)
    assert first == second


def test_early_stopping_returns_the_best_epoch() -> None:
    X, y = digits()
    model = DMLMLPClassifier((32,), max_epochs=400, early_stopping=True, patience=5, learning_rate=0.02, random_state=0)
    model.fit(X, y)
    scores = model.history_["score"]
    assert len(scores) < 400
    assert len(scores) - 1 - int(np.argmax(scores)) <= 5 + 5  # rises below the tolerance do not count
    assert len(model.history_["loss"]) == model.n_iter_


@pytest.mark.parametrize("backend", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_ranks_of_this_machine_end_with_the_weights_of_one(backend: str) -> None:
    X, y = digits()
    settings: dict[str, Any] = {"max_epochs": 2, "random_state": 0, "dtype": "float64", "early_stopping": True}
    alone = DMLMLPClassifier((16,), **settings).fit(X, y)
    several = DMLMLPClassifier((16,), n_ranks=2, backend=backend, **settings).fit(X, y)
    np.testing.assert_allclose(several.parameters_, alone.parameters_, rtol=0, atol=1e-9)
    assert several.history_.n_ranks == 2
    assert several.history_.of_rank(1)["bytes_sent"][0] > 0


def test_fitted_models_are_saved_whole() -> None:
    X, y = digits()
    model = DMLMLPClassifier((16,), batch_norm=True, max_epochs=2, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.history_["loss"] == model.history_["loss"]


@pytest.mark.processes
def test_a_fit_in_one_process_loads_no_compiler() -> None:
    program = (
        "import sys, numpy; from dmlgbm.neural import DMLMLPClassifier; "
        "DMLMLPClassifier((4,), max_epochs=1).fit(numpy.eye(8), [0, 1] * 4); "
        "sys.exit('numba' in sys.modules or 'distributed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=100, check=False).returncode == 0
