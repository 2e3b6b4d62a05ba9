"""What the three estimators share: parameters, one way to train, one way to predict, saving.

An estimator turns what the user passes into the engine's own types (`RowData`), trains, and stores the result. Nothing
is stored before training has succeeded, so a failed `fit` leaves a fitted estimator as it was. Then all of it is stored
by one assignment, and a prediction reads it once: another thread may predict while this one fits.
"""

from __future__ import annotations

import functools
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gbdt.atomic_file import write_atomically
from gbdt.booster import Booster
from gbdt.callbacks import Callback
from gbdt.dataset import bin_table
from gbdt.objectives import ObjectiveSettings
from gbdt.table import Table
from gbdt.training import TableBinner, TrainingResult
from sklearn_api.backends import lazy_on_collections, snapshot, warn_of_cluster_parameters
from sklearn_api.columns import columns_of, table_like
from sklearn_api.continuation import Start, starting_point
from sklearn_api.evaluation import GivenSet
from sklearn_api.fitting import NamedRows, boost, n_outputs_of
from sklearn_api.holdout import Split, numbered, taken
from sklearn_api.labels import Labels
from sklearn_api.parameter_names import canonical_parameters
from sklearn_api.parameter_values import EngineParameters, checked_iterations, engine_parameters, n_threads_of
from sklearn_api.partitions import Target
from sklearn_api.row_data import RowData
from sklearn_api.saved_state import saved_state
from sklearn_api.scoring import scorer_metrics
from sklearn_api.stopping import TRAINING, warn_of_rounds_without_sets
from sklearn_api.tables import listed_categories, table_from
from sklearn_api.targets import FloatArray, IntArray
from sklearn_api.weightless_rows import weighing_rows
from sklearn_api.work_sharing import WorkSharing

MetricFunction = Callable[[Any, Any], tuple[str, float, bool]]
EvalMetric = str | MetricFunction | Sequence[str | MetricFunction] | None


