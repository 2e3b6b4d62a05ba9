"""Estimators around a torch module of the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from dmlgbm.neural.estimators.base import InputTable
from dmlgbm.neural.estimators.lazy_predictions import lazy_on_collections
from dmlgbm.neural.estimators.multilayer import Backend, loss_of
from dmlgbm.neural.estimators.parameters import stores_parameters
from dmlgbm.neural.estimators.tasks import NeuralClassifier, NeuralRegressor
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.schedules import ScheduleName
from dmlgbm.neural.targets import ClassTargets, Targets

if TYPE_CHECKING:
    from dmlgbm.neural.torch_models.model import TorchBlueprint


class _Module:
    """How both estimators describe their model."""

    _classifies: bool
    module: Any
    loss: str

    def _blueprint(self, table: InputTable, targets: Targets, seed: int) -> TorchBlueprint:
        # Loaded here, so that the names of this file exist where torch does not.
        import torch

        from dmlgbm.neural.torch_models.model import TorchBlueprint

        if not isinstance(self.module, torch.nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, got {self.module!r}")
        n_outputs = {targets.n_outputs} | ({len(targets.classes)} if isinstance(targets, ClassTargets) else set())
        loss = loss_of(self.loss, self._classifies)
        return TorchBlueprint(self.module, loss, table.dtype, seed, tuple(sorted(n_outputs)))


class DMLTorchClassifier(_Module, NeuralClassifier):
    """A module whose outputs are raw scores: one for each class, or a single one for two classes."""

    @stores_parameters
    def __init__(
        self,
        module: Any,
        *,
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
        max_epochs: int = 20,
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


class DMLTorchRegressor(_Module, NeuralRegressor):
    """A module with one output for each value to predict."""

    @stores_parameters
    def __init__(
        self,
        module: Any,
        *,
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
        max_epochs: int = 20,
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
