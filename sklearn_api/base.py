"""What the three estimators share: parameters, one way to train, one way to predict, saving.

An estimator turns what the user passes into the engine's own types (`Rows`), trains, and stores the result. Nothing
is stored before training has succeeded, so a failed `fit` leaves a fitted estimator as it was. Then all of it is stored
by one assignment, and a prediction reads it once: another thread may predict while this one fits.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.refitting import require_refittable
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.model.one_row import OneRow
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.system.atomic_file import write_atomically
from dmlgbm.gbdt.training import TrainingResult
from dmlgbm.sklearn_api.booster import Booster as FittedBooster
from dmlgbm.sklearn_api.continuation import Start, starting_point
from dmlgbm.sklearn_api.dispatch import snapshot, warn_of_cluster_parameters
from dmlgbm.sklearn_api.fit_warnings import warn_of_constant_model, warn_of_other_modes, warn_of_unused_metric
from dmlgbm.sklearn_api.fitting import CheckedFit, NamedRows, train_booster
from dmlgbm.sklearn_api.parameters.fit_settings import FitSettings
from dmlgbm.sklearn_api.parameters.names import canonical_parameters, parameter_names, stored_parameters
from dmlgbm.sklearn_api.parameters.values import EngineParameters, Stretch, engine_parameters
from dmlgbm.sklearn_api.predicting import TreePredictions
from dmlgbm.sklearn_api.refitting import refitted_estimator, refitted_on_all
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.holdout import Split
from dmlgbm.sklearn_api.rows.labels import Labels, numbers_of_known_labels
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray, group_boundaries, numeric_target, survival_times
from dmlgbm.sklearn_api.rows.weightless_rows import weighing_rows
from dmlgbm.sklearn_api.saved_state import saved_state
from dmlgbm.sklearn_api.sharing.work_sharing import WorkSharing
from dmlgbm.sklearn_api.tables import listed_categories
from dmlgbm.sklearn_api.watching.evaluation_sets import GivenSet
from dmlgbm.sklearn_api.watching.scoring import WatchedModel
from dmlgbm.sklearn_api.watching.stopping import TRAINING, require_rows_set_aside, warn_of_rounds_without_sets

if TYPE_CHECKING:
    from dmlgbm.sklearn_api.clusters.partitions import Target

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_PLAIN = frozenset((type(None), bool, int, float, str))


class BoostedTrees(TreePredictions, WorkSharing, BaseEstimator):
    """Gradient-boosted trees behind scikit-learn's interface; the concrete estimators know their targets."""

    trains_on_collections: ClassVar[bool] = True
    _target_kind: Target = "numbers"
    _needs_queries: ClassVar[bool] = False
    # Of the estimator that a scorer sees while training: scores of evaluation rows, whose numbers are its X.
    _scores_in_fit: FloatArray | None = None

    objective: Any
    n_estimators: int
    validation_fraction: float | None
    refit_after_stopping: bool
    eval_metric: Any
    categorical_feature: Any
    handle_unknown: Literal["missing", "error"]
    importance_type: Literal["split", "gain"]
    n_jobs: int | None
    warm_start: bool
    verbose: int
    tree_learner: Literal["auto", "data", "feature", "voting"]
    top_k: int
    max_restarts: int
    worker_timeout: float
    checkpoint_dir: str | os.PathLike[str] | None

    best_iteration_: int | None
    best_score_: dict[str, dict[str, float]] | None
    evals_result_: dict[str, dict[str, list[float]]]
    n_iter_: int

    @classmethod
    def _get_param_names(cls) -> list[str]:
        kind: Any = cls
        return list(parameter_names(kind))

    def __sklearn_clone__(self) -> Self:
        # scikit-learn copies every value by itself, which takes longer than a small tree; plain ones need no copy.
        own = vars(self)
        if own.keys() == set(self._get_param_names()) and all(type(value) in _PLAIN for value in own.values()):
            copied = object.__new__(type(self))
            copied.__dict__.update(own)
            return copied
        return super().__sklearn_clone__()

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name or alias; an unknown name is an error with a suggestion."""
        super().set_params(**canonical_parameters(params, self._get_param_names(), type(self).__name__))
        return self

    @property
    def feature_importances_(self) -> FloatArray:
        """How often ("split") or with how much total gain ("gain") each feature was used, by `importance_type`."""
        check_is_fitted(self)
        return self.booster_.feature_importance(self.importance_type)

    def save_model(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file that holds no code; `dmlgbm.load_model` reads it."""
        check_is_fitted(self)
        own = snapshot(self)
        described = replace(own.booster_, metadata={"estimator": saved_state(own)})
        write_atomically(path, described.to_bytes())

    def __sklearn_is_fitted__(self) -> bool:
        return "booster_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_run", None)
        return state

    # Training.

    @abstractmethod
    def _split(self, n_rows: int, target: FloatArray, group_starts: IntArray | None, seed: int) -> Split:
        """The rows to learn from and those that early stopping watches without an evaluation set."""

    @abstractmethod
    def _objective_settings(self, n_classes: int) -> ObjectiveSettings:
        """What is minimised."""

    def _engine_parameters(self, changes: Mapping[str, Any] = _NOTHING, *, has_sets: bool = False) -> EngineParameters:
        """The parameters, with the `changes` that the arguments of `fit` make."""
        given = {**stored_parameters(self), **changes}
        parameters = engine_parameters(given, has_sets=has_sets)
        warn_of_rounds_without_sets(given, has_sets=has_sets)
        require_rows_set_aside(given, parameters.train.early_stopping_rounds, has_sets=has_sets)
        if given["refit_after_stopping"]:
            require_refittable(parameters.train)
        warn_of_other_modes(parameters.train)
        return parameters

    def _starting_point(self, init_model: Any) -> Start:
        own = snapshot(self) if self.warm_start and self.__sklearn_is_fitted__() else None
        return starting_point(init_model, own)

    def _training_table(self, X: Any, start: Start, settings: FitSettings) -> Table:
        if start.booster is None:
            return settings.training_table(X)
        settings.require_names(start.booster.columns)
        return self._table_like(start.booster.columns, X)

    def _weighing_rows(self, rows: Rows, X: Any, start: Start) -> Rows:
        """The rows of X whose weight is not zero; a model that is continued has its categories already."""
        return weighing_rows(rows, listed_categories(X) if start.booster is None else None)

    def _watched(self, given: GivenSet, columns: Columns, classes: Labels | None, n_outputs: int) -> NamedRows:
        """An evaluation set in the engine's types, its columns matched to those of the training table."""
        rows = given.rows
        table = self._table_like(columns, rows.X, name=rows.called("X"))
        if classes is None:
            checked = survival_times if self._target_kind == "times" else numeric_target
            target = checked(rows.y, table.n_rows, rows.called("y"))
        else:
            target = numbers_of_known_labels(rows.y, table.n_rows, classes, rows.called("y"))
        group_starts = None
        if self._needs_queries:
            names = rows.called("group"), rows.called("qid")
            group_starts = group_boundaries(rows.group, rows.qid, table.n_rows, names)
        return given.name, rows.checked(table, target, n_outputs, group_starts)

    def _fit_rows(self, fit: CheckedFit) -> Self:
        """Train on rows that have been checked, and store the result."""
        parameters, settings = fit.parameters, fit.settings
        learnt_from, watched = fit.training, fit.watched
        if parameters.train.early_stopping_rounds is not None and not watched:
            learnt_from, watched = self._set_aside(fit.training, parameters.train.seed)
        columns = Columns.of(fit.training.table)
        parameters = parameters.for_table(learnt_from.n_rows, columns)
        warn_of_cluster_parameters(self)
        warn_of_unused_metric(settings.eval_metric, watched)
        result = train_booster(
            parameters,
            WatchedModel(self, fit.objective, columns, fit.classes),
            learnt_from,
            watched,
            fit.start,
            eval_metric=settings.eval_metric,
            report_every=int(self.verbose),
            callbacks=settings.callbacks,
            learning_rates=settings.learning_rates,
            binner=fit.binner,
        )
        warn_of_constant_model(result.booster, learnt_from.n_rows, parameters.train)
        if self.refit_after_stopping:
            result = refitted_on_all(result, fit, columns)
        self._store(result, fit.classes)
        return self

    def refit(self, X: Any, y: Any, decay_rate: float = 0.9, sample_weight: Any = None, init_score: Any = None) -> Self:
        """Fit the values of all leaves again, on these rows: the trees keep their splits.

        A new value is `decay_rate` of the old one and the rest of what these rows ask for. Leaves that none of them
        reaches keep theirs. Iterations beyond the best one are dropped.
        """
        return self._refit(GivenRows(X, y, sample_weight, init_score), decay_rate)

    def _refit(self, given: GivenRows, decay_rate: float) -> Self:
        check_is_fitted(self)
        booster = refitted_estimator(self, given, decay_rate)
        result = TrainingResult(booster, self.evals_result_, self.best_iteration_, self.best_score_, None)
        self._store(result, getattr(self, "classes_", None))
        return self

    def _set_aside(self, training: Rows, seed: int) -> tuple[Rows, list[NamedRows]]:
        """The rows to learn from, and those that early stopping watches where `fit` got none."""
        if self.validation_fraction is None:
            return training, [(TRAINING, training)]
        rows = self._split(training.n_rows, training.target, training.group_starts, seed)
        return training.numbered().take(rows.training), [("validation", training.take(rows.validation))]

    def _share_to_watch(self) -> float:
        assert self.validation_fraction is not None
        return float(self.validation_fraction)

    def _store(self, result: TrainingResult, classes: Labels | None = None, **more: Any) -> None:
        """Become what a fit made, in one step: nobody sees a part of it, or anything that an earlier fit left."""
        fitted = {
            **_described(result.booster),
            "evals_result_": result.evaluations,
            "best_iteration_": result.best_iteration,
            "best_score_": result.best_score,
            **({} if classes is None else {"classes_": classes}),
            **more,
        }
        kept = {name: value for name, value in dict(vars(self)).items() if name not in _FITTED}
        self.__dict__ = {**kept, **fitted}

    # Prediction.

    def _table_to_predict(self, X: Any) -> Table:
        check_is_fitted(self)
        return super()._table_to_predict(X)

    def _raw_scores(self, X: Any, num_iteration: int | None = None, start_iteration: int = 0) -> FloatArray:
        if self._scores_in_fit is not None:
            return self._scores_in_fit[:, X[:, 0]]
        check_is_fitted(self)
        return super()._raw_scores(X, num_iteration, start_iteration)

    def _one_row(self, kind: Literal["classes", "value", "score"]) -> OneRow:
        check_is_fitted(self)
        return super()._one_row(kind)

    def _scores_of(self, X: Any, stretch: Stretch) -> FloatArray:
        known = self._known_scores(X, stretch)
        return super()._scores_of(X, stretch) if known is None else known


# Everything that a fit may store.
_FITTED = frozenset(
    {
        *("booster_", "n_iter_", "n_features_in_", "feature_names_in_", "classes_", "evals_result_"),
        *("best_iteration_", "best_score_", "plan_", "fit_report_", "_run"),
    }
)


def _described(booster: Booster) -> dict[str, Any]:
    """A model, and what scikit-learn wants to know of it."""
    names = booster.feature_names
    return {
        "booster_": FittedBooster.of(booster),
        "n_iter_": booster.n_iterations,
        "n_features_in_": booster.n_features,
        **({} if names is None else {"feature_names_in_": np.array(names, dtype=object)}),
    }
