"""`fit` on Dask collections and Spark frames: what the estimators know, handed to the learner on the cluster.

The client sees small things only (descriptions of partitions, labels, queries). From these it decides, as a local fit
of all rows would, what columns, categories, classes and shares there are; workers turn partitions into rows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from dmlgbm.gbdt.callbacks import Callback, log_evaluation
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.objectives import RowError
from dmlgbm.gbdt.system.cluster_types import is_spark_frame
from dmlgbm.sklearn_api.clusters.collection_rows import DaskPlace, Described, split_cuts
from dmlgbm.sklearn_api.clusters.partition_rows import RowRules, place_of_row, rows_of
from dmlgbm.sklearn_api.clusters.partition_schema import LabelSummary, merged_labels, unified_columns
from dmlgbm.sklearn_api.clusters.partitions import PartitionReader
from dmlgbm.sklearn_api.continuation import Start
from dmlgbm.sklearn_api.dispatch import refuse_client, warn_of_dask_parameters
from dmlgbm.sklearn_api.fit_warnings import warn_of_categories, warn_of_constant_model, warn_of_unused_metric
from dmlgbm.sklearn_api.fitting import metrics_of
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.labels import Labels, require_weighted_classes, weights_of_classes
from dmlgbm.sklearn_api.rows.targets import FloatArray
from dmlgbm.sklearn_api.tables.names import categorical_positions
from dmlgbm.sklearn_api.watching.evaluation_sets import GivenSet
from dmlgbm.sklearn_api.watching.learning_rates import with_rates
from dmlgbm.sklearn_api.watching.scoring import WatchedModel
from dmlgbm.sklearn_api.watching.stopping import TRAINING, watching

if TYPE_CHECKING:
    from dmlgbm.gbdt.data.columns import Columns
    from dmlgbm.gbdt.objectives import ObjectiveSettings
    from dmlgbm.gbdt.parameters import TrainParameters
    from dmlgbm.gbdt.ranks.job import ClusterJob, ClusterResult
    from dmlgbm.gbdt.ranks.row_set import RowSet
    from dmlgbm.sklearn_api.base import BoostedTrees
    from dmlgbm.sklearn_api.parameters.fit_settings import FitSettings
    from dmlgbm.sklearn_api.parameters.values import EngineParameters

Estimator = TypeVar("Estimator", bound="BoostedTrees")
NamedSet = tuple[str, "RowSet"]
Training = Callable[["ClusterJob[Any]", Sequence[Callback]], "ClusterResult"]


class Place(Protocol):
    """Where a collection lies and is trained on."""

    def is_collection(self, X: Any) -> bool:
        """Whether X lies there, too."""

    def described(self, reader: PartitionReader, rows: GivenRows, name: str, needs_queries: bool) -> Described:
        """Read every partition there, and describe it."""

    def local_rows(self, rows: Rows, name: str) -> RowSet:
        """Rows of this process, for the ranks to watch."""

    def first_share(self, rows: Any) -> Rows:
        """The rows of one share, here."""

    def digest(self, rows: Any, name: str) -> int:
        """A number that is the same for sets of the same rows in the same order."""

    @property
    def train(self) -> Training:
        """What trains there."""


def fit_collection(
    estimator: Estimator,
    rows: GivenRows,
    given: Sequence[GivenSet],
    init_model: Any,
    settings: FitSettings,
    client: Any = None,
) -> Estimator:
    """Train where the rows are (on the workers of a client, on the executors of Spark), and store the result.

    On the event loop of an asynchronous client this is to be awaited.
    """
    if not is_spark_frame(rows.X):
        from dmlgbm.dask_backend.awaiting import asynchronous_client, fitted_in_thread

        asynchronous = asynchronous_client(_collections(rows, given), client)
        if asynchronous is not None:

            def fit(stop: Callback) -> Estimator:
                stoppable = replace(settings, callbacks=[*settings.callbacks, stop])
                return _fit_where_it_lies(estimator, rows, given, init_model, stoppable, asynchronous)

            return fitted_in_thread(fit)  # type: ignore[return-value]
    return _fit_where_it_lies(estimator, rows, given, init_model, settings, client)


def _fit_where_it_lies(
    estimator: Estimator,
    rows: GivenRows,
    given: Sequence[GivenSet],
    init_model: Any,
    settings: FitSettings,
    client: Any,
) -> Estimator:
    parameters = estimator._engine_parameters(settings.parameters, has_sets=bool(given))
    start = estimator._starting_point(init_model)
    with _place_of(estimator, rows, given, client) as place:
        _CollectionFit(place, estimator, parameters, start, settings).run(rows, given)
    return estimator


@contextlib.contextmanager
def _place_of(estimator: BoostedTrees, rows: GivenRows, given: Sequence[GivenSet], client: Any) -> Iterator[Place]:
    fit_id = secrets.token_hex(8)
    if is_spark_frame(rows.X):
        refuse_client(client)
        warn_of_dask_parameters(estimator)
        from dmlgbm.sklearn_api.clusters.frame_rows import SparkPlace

        with SparkPlace(rows.X, fit_id) as place:
            yield place
        return
    from dmlgbm.dask_backend.cluster import connected

    seconds = float(estimator.worker_timeout)
    with connected(_collections(rows, given), fit_id, client, worker_timeout=seconds) as cluster:
        yield DaskPlace(cluster, fit_id)


def _collections(rows: GivenRows, given: Sequence[GivenSet]) -> list[Any]:
    vectors = (rows.sample_weight, rows.init_score, rows.group, rows.qid, rows.position)
    return [rows.X, rows.y, *vectors, *(each for one in given for each in (one.rows.X, one.rows.y))]


class _CollectionFit:
    """One fit in one place."""

    def __init__(
        self,
        place: Place,
        estimator: BoostedTrees,
        parameters: EngineParameters,
        start: Start,
        settings: FitSettings,
    ) -> None:
        self._place = place
        self._settings = settings
        self._estimator = estimator
        self._parameters = parameters
        self._start = start
        self._name = type(estimator).__name__

    def run(self, rows: GivenRows, given: Sequence[GivenSet]) -> None:
        from dmlgbm.gbdt.ranks.job import ClusterJob

        estimator, parameters, start = self._estimator, self._parameters, self._start
        described = self._described(rows)
        schema = unified_columns(described.partitions)
        self._warn_of_categories(schema.columns, described)
        labels = merged_labels(described.partitions) if estimator._target_kind == "classes" else None
        classes = None if labels is None else labels.classes
        objective = estimator._objective_settings(0 if classes is None else len(classes))
        start.require_same_objective(objective)
        start.require_same_sum(parameters.train)
        parameters.train.require_classes_to_draw(objective.n_classes)
        described.require_scores(objective.n_outputs)
        rules = RowRules(schema, classes, self._class_weights(labels), described.lengths)
        training = described.row_set(rules, rows_of)
        columns = self._settings.matched_to(schema.columns)
        watched = [self._watched(each, columns, classes, objective.n_outputs) for each in given]
        parameters = parameters.for_table(training.n_rows, schema.columns)
        if parameters.train.early_stopping_rounds is not None and not watched:
            training, watched = self._set_aside(training, described, classes)
        warn_of_unused_metric(self._settings.eval_metric, watched)
        job = ClusterJob(
            parameters=self._train_parameters(parameters.train, training, watched),
            binning=parameters.binning,
            objective=objective,
            columns=schema.columns,
            training=training,
            evaluation=tuple(watched),
            metrics=tuple(self._metrics(objective, schema.columns, classes, watched)),
            initial_model=start.booster,
            tree_learner=estimator.tree_learner,
            top_k=int(estimator.top_k),
            n_jobs=None if estimator.n_jobs is None else int(estimator.n_jobs),
            max_restarts=int(estimator.max_restarts),
            checkpoint_dir=None if estimator.checkpoint_dir is None else os.fspath(estimator.checkpoint_dir),
            refit_after_stopping=bool(estimator.refit_after_stopping),
        )
        report_every = int(estimator.verbose)
        all_callbacks = [*([log_evaluation(report_every)] if report_every > 0 else []), *self._settings.callbacks]
        try:
            result = self._place.train(job, all_callbacks)
        except RowError as error:
            partition, row = place_of_row(training.cuts, error.row)
            first, row = described.row_before(partition, row)
            place = f"row {first + row} of X (row {row} of partition {partition})"
            raise RowError(error.subject, error.row, error.problem, place) from None
        warn_of_constant_model(result.training.booster, training.n_rows, parameters.train)
        estimator._store(result.training, classes, plan_=result.plan, fit_report_=result.report)

    def _described(self, rows: GivenRows) -> Described:
        estimator = self._estimator
        reader = PartitionReader(
            estimator._target_kind,
            self._name,
            self._settings.categorical_feature,
            None if self._start.booster is None else self._start.booster.columns,
            estimator.handle_unknown,
            feature_names=self._settings.feature_names,
            binning=self._parameters.binning,
        )
        return self._place.described(reader, rows, "read", estimator._needs_queries)

    def _warn_of_categories(self, columns: Columns, described: Described) -> None:
        if self._start.booster is not None:
            return
        fixed = {
            feature
            for each in described.partitions
            for feature, column in enumerate(each.columns)
            if column.fixed_order
        }
        listed = self._settings.categorical_feature
        warn_of_categories(columns, fixed | categorical_positions(listed, columns.names, columns.n_features, "X"))

    def _class_weights(self, labels: LabelSummary | None) -> FloatArray | None:
        if labels is None:
            return None
        self._start.require_same_classes(labels.classes)
        weights = weights_of_classes(getattr(self._estimator, "class_weight", None), labels.classes, labels.counts)
        present = labels.counts > 0 if weights is None else (labels.counts > 0) & (weights > 0)
        require_weighted_classes(labels.classes, present)
        return weights

    def _watched(self, given: GivenSet, columns: Columns, classes: Labels | None, n_outputs: int) -> NamedSet:
        if not self._place.is_collection(given.rows.X):
            name, local = self._estimator._watched(given, columns, classes, n_outputs)
            return name, self._place.local_rows(local, f"local-{given.rows.label}")
        estimator = self._estimator
        rows = given.rows
        label = f" of {rows.label}"
        reader = PartitionReader(
            estimator._target_kind, self._name, "auto", columns, estimator.handle_unknown, set_label=label
        )
        described = self._place.described(reader, rows, f"read-{rows.label}", estimator._needs_queries)
        described.require_scores(n_outputs)
        schema = unified_columns(described.partitions, f"X{label}")
        rules = RowRules(replace(schema, columns=columns), classes, None, described.lengths, label)
        return given.name, described.row_set(rules, rows_of)

    def _set_aside(
        self, training: RowSet, described: Described, classes: Labels | None
    ) -> tuple[RowSet, list[NamedSet]]:
        """Rows for early stopping to watch: the very rows that a local fit would take."""
        if self._estimator.validation_fraction is None:
            return training, [(TRAINING, training)]
        target = np.zeros(0)
        if classes is not None:
            target = described.targets(training)
        seed = self._parameters.train.seed
        rows = self._estimator._split(training.n_rows, target, described.boundaries, seed)
        learnt, watched = (split_cuts(training.cuts, own) for own in rows)
        return replace(training, cuts=learnt), [("validation", replace(training, cuts=watched))]

    def _train_parameters(
        self, parameters: TrainParameters, training: RowSet, watched: Sequence[NamedSet]
    ) -> TrainParameters:
        """The engine's parameters for the iterations to add and the sets to watch."""
        own: int | None = None

        def holds_training_rows(number: int) -> bool:
            nonlocal own
            name, rows = watched[number]
            if rows.n_rows != training.n_rows:
                return False
            own = self._place.digest(training, TRAINING) if own is None else own
            return self._place.digest(rows, f"{name}-{number}") == own

        n_estimators = self._start.iterations_to_add(parameters.n_estimators)
        parameters = with_rates(replace(parameters, n_estimators=n_estimators), self._settings.learning_rates)
        names = [name for name, _ in watched]
        return watching(parameters, names, holds_training_rows)

    def _metrics(
        self, objective: ObjectiveSettings, columns: Columns, classes: Labels | None, watched: Sequence[NamedSet]
    ) -> list[Any]:
        if not watched:
            return []
        model = WatchedModel(self._estimator, objective, columns, classes)
        return metrics_of(
            self._parameters, model, self._settings.eval_metric, lambda: self._place.first_share(watched[0][1])
        )
