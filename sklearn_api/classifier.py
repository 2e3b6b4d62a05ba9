"""The classifier: labels of any kind, probabilities that add up to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from sklearn.base import ClassifierMixin

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.objectives.binary import Balance
from dmlgbm.gbdt.objectives.factory import CLASSIFIER_OBJECTIVES
from dmlgbm.gbdt.system.cluster_types import is_collection
from dmlgbm.sklearn_api.base import BoostedTrees
from dmlgbm.sklearn_api.dispatch import refuse_client
from dmlgbm.sklearn_api.fitting import CheckedFit
from dmlgbm.sklearn_api.parameters.column_rules import FeatureContributions, InteractionConstraints, MonotoneConstraints
from dmlgbm.sklearn_api.parameters.documentation import documented
from dmlgbm.sklearn_api.parameters.fit_settings import Callbacks, EvalMetric, fit_settings
from dmlgbm.sklearn_api.parameters.names import stores_parameters
from dmlgbm.sklearn_api.parameters.values import objective_named, step_limit
from dmlgbm.sklearn_api.predicting import ClassPredictions
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.holdout import Split, split_classes
from dmlgbm.sklearn_api.rows.labels import (
    Labels,
    class_weights,
    encoded_labels,
    require_two_weighted_classes,
)
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray
from dmlgbm.sklearn_api.tables.names import CategoricalFeature
from dmlgbm.sklearn_api.watching.evaluation_sets import given_sets


@documented
class DMLGBMClassifier(ClassPredictions, ClassifierMixin, BoostedTrees):
    """Gradient-boosted trees for two or more classes.

    Two classes are learnt with one tree an iteration (objective "binary"), more with one tree for each class
    ("multiclass"). "focal" counts rows of two classes less the better they are known, and "multiclassova" learns each
    class against the rest. A custom objective works on the same scores as the defaults: the log odds of the second
    class, or one score for each class, whose softmax are the probabilities.
    """

    _target_kind = "classes"

    class_weight: Any
    scale_pos_weight: float
    is_unbalance: bool
    focal_gamma: float
    focal_alpha: float
    classes_: Labels

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
        reg_lambda: float = 1.0,
        max_delta_step: float | None = None,
        subsample: float = 1.0,
        subsample_freq: int = 0,
        colsample_bytree: float = 1.0,
        colsample_bynode: float = 1.0,
        data_sample_strategy: Literal["bagging", "goss"] = "bagging",
        bootstrap_type: Literal["bernoulli", "bayesian", "mvs"] = "bernoulli",
        bagging_temperature: float = 1.0,
        mvs_reg: float | None = None,
        pos_bagging_fraction: float = 1.0,
        neg_bagging_fraction: float = 1.0,
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
        class_weight: Mapping[Any, float] | str | None = None,
        scale_pos_weight: float = 1.0,
        is_unbalance: bool = False,
        focal_gamma: float = 2.0,
        focal_alpha: float = 0.25,
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
        """Train on the rows of X and their class labels y."""
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
        classes, target = encoded_labels(y, table.n_rows)
        start.require_same_classes(classes)
        objective = self._objective_settings(len(classes))
        training = self._weighing_rows(rows.checked(table, target, objective.n_outputs), X, start)
        weight = class_weights(self.class_weight, classes, training.target, training.weight)
        require_two_weighted_classes(classes, training.target, weight)
        training = replace(training, weight=weight)
        columns = settings.matched_to(Columns.of(training.table))
        watched = [self._watched(each, columns, classes, objective.n_outputs) for each in given]
        return self._fit_rows(CheckedFit(parameters, objective, training, watched, start, settings, classes))

    @property
    def n_classes_(self) -> int:
        """The number of classes."""
        return len(self.classes_)

    def _objective_settings(self, n_classes: int) -> ObjectiveSettings:
        default = "binary" if n_classes == 2 else "multiclass"
        # scikit-learn's one name for both.
        chosen = None if isinstance(self.objective, str) and self.objective == "log_loss" else self.objective
        name = objective_named(chosen, CLASSIFIER_OBJECTIVES, default, type(self).__name__)
        if name in ("binary", "focal") and n_classes > 2:
            raise ValueError(f"objective={name!r} is for two classes, but y holds {n_classes}: use 'multiclass'.")
        return ObjectiveSettings(
            name,
            n_classes=n_classes,
            max_delta_step=step_limit(self.max_delta_step),
            constants=LossConstants(focal_gamma=float(self.focal_gamma), focal_alpha=float(self.focal_alpha)),
            balance=Balance(float(self.scale_pos_weight), bool(self.is_unbalance)),
        )

    def _split(self, n_rows: int, target: FloatArray, group_starts: IntArray | None, seed: int) -> Split:
        return split_classes(target, self._share_to_watch(), seed)