class BoostedTrees(WorkSharing, BaseEstimator):
    """Gradient-boosted trees behind scikit-learn's interface; the concrete estimators know their targets."""

    _target_kind: ClassVar[Target] = "numbers"
    _needs_queries: ClassVar[bool] = False
    # Of the estimator that a scorer sees while training: scores of evaluation rows, whose numbers are its X.
    _scores_in_fit: FloatArray | None = None

    objective: Any
    n_estimators: int
    subsample: float
    validation_fraction: float | None
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
    n_iter_: int

    @classmethod
    def _get_param_names(cls) -> list[str]:
        # A search asks for them several times a fit, and reading a signature takes as long as a small tree.
        kind: Any = cls
        return list(_parameter_names(kind))

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name or alias; an unknown name is an error with a suggestion."""
        super().set_params(**canonical_parameters(params, self._get_param_names(), type(self).__name__))
        return self

    @property
    def feature_importances_(self) -> FloatArray:
        """How often ("split") or with how much total gain ("gain") each feature was used, by `importance_type`."""
        check_is_fitted(self)
        return self.booster_.feature_importance(self.importance_type)

    @lazy_on_collections()
    def apply(self, X: Any) -> npt.NDArray[np.int32]:
        """The leaf that each row reaches in each tree, [row, tree]; the trees of one iteration stand side by side."""
        table = self._table_to_predict(X)
        leaves = self.booster_.leaf_indices(table, n_threads_of(self.n_jobs))
        return leaves[:, : self._n_iterations(None) * self.booster_.n_outputs]

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
        state = dict(super().__getstate__())
        state.pop("_run", None)
        if "booster_" in state:
            state["booster_"] = state["booster_"].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "booster_" in state:
            state = {**state, "booster_": Booster.from_bytes(state["booster_"])}
        super().__setstate__(state)

    # Training.

    @abstractmethod
    def _split(
        self, n_rows: int, target: FloatArray, group_starts: IntArray | None, seed: int
    ) -> tuple[Split, Split | None]:
        """The rows (and queries) to learn from and those that early stopping watches without an evaluation set."""

    @abstractmethod
    def _objective_settings(self, n_classes: int) -> ObjectiveSettings:
        """What is minimised."""

    @abstractmethod
    def _watched(self, given: GivenSet, columns: Booster, classes: Labels | None, n_outputs: int) -> NamedRows:
        """An evaluation set in the engine's types, its columns matched to those of the training table."""

    def _engine_parameters(self, *, has_sets: bool = False) -> EngineParameters:
        given = self.get_params(deep=False)
        parameters = engine_parameters(given, has_sets=has_sets)
        warn_of_rounds_without_sets(given, has_sets=has_sets)
        if parameters.train.subsample < 1 and parameters.train.subsample_freq == 0:
            # LightGBM's defaults, but nobody who writes this wants it.
            warnings.warn(
                f"subsample={parameters.train.subsample} has no effect while subsample_freq=0: set subsample_freq=1 to "
                "draw the rows of every tree.",
                stacklevel=3,
            )
        return parameters

    def _starting_point(self, init_model: Any) -> Start:
        own = snapshot(self) if self.warm_start and self.__sklearn_is_fitted__() else None
        return starting_point(init_model, own)

    def _training_table(self, X: Any, start: Start) -> Table:
        if start.booster is None:
            return table_from(X, categorical_feature=self.categorical_feature)
        return self._table_like(start.booster, X)

    def _weighing_rows(self, rows: RowData, X: Any, start: Start) -> RowData:
        """The rows of X whose weight is not zero; a model that is continued has its categories already."""
        return weighing_rows(rows, listed_categories(X) if start.booster is None else None)

    def _evaluation_table(self, given: GivenSet, columns: Booster) -> Table:
        return self._table_like(columns, given.X, name=f"X of {given.label}")

    def _fit_rows(
        self,
        parameters: EngineParameters,
        objective: ObjectiveSettings,
        training: RowData,
        watched: Sequence[NamedRows],
        start: Start,
        callbacks: Sequence[Callback] | None,
        classes: Labels | None = None,
        binner: TableBinner = bin_table,
    ) -> Self:
        """Train on rows that have been checked, and store the result."""
        learnt_from = training
        if parameters.train.early_stopping_rounds is not None and not watched:
            learnt_from, watched = self._set_aside(training, parameters.train.seed)
        warn_of_cluster_parameters(self)
        result = boost(
            parameters,
            objective,
            learnt_from,
            watched,
            start,
            eval_metric=self.eval_metric,
            eval_at=getattr(self, "eval_at", ()),
            scorers=scorer_metrics(self, objective, columns_of(training.table), classes, n_outputs_of(objective)),
            report_every=int(self.verbose),
            callbacks=callbacks,
            binner=binner,
        )
        self._store(result, classes)
        return self

    def _set_aside(self, training: RowData, seed: int) -> tuple[RowData, list[NamedRows]]:
        """The rows to learn from, and those that early stopping watches where `fit` got none."""
        if self.validation_fraction is None:
            return training, [(TRAINING, training)]
        rows, groups = self._split(training.table.n_rows, training.target, training.group_starts, seed)
        watched = taken(training, rows.validation, groups and groups.validation)
        return taken(numbered(training), rows.training, groups and groups.training), [("validation", watched)]

    def _share_to_watch(self) -> float:
        assert self.validation_fraction is not None
        return float(self.validation_fraction)

    def _store(self, result: TrainingResult, classes: Labels | None = None, **more: Any) -> None:
        """Become what a fit made, in one step: nobody sees a part of it, or anything that an earlier fit left."""
        self._warn_of_empty_bags(result.booster)
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

    def _warn_of_empty_bags(self, booster: Booster) -> None:
        """Trees over no rows are constant: a fit on a cluster learns that here as well."""
        empty = [tree for tree in booster.trees if not tree.leaf_count.any()] if self.subsample < 1 else []
        if empty:
            warnings.warn(
                f"subsample={self.subsample} drew no row for {len(empty)} of {len(booster.trees)} trees, which add "
                "nothing to the model: raise subsample.",
                stacklevel=5,
            )

    # Prediction.

    def _table_to_predict(self, X: Any) -> Table:
        check_is_fitted(self)
        return self._table_like(self.booster_, X)

    def _table_like(self, fitted: Booster, X: Any, name: str = "X") -> Table:
        return table_like(X, fitted, self.handle_unknown, estimator_name=type(self).__name__, name=name)

    def _n_iterations(self, num_iteration: int | None) -> int:
        """How many iterations to predict with: the best one if early stopping found it, unless told otherwise."""
        if num_iteration is None:
            return self.booster_.n_iterations if self.best_iteration_ is None else self.best_iteration_
        return checked_iterations(num_iteration, self.booster_.n_iterations)

    def _raw_scores(self, X: Any, num_iteration: int | None = None) -> FloatArray:
        """Scores before any link function, [output, row]."""
        if self._scores_in_fit is not None:
            return self._scores_in_fit[:, X[:, 0]]
        known = self._known_scores(X, num_iteration)
        if known is not None:
            return known
        table = self._table_to_predict(X)
        n_iterations, n_threads = self._n_iterations(num_iteration), n_threads_of(self.n_jobs)
        return self.booster_.raw_scores(table, n_iterations=n_iterations, n_threads=n_threads)

    def _staged_raw_scores(self, X: Any) -> Iterator[FloatArray]:
        return self.booster_.staged_raw_scores(self._table_to_predict(X), n_threads_of(self.n_jobs))


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
        "booster_": booster,
        "n_iter_": booster.n_iterations,
        "n_features_in_": booster.n_features,
        **({} if names is None else {"feature_names_in_": np.array(names, dtype=object)}),
    }


@functools.cache
def _parameter_names(kind: Any) -> tuple[str, ...]:
    # Bound to the class that is asked, whose signature counts.
    return tuple(BaseEstimator.__dict__["_get_param_names"].__func__(kind))
