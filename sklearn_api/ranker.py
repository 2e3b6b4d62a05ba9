"""The ranker: scores that put the rows of each query in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.objectives.factory import RANKER_OBJECTIVES
from dmlgbm.gbdt.objectives.ranking import require_pairs
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.system.cluster_types import is_collection
from dmlgbm.sklearn_api.base import BoostedTrees
from dmlgbm.sklearn_api.dispatch import refuse_client
from dmlgbm.sklearn_api.fitting import CheckedFit
from dmlgbm.sklearn_api.parameters.column_rules import FeatureContributions, InteractionConstraints, MonotoneConstraints
from dmlgbm.sklearn_api.parameters.documentation import documented
from dmlgbm.sklearn_api.parameters.fit_settings import Callbacks, EvalMetric, fit_settings
from dmlgbm.sklearn_api.parameters.names import stores_parameters
from dmlgbm.sklearn_api.parameters.values import boosting_named, gains_of_labels, objective_named, step_limit
from dmlgbm.sklearn_api.predicting import RankPredictions
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.holdout import Split, split_groups
from dmlgbm.sklearn_api.rows.targets import (
    FloatArray,
    IntArray,
    group_boundaries,
    numeric_target,
    weight_vector,
)
from dmlgbm.sklearn_api.tables.names import CategoricalFeature
from dmlgbm.sklearn_api.watching.evaluation_sets import given_sets


@documented
class DMLGBMRanker(RankPredictions, BoostedTrees):
    """Gradient-boosted trees that rank the rows of a query.

    Objectives: "lambdarank" (pairs of rows by what they matter for NDCG, the default), "rank_xendcg" (cross entropy of
    a query's scores and drawn relevances), "pairwise" (RankNet, all pairs alike), or a function.

    Targets are grades of relevance: 0 for an irrelevant row, then 1, 2, ... The rows of a query follow one another.
    """

    eval_at: Sequence[int]
    lambdarank_truncation_level: int
    lambdarank_norm: bool
    label_gain: Sequence[float] | None
    lambdarank_position_bias_regularization: float

    _needs_queries = True

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
        eval_at: Sequence[int] = (1, 2, 3, 4, 5),
        lambdarank_truncation_level: int = 30,
        lambdarank_norm: bool = True,
        label_gain: Sequence[float] | None = None,
        lambdarank_position_bias_regularization: float = 0.0,
    ) -> None: ...

    def fit(
        self,
        X: Any,
        y: Any,
        group: Any = None,
        qid: Any = None,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Any = None,
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Any = None,
        eval_init_score: Any = None,
        eval_group: Any = None,
        eval_qid: Any = None,
        init_model: Any = None,
        callbacks: Callbacks = None,
        client: Any = None,
        eval_metric: EvalMetric = None,
        categorical_feature: CategoricalFeature | None = None,
        feature_name: Sequence[str] | None = None,
        position: Any = None,
    ) -> Self:
        """Train on rows with grades y, in queries given by their sizes or by an id for each row."""
        given = given_sets(eval_set, eval_names, eval_sample_weight, eval_init_score, eval_group, eval_qid)
        settings = fit_settings(self, callbacks, eval_metric, categorical_feature, feature_name, has_sets=bool(given))
        rows = GivenRows(X, y, sample_weight, init_score, group, qid, position=position)
        if position is not None:
            self._require_biases()
            if self.refit_after_stopping:
                raise ParameterError(
                    "refit_after_stopping does not fit position: what places add to grades is learnt on the rows of "
                    "training alone. Leave out one of them."
                )
        if is_collection(X):
            from dmlgbm.sklearn_api.clusters.collection_fitting import fit_collection

            return fit_collection(self, rows, given, init_model, settings, client)
        refuse_client(client)
        parameters = self._engine_parameters(settings.parameters, has_sets=bool(given))
        start = self._starting_point(init_model)
        table = self._training_table(X, start, settings)
        target, group_starts = numeric_target(y, table.n_rows), group_boundaries(group, qid, table.n_rows)
        training = self._weighing_rows(rows.checked(table, target, 1, group_starts), X, start)
        columns = settings.matched_to(Columns.of(training.table))
        watched = [self._watched(each, columns, None, 1) for each in given]
        objective = self._objective_settings(0)
        return self._fit_rows(CheckedFit(parameters, objective, training, watched, start, settings))

    def refit(
        self,
        X: Any,
        y: Any,
        decay_rate: float = 0.9,
        sample_weight: Any = None,
        init_score: Any = None,
        group: Any = None,
        qid: Any = None,
    ) -> Self:
        """Fit the values of all leaves again, on these rows and queries: the trees keep their splits.

        A new value is `decay_rate` of the old one and the rest of what these rows ask for. Leaves that none of them
        reaches keep theirs. Iterations beyond the best one are dropped.
        """
        return self._refit(GivenRows(X, y, sample_weight, init_score, group, qid), decay_rate)

    def score(self, X: Any, y: Any, group: Any = None, qid: Any = None, sample_weight: Any = None) -> float:
        """The mean over queries of the normalised discounted cumulative gain (NDCG) of all their rows."""
        prediction = np.asarray(self.predict(X))
        n_rows = len(prediction)
        starts = group_boundaries(group, qid, n_rows)
        gains = gains_of_labels(self.label_gain)
        (metric,) = metrics_for(["ndcg"], objective_alpha=0.0, eval_at=[n_rows], label_gain=gains)
        return float(
            metric.function(numeric_target(y, n_rows), prediction, weight_vector(sample_weight, n_rows), starts)
        )

    def _objective_settings(self, n_classes: int) -> ObjectiveSettings:
        name = self._objective_name()
        if self.refit_after_stopping and name == "rank_xendcg":
            raise ParameterError(
                "refit_after_stopping does not fit objective='rank_xendcg', whose draws belong to the rows of "
                "training: choose 'lambdarank' or 'pairwise', or set refit_after_stopping=False."
            )
        return ObjectiveSettings(
            name,
            truncation_level=int(self.lambdarank_truncation_level),
            normalised_pairs=bool(self.lambdarank_norm),
            label_gain=gains_of_labels(self.label_gain),
            learning_rate_of_biases=float(self.learning_rate),
            position_bias_regularization=float(self.lambdarank_position_bias_regularization),
            max_delta_step=step_limit(self.max_delta_step),
        )

    def _require_biases(self) -> None:
        name = self._objective_name()
        require_pairs("custom" if callable(name) else name)
        if boosting_named(self.boosting_type) == "rf":
            raise ParameterError(
                f"position does not fit boosting_type={self.boosting_type!r}: what places add is learnt along with the "
                "scores, which stay the same for all trees of a forest. Choose 'gbdt' or 'dart', or leave it out."
            )

    def _objective_name(self) -> str | Callable[..., Any]:
        return objective_named(self.objective, RANKER_OBJECTIVES, "lambdarank", type(self).__name__)

    def _split(self, n_rows: int, target: FloatArray, group_starts: IntArray | None, seed: int) -> Split:
        assert group_starts is not None
        return split_groups(group_starts, self._share_to_watch(), seed)
