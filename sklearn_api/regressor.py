"""The regressor: one number for each row, as a mean, a median, a quantile, a rate or a share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.objectives.factory import REGRESSOR_OBJECTIVES, SURVIVAL_OBJECTIVES
from dmlgbm.gbdt.system.cluster_types import is_collection
from dmlgbm.sklearn_api.base import BoostedTrees
from dmlgbm.sklearn_api.dispatch import refuse_client
from dmlgbm.sklearn_api.fit_warnings import warn_of_small_targets
from dmlgbm.sklearn_api.fitting import CheckedFit
from dmlgbm.sklearn_api.parameters.column_rules import FeatureContributions, InteractionConstraints, MonotoneConstraints
from dmlgbm.sklearn_api.parameters.documentation import documented
from dmlgbm.sklearn_api.parameters.fit_settings import Callbacks, EvalMetric, fit_settings
from dmlgbm.sklearn_api.parameters.names import stores_parameters
from dmlgbm.sklearn_api.parameters.values import objective_named, step_limit
from dmlgbm.sklearn_api.predicting import ValuePredictions
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.holdout import Split, split_rows
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray, numeric_target, survival_times
from dmlgbm.sklearn_api.tables.names import CategoricalFeature
from dmlgbm.sklearn_api.watching.evaluation_sets import given_sets

if TYPE_CHECKING:
    from dmlgbm.sklearn_api.clusters.partitions import Target


@documented
class DMLGBMRegressor(ValuePredictions, RegressorMixin, BoostedTrees):
    """Gradient-boosted trees for a number.

    Objectives: "regression" (squared error, the default), "regression_l1" (absolute error), "quantile" and "expectile"
    at the level `alpha`; "huber", "fair" and "logcosh", which outliers pull less; "mape" (relative error); "poisson",
    "gamma" and "tweedie" (rates and amounts that are not negative), "cross_entropy" (shares from 0 to 1), "cox" and
    "aft" (survival times; with a minus sign where the event did not come, as a structured array of (event, time), or
    as two columns of bounds), or a function.
    """

    alpha: float
    fair_c: float
    tweedie_variance_power: float
    aft_loss_distribution: str
    aft_loss_distribution_scale: float

    @stores_parameters
    def __init__(
        self,
        *,
        objective: str | Callable[..., Any] | None = None,
        boosting_type: Literal["gbdt", "rf", "dart", "goss"] = "gbdt",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int | None = 31,
        max_depth: int | None = -1,
        grow_policy: Literal["leafwise", "depthwise"] = "leafwise",
        max_bin: int = 255,
        subsample_for_bin: int = 200_000,
        min_data_in_bin: int = 1,
        min_child_samples: int = 20,
        min_child_weight: float = 1e-3,
        min_split_gain: float = 0.0,
        reg_alpha: float = 0.0,
        reg_lambda: float = 0.0,
        max_delta_step: float | None = None,
        subsample: float = 1.0,
        subsample_freq: int = 0,
        colsample_bytree: float = 1.0,
        colsample_bynode: float = 1.0,
        data_sample_strategy: Literal["bagging", "goss"] = "bagging",
        bootstrap_type: Literal["bernoulli", "bayesian", "mvs"] = "bernoulli",
        bagging_temperature: float = 1.0,
        mvs_reg: float | None = None,
        top_rate: float = 0.2,
        other_rate: float = 0.1,
        drop_rate: float = 0.1,
        max_drop: int = 50,
        skip_drop: float = 0.5,
        uniform_drop: bool = False,
        xgboost_dart_mode: bool = False,
        drop_seed: int | None = None,
        extra_trees: bool = False,
        cat_smooth: float = 10.0,
        cat_l2: float = 10.0,
        max_cat_threshold: int = 24,
        max_cat_to_onehot: int = 4,
        min_data_per_group: int = 100,
        path_smooth: float = 0.0,
        feature_contri: FeatureContributions = None,
        monotone_constraints: MonotoneConstraints = None,
        monotone_constraints_method: Literal["basic", "intermediate"] = "basic",
        interaction_constraints: InteractionConstraints = None,
        categorical_feature: CategoricalFeature = "auto",
        handle_unknown: Literal["missing", "error"] = "missing",
        precision: Literal["auto", "fast", "exact"] = "auto",
        early_stopping: bool | Literal["auto"] = "auto",
        early_stopping_rounds: int | None = None,
        early_stopping_min_delta: float = 0.0,
        early_stopping_sets: str | Sequence[str] | None = None,
        first_metric_only: bool = False,
        scoring: str | Callable[..., float] | None = None,
        validation_fraction: float | None = 0.1,
        refit_after_stopping: bool = False,
        eval_metric: EvalMetric = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        importance_type: Literal["split", "gain"] = "split",
        warm_start: bool = False,
        verbose: int = 0,
        tree_learner: Literal["auto", "data", "feature", "voting"] = "auto",
        top_k: int = 20,
        max_restarts: int = 3,
        worker_timeout: float = 30.0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        alpha: float = 0.9,
        fair_c: float = 1.0,
        tweedie_variance_power: float = 1.5,
        aft_loss_distribution: Literal["normal", "logistic", "extreme"] = "normal",
        aft_loss_distribution_scale: float = 1.0,
    ) -> None: ...

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Any = None,
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Any = None,
        eval_init_score: Any = None,
        init_model: Any = None,
        callbacks: Callbacks = None,
        client: Any = None,
        eval_metric: EvalMetric = None,
        categorical_feature: CategoricalFeature | None = None,
        feature_name: Sequence[str] | None = None,
    ) -> Self:
        """Train on the rows of X and their targets y."""
        given = given_sets(eval_set, eval_names, eval_sample_weight, eval_init_score)
        settings = fit_settings(self, callbacks, eval_metric, categorical_feature, feature_name, has_sets=bool(given))
        rows = GivenRows(X, y, sample_weight, init_score)
        if is_collection(X):
            from dmlgbm.sklearn_api.clusters.collection_fitting import fit_collection

            return fit_collection(self, rows, given, init_model, settings, client)
        refuse_client(client)
        parameters = self._engine_parameters(settings.parameters, has_sets=bool(given))
        start = self._starting_point(init_model)
        table = self._training_table(X, start, settings)
        training = self._weighing_rows(rows.checked(table, self._checked_target(y, table.n_rows), 1), X, start)
        columns = settings.matched_to(Columns.of(training.table))
        watched = [self._watched(each, columns, None, 1) for each in given]
        objective = self._objective_settings(0)
        warn_of_small_targets(objective.name, training.target)
        return self._fit_rows(CheckedFit(parameters, objective, training, watched, start, settings))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the predictions; of survival times Harrell's concordance index, which knows no weights."""
        if self._target_kind == "numbers":
            return float(super().score(X, y, sample_weight))
        prediction = np.asarray(self.predict(X))
        survival = self._objective_settings(0).survival
        (metric,) = metrics_for(["c_index"], objective_alpha=0.0, eval_at=(), survival=survival)
        return metric.function(survival_times(y, len(prediction)), prediction, None, None)

    def _objective_settings(self, n_classes: int) -> ObjectiveSettings:
        constants = LossConstants(fair_c=float(self.fair_c), tweedie_variance_power=float(self.tweedie_variance_power))
        return ObjectiveSettings(
            self._objective_name(),
            alpha=float(self.alpha),
            distribution=self.aft_loss_distribution,
            distribution_scale=float(self.aft_loss_distribution_scale),
            max_delta_step=step_limit(self.max_delta_step),
            constants=constants,
        )

    def _objective_name(self) -> str | Callable[..., Any]:
        return objective_named(self.objective, REGRESSOR_OBJECTIVES, "regression", type(self).__name__)

    @property
    def _target_kind(self) -> Target:  # type: ignore[override]
        return "times" if self._objective_name() in SURVIVAL_OBJECTIVES else "numbers"

    def _checked_target(self, y: Any, n_rows: int) -> FloatArray:
        return survival_times(y, n_rows) if self._target_kind == "times" else numeric_target(y, n_rows)

    def _split(self, n_rows: int, target: FloatArray, group_starts: IntArray | None, seed: int) -> Split:
        return split_rows(n_rows, self._share_to_watch(), seed)
