"""Rows that are checked and binned once for many fits, and what such fits remember of the rows they predict.

What a preparation depends on is said here alone: the rows, the fit parameters that belong to rows, and
`preparation_setting`. Everything else (the objective, starting scores) is left to each fit.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset, bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Column, Table
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.threads import Workers
from dmlgbm.sklearn_api.fit_warnings import warn_of_table
from dmlgbm.sklearn_api.parameters.values import EngineParameters
from dmlgbm.sklearn_api.rows.labels import Labels, class_weights, encoded_labels, require_two_weighted_classes
from dmlgbm.sklearn_api.rows.targets import (
    FloatArray,
    group_boundaries,
    is_column,
    numeric_target,
    score_matrix,
    survival_times,
    warn_of_column,
    weight_vector,
)
from dmlgbm.sklearn_api.rows.weightless_rows import weighing_rows
from dmlgbm.sklearn_api.tables import listed_categories, table_from

_MOST_TABLES = 2  # the rows that a search tests on, and those it learns from

_Reference: TypeAlias = Callable[[], Any]


def _nothing() -> None:
    """A reference to nothing."""


class PredictedTables:
    """The last tables that models of these rows predicted: a run that grows on adds its new trees to known scores.

    Tables are compared by their values, which takes about as long as predicting with a few trees. Objects that are
    `expect`ed are known by identity.
    """

    def __init__(self) -> None:
        self._tables: list[Table] = []
        self._training: _Reference = _nothing
        self._tested: _Reference = _nothing
        self._tested_tables: dict[Any, Table] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[PredictedTables], tuple[()]]:
        """What was predicted here means nothing to another process."""
        return PredictedTables, ()

    def expect(self, training: Any, tested: Any) -> None:
        """These very objects, the training rows and others, will be predicted often; nobody writes to them."""
        with self._lock:
            if self._training() is training and self._tested() is tested:
                return
            self._training, self._tested = weakref.ref(training), weakref.ref(tested)
            self._tested_tables = {}

    def are_training_rows(self, X: Any) -> bool:
        """Whether this is the object that was announced as the training rows."""
        return X is not None and X is self._training()

    def table_of(self, X: Any, handle_unknown: Any, make: Callable[[Any], Table]) -> Table:
        """The table that `make` makes of X, or an equal one that is known already."""
        with self._lock:
            tables = self._tested_tables if X is not None and X is self._tested() else {}
        if handle_unknown not in tables:
            tables[handle_unknown] = self._known(make(X))
        return tables[handle_unknown]

    def _known(self, table: Table) -> Table:
        with self._lock:
            for position, before in enumerate(self._tables):
                if _same_values(before, table):
                    self._tables.append(self._tables.pop(position))
                    return before
            self._tables = [*self._tables, table][-_MOST_TABLES:]
            return table


class RememberingBinner:
    """Bins tables, but none twice in a row that has the values and weights of an earlier one.

    Comparing takes far less time.
    """

    def __init__(self) -> None:
        self._known: list[tuple[BinningParameters, Table, FloatArray | None, Dataset]] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[RememberingBinner], tuple[()]]:
        """Bins are smaller than the tables they belong to, but no use without them."""
        return RememberingBinner, ()

    def __call__(
        self, table: Table, binning: BinningParameters, workers: Workers, weight: FloatArray | None
    ) -> Dataset:
        with self._lock:  # of many fits that start at once the first one bins
            for known_binning, known_table, known_weight, dataset in self._known:
                is_same = known_binning == binning and same_weights(known_weight, weight)
                if is_same and _same_values(known_table, table):
                    return dataset
            dataset = bin_table(table, binning, workers, weight)
            self._known = [*self._known, (binning, table, weight, dataset)][-_MOST_TABLES:]
            return dataset


@dataclass(frozen=True)
class CheckedRows:
    """Rows that any number of fits learn from, each with weights and starting scores of its own."""

    setting: Any
    rows: Rows
    classes: Labels | None
    init_score: Any  # as passed: its shape depends on the objective
    n_rows_passed: int
    y_is_column: bool

    def training_rows(self, estimator: Any) -> tuple[Rows, ObjectiveSettings]:
        """The rows as an estimator of these parameters learns from them."""
        if self.y_is_column:
            warn_of_column("y")
        rows, weight = self.rows, self.rows.weight
        if self.classes is not None:
            weight = class_weights(estimator.class_weight, self.classes, rows.target, weight)
            require_two_weighted_classes(self.classes, rows.target, weight)
        objective = estimator._objective_settings(0 if self.classes is None else len(self.classes))
        scores = score_matrix(self.init_score, self.n_rows_passed, objective.n_outputs)
        if scores is not None and rows.row_numbers is not None:
            scores = np.ascontiguousarray(scores[:, rows.row_numbers])
        return replace(rows, weight=weight, init_score=scores), objective


@dataclass(frozen=True)
class PreparedRows(CheckedRows):
    """Rows whose columns are kept as bins."""

    dataset: Dataset
    columns: Columns
    predicted: PredictedTables = field(default_factory=PredictedTables)
    starts: dict[tuple[ObjectiveSettings, bool], Booster] = field(default_factory=dict, compare=False)
    """Models without trees of fits with the weights of these rows, by objective and whether they average: their first
    scores take a pass over the target."""

    @property
    def n_bytes(self) -> int:
        """Memory that the rows take."""
        return _n_bytes([*self.dataset.storage, *vars(self.rows).values()])

    def expect(self, X: Any, tested: Any) -> None:
        """All models of these rows will be scored on X, which they learn from, and on `tested`; neither changes."""
        self.predicted.expect(X, tested)


@dataclass(frozen=True)
class RowsToSplit(CheckedRows):
    """The same for fits that set rows aside to watch: which ones is theirs to say, and what they leave is binned once.

    Other processes have the rows anyway: there is nothing here that is worth sending.
    """

    binner: RememberingBinner = field(default_factory=RememberingBinner)
    stays_in_process = True

    @property
    def n_bytes(self) -> int:
        """Memory that the rows take, with a byte a value for their bins."""
        table = self.rows.table
        columns = [value for column in table.columns for value in vars(column).values()]
        return _n_bytes([*columns, *vars(self.rows).values()]) + table.n_rows * table.n_features


def preparation_setting(estimator: Any, parameters: EngineParameters) -> Any:
    """The values of all parameters that a preparation depends on."""
    listed = estimator.categorical_feature
    categorical = listed if isinstance(listed, str) or listed is None else tuple(np.asarray(listed, object).tolist())
    # Bins are cut by weights; a dictionary has no hash.
    class_weight = repr(getattr(estimator, "class_weight", None))
    stops_early = parameters.train.early_stopping_rounds is not None
    return estimator._target_kind, parameters.binning, categorical, class_weight, stops_early


def prepared_rows(
    estimator: Any,
    parameters: EngineParameters,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    init_score: Any = None,
    group: Any = None,
    qid: Any = None,
) -> PreparedRows | RowsToSplit:
    """Check and bin the rows as `fit` does; the warnings of `fit` come with each fit on them."""
    table = table_from(X, categorical_feature=estimator.categorical_feature)
    warn_of_table(X, table, estimator.categorical_feature)
    y_is_column = y is not None and is_column(np.asarray(y))
    targets = np.asarray(y)[:, 0] if y_is_column else y
    classes = None
    if estimator._target_kind == "classes":
        classes, target = encoded_labels(targets, table.n_rows)
    else:
        checked = survival_times if estimator._target_kind == "times" else numeric_target
        target = checked(targets, table.n_rows)
    weight = weight_vector(sample_weight, table.n_rows)
    group_starts = group_boundaries(group, qid, table.n_rows) if estimator._needs_queries else None
    rows = weighing_rows(Rows(table, target, weight, group_starts=group_starts), listed_categories(X))
    setting = preparation_setting(estimator, parameters)
    passed = (classes, init_score, table.n_rows, y_is_column)
    if parameters.train.early_stopping_rounds is not None:
        return RowsToSplit(setting, rows, *passed)
    all_weights = rows.weight
    if classes is not None:
        all_weights = class_weights(estimator.class_weight, classes, rows.target, rows.weight)
    with Workers(parameters.train.n_threads) as workers:
        dataset = bin_table(rows.table, parameters.binning, workers, all_weights)
    columns = Columns.of(rows.table)
    return PreparedRows(setting, rows.without_columns(), *passed, dataset, columns)


class StagedScores:
    """Scores of the tables that one run has predicted, kept up to date by adding the trees since."""

    def __init__(self) -> None:
        self._scored: dict[int, tuple[Table, int, FloatArray]] = {}

    @property
    def n_bytes(self) -> int:
        return sum(scores.nbytes for _, _, scores in self._scored.values())

    def raw_scores(self, booster: Booster, table: Table, n_threads: int) -> FloatArray:
        """What `booster.raw_scores` gives, to the bit; the table is one of `PredictedTables`."""
        nothing = (table, 0, booster.nothing_added(table.n_rows))
        _, n_iterations, scores = self._scored.pop(id(table), nothing)
        if n_iterations > booster.n_iterations:
            return booster.raw_scores(table, n_threads=n_threads)
        if n_iterations < booster.n_iterations:
            with Workers(n_threads) as workers:
                booster.since(n_iterations).forest_for_once(table.n_rows).add_all(table, scores, workers)
        while len(self._scored) >= _MOST_TABLES:
            self._scored.pop(next(iter(self._scored)))
        self._scored[id(table)] = (table, booster.n_iterations, scores)
        return booster.averaged(scores, booster.n_iterations) if booster.averages else scores.copy()


def _n_bytes(values: Iterable[Any]) -> int:
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def same_weights(one: FloatArray | None, other: FloatArray | None) -> bool:
    """Whether all rows weigh the same in both."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _same_values(one: Table, other: Table) -> bool:
    if one is other:
        return True
    if one.n_rows != other.n_rows or one.n_features != other.n_features:
        return False
    return all(_same_column(a, b) for a, b in zip(one.columns, other.columns, strict=True))


def _same_column(one: Column, other: Column) -> bool:
    """Whether two columns hold the same: missing values in the same rows, categories under the same numbers."""
    if type(one) is not type(other):
        return False
    for name, value in vars(one).items():
        other_value = getattr(other, name)
        if not isinstance(value, np.ndarray) or not isinstance(other_value, np.ndarray):
            if value != other_value:
                return False
        elif value.dtype != other_value.dtype or not np.array_equal(value, other_value, equal_nan=True):
            return False
    return True
