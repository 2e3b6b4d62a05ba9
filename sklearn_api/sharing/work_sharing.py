"""Hooks through which fits share work: rows prepared once, runs taken further instead of started again.

A search calls them by name and knows no estimator of ours: any estimator with these methods takes part.

* `preparation_key(**fit_params)`: fits with equal keys, rows and fit parameters may share one preparation; None if this
  fit must be made by `fit`.
* `prepare(X, y, **fit_params)`: what `fit_prepared` needs of the rows. Any number of fits may use it at once. If the
  result has a method `expect(X, tested)`, it is told which objects all fits will be scored on: nobody changes these.
* `fit_prepared(prepared)`: what `fit` would do, to the same model.
* `stage_parameter(**fit_params)`: the parameter in which a run can be taken further, None if it cannot.
* `advance(prepared, n, since=fitted)`: the result of a fit with n stages, from an estimator that has fewer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.boosting.staged_training import StagedTraining
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.system.cluster_types import is_dask_collection
from dmlgbm.sklearn_api.booster import Booster as FittedBooster
from dmlgbm.sklearn_api.dispatch import warn_of_cluster_parameters
from dmlgbm.sklearn_api.fit_warnings import warn_of_constant_model, warn_of_unused_metric
from dmlgbm.sklearn_api.fitting import CheckedFit
from dmlgbm.sklearn_api.parameters.fit_settings import fit_settings
from dmlgbm.sklearn_api.parameters.names import stored_parameters
from dmlgbm.sklearn_api.parameters.values import (
    EngineParameters,
    Stretch,
    engine_parameters,
    is_whole_number,
    n_threads_of,
)
from dmlgbm.sklearn_api.rows.row_errors import naming_rows
from dmlgbm.sklearn_api.sharing.prepared_rows import (
    CheckedRows,
    PreparedRows,
    RowsToSplit,
    StagedScores,
    preparation_setting,
    prepared_rows,
)
from dmlgbm.sklearn_api.watching.stopping import stopping_rounds

if TYPE_CHECKING:
    from dmlgbm.gbdt.data.table import Table
    from dmlgbm.sklearn_api.continuation import Start
    from dmlgbm.sklearn_api.rows.labels import Labels
    from dmlgbm.sklearn_api.rows.targets import FloatArray

# The arguments of `fit` that belong to the rows; with any other, a fit is not shared.
_ROW_ARGUMENTS = ("sample_weight", "init_score", "group", "qid")
# The package whose own `fit` does what the hooks do.
_ESTIMATORS = "dmlgbm.sklearn_api."


class ContinuedRun:
    """What a fitted estimator keeps so that it can be taken further: dropped with the estimator, and by pickling."""

    def __init__(
        self,
        prepared: PreparedRows,
        parameters: TrainParameters,
        rows: Rows,
        objective: ObjectiveSettings,
        so_far: Booster | None,
    ) -> None:
        self.prepared = prepared
        # A function may give other first scores the next time, and weights of its own make others too.
        is_known = rows.weight is prepared.rows.weight and not callable(objective.name_or_callable)
        starts = prepared.starts if is_known else {}
        key = objective, parameters.averages
        start = so_far or starts.get(key)
        self.training = StagedTraining(prepared.dataset, prepared.columns, rows, objective, parameters, so_far=start)
        if start is None:
            starts[key] = self.training.booster
        self.scores = StagedScores()
        self._parameters = _without_length(parameters)
        self._rows = rows
        self._objective = objective

    @property
    def n_bytes(self) -> int:
        return self.training.n_bytes + self.scores.n_bytes

    def require_same(self, parameters: TrainParameters, rows: Rows, objective: ObjectiveSettings) -> None:
        """Trees grown by other rules are not those that a fit from the start would have."""
        same_weight = np.array_equal(rows.weight, self._rows.weight)  # type: ignore[arg-type]
        if (_without_length(parameters), objective) != (self._parameters, self._objective) or not same_weight:
            raise ValueError("advance needs the parameters of the run it takes further: only n_estimators may differ.")


class WorkSharing(BaseEstimator):
    """The hooks of DMLGBM's estimators."""

    objective: Any
    boosting_type: Any
    eval_metric: Any
    n_estimators: int
    random_state: Any
    handle_unknown: Any
    n_jobs: int | None
    warm_start: bool
    verbose: int
    booster_: Booster

    _run: ContinuedRun | None = None

    @abstractmethod
    def _engine_parameters(self, *, has_sets: bool = False) -> EngineParameters:
        """The parameters, checked, with the warnings of `fit`."""

    @abstractmethod
    def _store(self, result: TrainingResult, classes: Labels | None = None, **more: Any) -> None:
        """Become a fitted estimator."""

    @abstractmethod
    def _starting_point(self, init_model: Any) -> Start:
        """What a fit goes on from."""

    @abstractmethod
    def _fit_rows(self, fit: CheckedFit) -> Self:
        """Train on rows that have been checked, and store the result."""

    @abstractmethod
    def _table_to_predict(self, X: Any) -> Table:
        """The rows with the columns of the model."""

    @property
    def run_bytes(self) -> int | None:
        """Memory that this estimator holds so that it can be taken further without work; None if it holds none."""
        return None if self._run is None else self._run.n_bytes

    def preparation_key(self, **fit_params: Any) -> Any:
        """The parameters that matter to `prepare`; None where rows cannot be prepared for several fits."""
        if not self._is_shareable(fit_params):
            return None
        return preparation_setting(self, engine_parameters(stored_parameters(self)))

    def stage_parameter(self, **fit_params: Any) -> str | None:
        """ "n_estimators" if the first k iterations of this fit are the fit with `n_estimators=k`.

        They are not where early stopping, an evaluation set or a callback decides about the length, or later iterations
        change earlier ones (boosting_type 'dart'), and nobody knows for an objective that is a function.
        """
        is_prefix = not callable(self.objective) and not self._stops_early() and not self._drops_trees()
        return "n_estimators" if self._is_shareable(fit_params) and is_prefix else None

    def why_not_shared(self, **fit_params: Any) -> str | None:
        """What keeps fits from sharing all that they could, for people; None if nothing does."""
        alone = self._why_alone(fit_params)
        if alone is not None:
            return f"every fit bins its rows and grows all its trees itself: {alone}"
        if self._stops_early():
            return "values of n_estimators are trained one by one: early stopping decides about the length of a run"
        if callable(self.objective):
            return "values of n_estimators are trained one by one: the objective is a function"
        if self._drops_trees():
            return "values of n_estimators are trained one by one: with boosting_type='dart' later trees change others"
        return None

    def prepare(self, X: Any, y: Any, **fit_params: Any) -> PreparedRows | RowsToSplit:
        """Check the rows and bin them, for any number of fits with the same `preparation_key`."""
        if is_dask_collection(X) or not self._is_shareable(fit_params):
            raise ValueError(
                f"{type(self).__name__}.prepare cannot serve this fit: preparation_key says None, or X is a Dask "
                "collection. Call fit."
            )
        given = {name: value for name, value in fit_params.items() if value is not None}
        return prepared_rows(self, engine_parameters(stored_parameters(self)), X, y, **given)

    def fit_prepared(self, prepared: PreparedRows | RowsToSplit) -> Self:
        """What `fit` on the prepared rows does, without checking and binning them again."""
        parameters = self._engine_parameters()
        if isinstance(prepared, RowsToSplit):
            return self._train_and_watch(prepared, parameters)
        return self._train_on(prepared, parameters, so_far=None)

    def advance(self, prepared: PreparedRows | RowsToSplit, n_estimators: int, since: Any = None) -> Self:
        """Set `n_estimators` and become what `fit` would make of it, going on from `since` (or from this estimator).

        `since` was fitted on the same prepared rows with the same parameters and not more iterations. It can still
        predict afterwards; taking it further again is possible, but starts by adding up the scores of its trees.
        """
        if isinstance(prepared, RowsToSplit):
            raise ValueError("advance cannot go on where early stopping decides about the length: call fit_prepared.")
        before = self if since is None else since
        check_is_fitted(before)
        if not is_whole_number(n_estimators) or n_estimators < before.n_iter_:
            raise ValueError(f"n_estimators={n_estimators!r} must be a whole number, {before.n_iter_} or more.")
        self.n_estimators = n_estimators
        parameters = self._engine_parameters()
        run = vars(before).get("_run")
        if run is None or run.prepared is not prepared or run.training.booster is not before.booster_:
            return self._train_on(prepared, parameters, so_far=before.booster_)
        parameters = parameters.for_table(prepared.dataset.n_rows, prepared.columns)
        run.require_same(parameters.train, *prepared.training_rows(self))
        warn_of_cluster_parameters(self)
        with naming_rows(prepared.rows):
            booster = run.training.advance(parameters.train)
        before.__dict__.pop("_run", None)
        return self._keep_run(run, booster)

    def _train_and_watch(self, prepared: RowsToSplit, parameters: EngineParameters) -> Self:
        self._require_setting(prepared, parameters)
        training, objective = prepared.training_rows(self)
        start, settings = self._starting_point(None), fit_settings(self, None, has_sets=False)
        return self._fit_rows(
            CheckedFit(parameters, objective, training, (), start, settings, prepared.classes, prepared.binner)
        )

    def _require_setting(self, prepared: CheckedRows, parameters: EngineParameters) -> None:
        prepared_as = preparation_setting(self, parameters)
        if prepared_as != prepared.setting:
            raise ValueError(
                f"The rows were prepared for {prepared.setting}, but this fit needs {prepared_as}: call prepare again."
            )

    def _train_on(self, prepared: PreparedRows, parameters: EngineParameters, so_far: Booster | None) -> Self:
        self._require_setting(prepared, parameters)
        rows, objective = prepared.training_rows(self)
        warn_of_cluster_parameters(self)
        parameters.train.require_classes_to_draw(objective.n_classes)
        parameters = parameters.for_table(prepared.dataset.n_rows, prepared.columns)
        warn_of_unused_metric(self.eval_metric, ())
        with naming_rows(rows):
            run = ContinuedRun(prepared, parameters.train, rows, objective, so_far)
            booster = run.training.advance(parameters.train)
        warn_of_constant_model(booster, prepared.dataset.n_rows, parameters.train)
        return self._keep_run(run, booster)

    def _keep_run(self, run: ContinuedRun, booster: Booster) -> Self:
        # What predictions compare with what the run has reached is the very object that users see.
        fitted = FittedBooster.of(booster)
        run.training.reached = run.training.reached._replace(booster=fitted)
        self._store(TrainingResult(fitted, {}, None, None, None), run.prepared.classes, _run=run)
        return self

    def _known_scores(self, X: Any, stretch: Stretch) -> FloatArray | None:
        """The scores of all iterations by way of those that are known; None if this estimator remembers none."""
        run = self._run
        if run is None or stretch.n_iterations != self.booster_.n_iterations:
            return None
        reached = run.training.reached
        if reached.booster is not self.booster_:
            return None
        predicted = run.prepared.predicted
        if predicted.are_training_rows(X) and run.prepared.init_score is None and run.prepared.rows.row_numbers is None:
            scores = run.training.predicted(reached)
            if scores is not None:
                return scores
        table = predicted.table_of(X, self.handle_unknown, self._table_to_predict)
        return run.scores.raw_scores(self.booster_, table, n_threads_of(self.n_jobs))

    def _is_shareable(self, fit_params: dict[str, Any]) -> bool:
        return self._why_alone(fit_params) is None

    def _why_alone(self, fit_params: dict[str, Any]) -> str | None:
        """What keeps this fit from sharing anything, for people."""
        others = [name for name, value in fit_params.items() if name not in _ROW_ARGUMENTS and value is not None]
        reasons = {
            f"{type(self).__name__} has a fit of its own": not type(self).fit.__module__.startswith(_ESTIMATORS),
            f"fit is given {', '.join(others)}": bool(others),
            "warm_start is set": self.warm_start,
            "verbose is set": self.verbose > 0 if is_whole_number(self.verbose) else self.verbose,
            "random_state is a generator, not a number": _draws_seeds(self.random_state),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _stops_early(self) -> bool:
        return stopping_rounds(vars(self), has_sets=False) is not None

    def _drops_trees(self) -> bool:
        return isinstance(self.boosting_type, str) and self.boosting_type == "dart"


def _draws_seeds(random_state: Any) -> bool:
    return hasattr(random_state, "randint") or hasattr(random_state, "integers")


def _without_length(parameters: TrainParameters) -> TrainParameters:
    return replace(parameters, n_estimators=1, n_threads=1)
