"""Bad input ends with an error that says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgbm.neural import DMLLinearClassifier, DMLLinearRegressor, DMLMLPClassifier, DMLMLPRegressor
from dmlgbm.neural.errors import NonFiniteLossError
from dmlgbm.neural.strategies import make_strategy, strategy_names
from tests.neural.runs import job, rows, together

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 3


def test_a_loss_that_is_not_finite_names_the_step_and_the_layer() -> None:
    model = DMLMLPRegressor((8,), optimiser="sgd", learning_rate=1e12, batch_size=20, random_state=0)
    with pytest.raises(
        NonFiniteLossError, match=r"at step \d+ \(epoch \d+\).*layer \d \(Dense\).*learning_rate"
    ) as caught:
        model.fit(1e3 * X, X[:, 0])
    assert caught.value.step > 0
    assert not hasattr(model, "parameters_")


def test_a_loss_that_is_not_finite_ends_every_rank() -> None:
    rows_, labels = rows()
    with pytest.raises(NonFiniteLossError, match="rank"):
        together(job(optimiser="sgd", learning_rate=1e200), rows_, labels, 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch_size": 61}, "batch_size=61 is larger than the 60 rows"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"strategy": "allreduse"}, "strategy must be one of allreduce.*got 'allreduse'"),
        (
            {"strategy_options": {"bucket": 1}},
            "strategy 'allreduce' has no option 'bucket'; its options are: bucket_bytes",
        ),
        ({"strategy_options": {"accumulate": 0}}, "accumulate must be at least 1, got 0"),
        ({"n_ranks": 61}, "n_ranks=61 ranks cannot share 60 rows"),
        ({"n_ranks": 0}, "n_ranks must be at least 1"),
        ({"backend": "mpi"}, "backend must be one of"),
        ({"backend": "dask"}, "backend must be one of auto, threads, processes"),
        ({"optimiser": "adma"}, "optimiser must be one of sgd, adam, adamw, lamb"),
        ({"optimiser_options": {"beta": 1}}, "optimiser_options do not fit optimiser='adam'"),
        ({"activation": "rleu"}, "activation must be one of"),
        ({"loss": "squared"}, "loss must be one of logistic, hinge"),
        ({"schedule": "cos"}, "schedule must be one of"),
        ({"hidden_layer_sizes": (8, 0)}, "hidden_layer_sizes must be at least 1"),
        ({"dropout": 1.0}, "dropout must be below 1"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be"),
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"compression": "zip"}, "compression must be one of"),
        ({"compression_options": {"fraction": 0.1}}, "no meaning without compression"),
        ({"compression": "top_k", "compression_options": {"share": 0.1}}, "compression_options do not fit"),
        ({"early_stopping": True, "validation_fraction": 0.0}, "validation_fraction must be above 0"),
        ({"early_stopping": True, "validation_fraction": 1e-9}, "leaves no rows to watch"),
        ({"categorical_columns": [4]}, "categorical_columns has 4, but X has 4 columns"),
        ({"categorical_columns": ["a"]}, "categorical_columns names 'a'"),
        ({"dtype": "float16"}, "dtype must be one of"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_parameters_that_make_no_sense_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DMLMLPClassifier(**{"hidden_layer_sizes": (4,), "max_epochs": 1, **parameters}).fit(X, Y)


@pytest.mark.parametrize("name", ["max_epochs", "batch_size", "n_ranks", "learning_rate"])
def test_parameters_of_the_wrong_type_are_named(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        DMLMLPClassifier(**{name: "many"}).fit(X, Y)


def test_columns_must_be_those_of_training() -> None:
    model = DMLLinearClassifier(max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features, but DMLLinearClassifier is expecting 4"):
        model.predict(X[:, :3])


def test_missing_values_are_refused() -> None:
    broken = X.copy()
    broken[5, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        DMLLinearRegressor().fit(broken, X[:, 0])
    with pytest.raises(ValueError, match="column 2, row 5"):
        DMLMLPRegressor(categorical_columns=[0]).fit(broken, X[:, 0])


def test_every_strategy_can_be_made_without_options() -> None:
    for name in strategy_names():
        assert make_strategy(name).name == name
