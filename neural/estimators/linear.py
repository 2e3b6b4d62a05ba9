"""Linear models: logistic regression, support vector machines and least squares by mini-batches, dense or sparse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dmlgbm.neural.blueprints import NetworkBlueprint
from dmlgbm.neural.estimators.base import InputTable
from dmlgbm.neural.estimators.lazy_predictions import lazy_on_collections
from dmlgbm.neural.estimators.multilayer import Backend, loss_of
from dmlgbm.neural.estimators.parameters import stores_parameters
from dmlgbm.neural.estimators.tasks import NeuralClassifier, NeuralRegressor
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.schedules import ScheduleName
from dmlgbm.neural.targets import Targets, ValueTargets


class _Linear:
    """How both linear models describe their network, and what its parameters are called."""

    _classifies: bool
    _targets: Any
    loss: str
    fit_intercept: bool
    plan_: Any
    parameters_: FloatArray

    def _blueprint(self, table: InputTable, targets: Targets, seed: int) -> NetworkBlueprint:
        return NetworkBlueprint(
            n_inputs=table.n_columns,
            n_outputs=targets.n_outputs,
            loss=loss_of(self.loss, self._classifies),
            bias=bool(self.fit_intercept),
            dtype=table.dtype,
            seed=seed,
        )

    def _weights_and_biases(self) -> tuple[FloatArray, FloatArray]:
        """Weights [output, feature] and biases [output], in the units of y."""
        check_is_fitted(self)
        n_weights = self.plan_.n_inputs * self.plan_.n_outputs
        weights = self.parameters_[:n_weights].reshape(self.plan_.n_inputs, -1).T.astype(np.float64)
        biases = self.parameters_[n_weights:].astype(np.float64)
        if not self.fit_intercept:
            biases = np.zeros(self.plan_.n_outputs)
        if isinstance(self._targets, ValueTargets):
            deviation = self._targets.deviation
            return weights * deviation[:, None], biases * deviation + self._targets.mean
        return weights, biases

    @property
    def coef_(self) -> FloatArray:
        """Weights: [output, feature], or [feature] for a regressor of one value."""
        weights, _ = self._weights_and_biases()
        return weights[0] if getattr(self._targets, "one_dimensional", False) else weights

    @property
    def intercept_(self) -> FloatArray:
        """What is added, one for each output."""
        return self._weights_and_biases()[1]


def _has_probabilities(estimator: Any) -> bool:
    if estimator.loss != "logistic":
        raise AttributeError(f"predict_proba needs loss='logistic'; this model has loss={estimator.loss!r}")
    return True


class DMLLinearClassifier(_Linear, NeuralClassifier):
    """Logistic regression (`loss="logistic"`) or a linear support vector machine (`loss="hinge"`)."""

    @stores_parameters
    def __init__(
        self,
        *,
        loss: Literal["logistic", "hinge"] = "logistic",
        fit_intercept: bool = True,
        optimiser: Literal["sgd", "adam", "adamw", "lamb"] = "adam",
        optimiser_options: Mapping[str, Any] | None = None,
        learning_rate: float = 1e-2,
        schedule: ScheduleName = "constant",
        warmup_steps: int = 0,
        l2: float = 1e-4,
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

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    @lazy_on_collections
    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class, [row, class]; for loss="logistic"."""
        return self._probabilities(X)


class DMLLinearRegressor(_Linear, NeuralRegressor):
    """Linear regression with squared, absolute or Huber loss."""

    @stores_parameters
    def __init__(
        self,
        *,
        loss: Literal["squared", "absolute", "huber"] = "squared",
        fit_intercept: bool = True,
        optimiser: Literal["sgd", "adam", "adamw", "lamb"] = "adam",
        optimiser_options: Mapping[str, Any] | None = None,
        learning_rate: float = 1e-2,
        schedule: ScheduleName = "constant",
        warmup_steps: int = 0,
        l2: float = 1e-4,
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
