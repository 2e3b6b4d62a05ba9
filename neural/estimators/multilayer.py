"""Multi-layer perceptrons for classes and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.estimators.base import InputTable
from dmlgbm.neural.estimators.lazy_predictions import lazy_on_collections
from dmlgbm.neural.estimators.parameters import checked_choice, checked_integer, checked_number, stores_parameters
from dmlgbm.neural.estimators.tasks import NeuralClassifier, NeuralRegressor
from dmlgbm.neural.layers import ACTIVATIONS
from dmlgbm.neural.losses import LOSSES
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.schedules import ScheduleName
from dmlgbm.neural.targets import Targets

Backend = Literal["auto", "threads", "processes", "dask", "spark"]


class _MultiLayer:
    """How both perceptrons describe their network."""

    _classifies: bool
    hidden_layer_sizes: Any
    activation: str
    dropout: float
    batch_norm: bool
    residual: bool
    embedding_width: int | None
    loss: str

    def _blueprint(self, table: InputTable, targets: Targets, seed: int) -> NetworkBlueprint:
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object)).tolist()
        width = self.embedding_width
        return NetworkBlueprint(
            n_inputs=table.n_columns,
            n_outputs=targets.n_outputs,
            loss=loss_of(self.loss, self._classifies),
            hidden_layer_sizes=tuple(checked_integer("hidden_layer_sizes", size, 1) for size in sizes),
            activation=checked_choice("activation", self.activation, ACTIVATIONS),
            dropout=checked_number("dropout", self.dropout, at_least=0, below=1),
            batch_norm=bool(self.batch_norm),
            residual=bool(self.residual),
            embedding=None
            if table.categories is None
            else table.categories.embedding(None if width is None else checked_integer("embedding_width", width, 1)),
            dtype=table.dtype,
            seed=seed,
        )


def loss_of(name: str, classifies: bool) -> str:
    """A loss by name, if it is one for this kind of target."""
    return checked_choice("loss", name, tuple(each for each, kind in LOSSES.items() if kind.classifies == classifies))


class DMLMLPClassifier(_MultiLayer, NeuralClassifier):
    """A multi-layer perceptron for two or more classes; docs/neural.md explains every parameter."""

    @stores_parameters
    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        residual: bool = False,
        categorical_columns: Sequence[int | str] | None = None,
        embedding_width: int | None = None,
        loss: Literal["logistic", "hinge"] = "logistic",
        optimiser: Literal["sgd", "adam", "adamw", "lamb"] = "adam",
        optimiser_options: Mapping[str, Any] | None = None,
        learning_rate: float = 1e-3,
        schedule: ScheduleName = "constant",
        warmup_steps: int = 0,
        l2: float = 0.0,
        clip_norm: float | None = None,
        batch_size: int | Literal["auto"] = "auto",
        sampling: Literal["reshuffle", "replacement"] = "reshuffle",
        max_epochs: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int | None = 10,
        tolerance: float = 1e-4,
        target_score: float | None = None,
        strategy: str = "allreduce",
        strategy_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        compression_options: Mapping[str, Any] | None = None,
        n_ranks: int | None = None,
        backend: Backend = "auto",
        max_restarts: int = 3,
        rank_timeout: float = 60.0,
        dtype: Literal["auto", "float32", "float64"] = "auto",
        random_state: Any = None,
    ) -> None: ...

    @lazy_on_collections
    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class, [row, class]; for models trained with loss="logistic"."""
        return self._probabilities(X)


class DMLMLPRegressor(_MultiLayer, NeuralRegressor):
    """A multi-layer perceptron for one or more values; docs/neural.md explains every parameter."""

    @stores_parameters
    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        residual: bool = False,
        categorical_columns: Sequence[int | str] | None = None,
        embedding_width: int | None = None,
        loss: Literal["squared", "absolute", "huber"] = "squared",
        optimiser: Literal["sgd", "adam", "adamw", "lamb"] = "adam",
        optimiser_options: Mapping[str, Any] | None = None,
        learning_rate: float = 1e-3,
        schedule: ScheduleName = "constant",
        warmup_steps: int = 0,
        l2: float = 0.0,
        clip_norm: float | None = None,
        batch_size: int | Literal["auto"] = "auto",
        sampling: Literal["reshuffle", "replacement"] = "reshuffle",
        max_epochs: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int | None = 10,
        tolerance: float = 1e-4,
        target_score: float | None = None,
        strategy: str = "allreduce",
        strategy_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        compression_options: Mapping[str, Any] | None = None,
        n_ranks: int | None = None,
        backend: Backend = "auto",
        max_restarts: int = 3,
        rank_timeout: float = 60.0,
        dtype: Literal["auto", "float32", "float64"] = "auto",
        random_state: Any = None,
    ) -> None: ...
