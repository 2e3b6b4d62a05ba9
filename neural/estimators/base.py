"""What the four estimators share: one way to train on rows anywhere, one way to predict, a state that can be saved.

An estimator describes a model (`_blueprint`), encodes targets, and stores what training returns. Nothing is stored
before training has succeeded.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dmlgbm.gbdt.system.cluster_types import is_dask_collection, is_spark_frame
from dmlgbm.neural.blueprints import ModelBlueprint
from dmlgbm.neural.estimators.categories import CategoryColumns
from dmlgbm.neural.estimators.parameters import (
    checked_choice,
    checked_integer,
    checked_mapping,
    checked_number,
    training_settings,
)
from dmlgbm.neural.estimators.snapshots import snapshot
from dmlgbm.neural.estimators.weights import WeightArray, checked_weights, mean_weight
from dmlgbm.neural.history import TrainingHistory
from dmlgbm.neural.model import FloatArray, Inputs, IntArray, Model
from dmlgbm.neural.running.generations import Survivor
from dmlgbm.neural.running.local import PLACES, LocalRows, train_here
from dmlgbm.neural.running.row_parts import held_out_rows
from dmlgbm.neural.targets import ClassTargets, Targets
from dmlgbm.neural.training import Job, Trained


@dataclass(frozen=True)
class InputTable:
    """What a model must know of its inputs."""

    n_columns: int
    dtype: str
    categories: CategoryColumns | None = None


class NeuralEstimator(BaseEstimator):
    """A model trained by gradient descent behind scikit-learn's interface."""

    _classifies: ClassVar[bool]

    random_state: Any
    early_stopping: bool
    validation_fraction: float
    categorical_columns: Any = None
    strategy: str
    strategy_options: Any
    n_ranks: int | None
    backend: str
    max_restarts: int
    rank_timeout: float
    dtype: str

    # What concrete estimators know.

    @abstractmethod
    def _blueprint(self, table: InputTable, targets: Targets, seed: int) -> ModelBlueprint:
        """The model for inputs like these and these targets."""

    @abstractmethod
    def _targets_of(self, y: Any, dtype: str, weights: WeightArray | None) -> tuple[Targets, FloatArray | IntArray]:
        """What there is to predict, and y in its numbers."""

    # Training.

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> Self:
        """Train on the rows of X and their targets y: arrays, data frames, sparse matrices or Dask collections.

        X may be a Spark DataFrame; y and `sample_weight` are then names of its columns.
        `sample_weight` says how much each row counts, all alike by default; rows of weight 0 are left out.
        `eval_set` are rows and targets to watch instead of a part of X: their score is recorded after every epoch.
        """
        fitted = snapshot(self)
        fitted._train(X, y, sample_weight, eval_set)
        # One assignment: other threads predict with all of the old model or all of the new one.
        self.__dict__ = fitted.__dict__
        return self

    def _train(self, X: Any, y: Any, sample_weight: Any, eval_set: tuple[Any, Any] | None) -> None:
        if is_dask_collection(X) or is_spark_frame(X):
            if eval_set is not None:
                raise ValueError("eval_set is for rows in this process: with collections use early_stopping=True")
            _fit_on_cluster(self, X, y, sample_weight)
            return
        inputs, y, table = self._checked_rows(X, y)
        weights = checked_weights(sample_weight, inputs.shape[0])
        if weights is not None:
            weights = weights / mean_weight(float(weights.sum()), int(np.count_nonzero(weights)))
        targets, values = self._targets_of(y, table.dtype, weights)
        seed = self._seed()
        rows = _counted(LocalRows(inputs, values, weights))
        if eval_set is not None:
            rows = replace(rows, validation=self._watched(*eval_set, table, targets))
        elif self.early_stopping:
            learnt, watched = self._split(rows.inputs.shape[0], seed)
            rows = replace(_taken(rows, learnt), validation=_taken(rows, watched))
        job = self._job(rows.inputs.shape[0], table, targets, seed)
        survivor = Survivor(job, checked_integer("max_restarts", self.max_restarts, 0))
        n_ranks = self._n_local_ranks(rows.inputs.shape[0])
        seconds = checked_number("rank_timeout", self.rank_timeout, above=0)
        trained = train_here(job, rows, n_ranks, self.backend, survivor, rank_timeout=seconds)
        self._store(job, trained, targets, table.categories, survivor.losses)

    def _job(self, n_rows: int, table: InputTable, targets: Targets, seed: int) -> Job:
        settings = training_settings(self, n_rows, seed)
        blueprint = self._blueprint(table, targets, seed)
        options = checked_mapping("strategy_options", self.strategy_options)
        return Job(blueprint, settings, self._classifies, self.strategy, options)

    def _store(
        self, job: Job, trained: Trained, targets: Targets, categories: CategoryColumns | None, losses: list[str]
    ) -> None:
        self.plan_ = job.blueprint
        self.parameters_ = np.array(trained.parameters)
        self.buffers_ = np.array(trained.buffers)
        self.history_ = TrainingHistory(trained.so_far.epochs, losses)
        self.n_iter_ = len(trained.so_far.epochs)
        self.loss_ = trained.so_far.epochs[-1]["loss"]
        self.loss_curve_ = self.history_["loss"]
        self._targets = targets
        self._categories = categories
        self._model = self._built()

    def _built(self) -> Model:
        model = self.plan_.build()
        model.parameters[...] = self.parameters_
        model.buffers[...] = self.buffers_
        return model

    def _seed(self) -> int:
        """The same for the same integer; a fresh one for None."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _watched(self, X: Any, y: Any, table: InputTable, targets: Targets) -> LocalRows:
        labels = np.asarray(y)
        if isinstance(targets, ClassTargets):
            unknown = np.setdiff1d(labels, targets.classes)
            if len(unknown):
                raise ValueError(f"y of eval_set has the label {unknown[0]!r}, which y does not have")
        return LocalRows(self._numbers(X, table.categories, table.dtype), targets.encoded(labels, table.dtype))

    def _split(self, n_rows: int, seed: int) -> tuple[IntArray, IntArray]:
        """Rows to learn from and rows to watch."""
        held_out = held_out_rows(np.arange(n_rows, dtype=np.int64), self._fraction(), seed)
        if not held_out.any() or held_out.all():
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves no rows to watch or to learn from of {n_rows}: "
                "change it, or set early_stopping=False"
            )
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def _fraction(self) -> float:
        return checked_number("validation_fraction", self.validation_fraction, above=0, below=1)

    def _n_local_ranks(self, n_rows: int) -> int:
        checked_choice("backend", self.backend, ("auto", *PLACES))
        n_ranks = 1 if self.n_ranks is None else checked_integer("n_ranks", self.n_ranks, 1)
        if n_ranks > n_rows:
            raise ValueError(f"n_ranks={n_ranks} ranks cannot share {n_rows} rows: use at most {n_rows} ranks")
        return n_ranks

    # Inputs.

    def _checked_rows(self, X: Any, y: Any) -> tuple[Inputs, Any, InputTable]:
        dtype = self._dtype_for(X)
        if self.categorical_columns is not None:
            X, y = validate_data(self, X, y, skip_check_array=True)
            categories = CategoryColumns.of(X, self.categorical_columns)
            return categories.encoded(X, dtype), y, InputTable(X.shape[1], dtype, categories)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=dtype, multi_output=True, order="C")
        return X, y, InputTable(X.shape[1], dtype)

    def _dtype_for(self, X: Any) -> str:
        """The floating type to compute with: "auto" is single precision for inputs in single precision alone."""
        chosen = checked_choice("dtype", self.dtype, ("auto", "float32", "float64"))
        if chosen != "auto":
            return chosen
        return "float32" if getattr(X, "dtype", None) == np.float32 else "float64"

    def _inputs(self, X: Any) -> Inputs:
        check_is_fitted(self)
        return self._numbers(X, self._categories, self.parameters_.dtype)

    def _numbers(self, X: Any, categories: CategoryColumns | None, dtype: npt.DTypeLike) -> Inputs:
        if categories is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            return categories.encoded(X, dtype)
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=dtype, order="C")

    def _outputs(self, X: Any) -> FloatArray:
        inputs = self._inputs(X)
        return self._model.outputs(inputs)

    # Saving, and what scikit-learn wants to know.

    def __sklearn_is_fitted__(self) -> bool:
        return "parameters_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_model", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "parameters_" in vars(self):
            self._model = self._built()


def _fit_on_cluster(estimator: NeuralEstimator, X: Any, y: Any, sample_weight: Any) -> None:
    # Loaded here, so that nobody else waits for Dask or Spark.
    if is_spark_frame(X):
        from dmlgbm.neural.estimators.frame_fitting import fit_frame

        fit_frame(estimator, X, y, sample_weight)
        return
    from dmlgbm.neural.estimators.collection_fitting import fit_collection

    fit_collection(estimator, X, y, sample_weight)


def _counted(rows: LocalRows) -> LocalRows:
    """The rows that have weight."""
    if rows.weights is None or rows.weights.all():
        return rows
    return _taken(rows, np.flatnonzero(rows.weights))


def _taken(rows: LocalRows, positions: IntArray) -> LocalRows:
    weights = None if rows.weights is None else rows.weights[positions]
    return LocalRows(rows.inputs[positions], rows.targets[positions], weights)
