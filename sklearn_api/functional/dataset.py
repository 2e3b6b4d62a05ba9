"""`Dataset`: rows that are checked when they are passed, binned when they are first trained on, and then kept as bins.

Bins depend on binning parameters and weights alone, so any number of calls of `train` that agree on these share them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from dmlgbm.gbdt.boosting.evaluation import EvaluationPart
from dmlgbm.gbdt.data.bin_sample import without_idle_seed
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.dataset import Dataset as BinnedTable
from dmlgbm.gbdt.data.dataset import bin_table
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.parameters import BinningParameters, ParameterError
from dmlgbm.gbdt.system.cluster_types import is_collection
from dmlgbm.gbdt.threads import Workers
from dmlgbm.sklearn_api.booster import Booster
from dmlgbm.sklearn_api.fit_warnings import warn_of_table
from dmlgbm.sklearn_api.parameters.fit_settings import names_listed
from dmlgbm.sklearn_api.parameters.names import canonical_parameters
from dmlgbm.sklearn_api.rows.targets import (
    FloatArray,
    IntArray,
    group_boundaries,
    numeric_target,
    score_matrix,
    weight_vector,
)
from dmlgbm.sklearn_api.rows.weightless_rows import weighing_rows
from dmlgbm.sklearn_api.sharing.prepared_rows import same_weights
from dmlgbm.sklearn_api.tables import listed_categories, table_from
from dmlgbm.sklearn_api.tables.matching import matched, table_like
from dmlgbm.sklearn_api.tables.names import CategoricalFeature

_PARAMETERS = ("max_bin", "min_data_in_bin", "subsample_for_bin", "random_state")
_MOST_BINNINGS = 2


class Dataset:
    """Rows to learn from or to watch.

    `label` holds numbers: classes are 0, 1, ... `group` has the number of rows of each query, `qid` an id for each row.
    With a `reference`, a Dataset or a Booster, columns and categories are matched to its; bins are always cut from the
    rows that are trained on. `params` may hold max_bin, min_data_in_bin, subsample_for_bin and random_state, for all
    calls of `train` that do not set them. Once the rows are binned, `free_raw_data` lets go of everything else that is
    known of their columns.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        reference: Dataset | Booster | None = None,
        weight: Any = None,
        group: Any = None,
        init_score: Any = None,
        feature_name: Any = "auto",
        categorical_feature: CategoricalFeature = "auto",
        params: Mapping[str, Any] | None = None,
        free_raw_data: bool = True,
        *,
        qid: Any = None,
    ) -> None:
        if is_collection(data):
            raise TypeError("Dataset takes rows of this process: pass Dask collections to the fit of an estimator.")
        table, listed = _table_and_listed(data, reference, feature_name, categorical_feature)
        n_rows = table.n_rows
        self.params = canonical_parameters(params or {}, _PARAMETERS, "Dataset")
        self.free_raw_data = free_raw_data
        self._has_label = label is not None
        self._init_score = init_score
        self._n_rows_passed = n_rows
        target = numeric_target(label, n_rows, "label") if self._has_label else np.zeros(n_rows)
        grouped = group is not None or qid is not None
        starts = group_boundaries(group, qid, n_rows) if grouped else None
        rows = Rows(table, target, weight_vector(weight, n_rows, "weight"), group_starts=starts)
        self._rows = weighing_rows(rows, listed)
        self.columns = Columns.of(self._rows.table)
        self._binned: list[tuple[BinningParameters, FloatArray | None, BinnedTable]] = []
        self._lock = threading.Lock()

    def num_data(self) -> int:
        """The number of rows; those that weigh nothing are left out."""
        return self._rows.n_rows

    def num_feature(self) -> int:
        """The number of columns."""
        return self.columns.n_features

    def get_label(self) -> FloatArray | None:
        """The label of each row."""
        return self._rows.target if self._has_label else None

    def get_weight(self) -> FloatArray | None:
        """The weight of each row; None if all weigh the same."""
        return self._rows.weight

    def get_group(self) -> IntArray | None:
        """The number of rows of each query."""
        starts = self._rows.group_starts
        return None if starts is None else np.diff(starts)

    def get_init_score(self) -> Any:
        """The starting scores as they were passed."""
        return self._init_score

    def get_feature_name(self) -> list[str]:
        """The names of the columns: "Column_0", ... if they have none."""
        return self.columns.listed_names

    def create_valid(
        self, data: Any, label: Any = None, weight: Any = None, group: Any = None, init_score: Any = None
    ) -> Dataset:
        """Rows to watch, with the columns and categories of this Dataset."""
        return Dataset(data, label, self, weight, group, init_score)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    # What `train` and `cv` ask for.

    @property
    def has_table(self) -> bool:
        """Whether the columns are here, besides their bins."""
        return self._rows.table.n_features > 0

    def labelled_rows(self, n_outputs: int, name: str) -> Rows:
        """The rows with their labels and starting scores; their table may have no columns any more."""
        if not self._has_label:
            raise ValueError(f"{name} has no label: pass label to Dataset.")
        scores = score_matrix(self._init_score, self._n_rows_passed, n_outputs)
        numbers = self._rows.row_numbers
        if scores is not None and numbers is not None:
            scores = np.ascontiguousarray(scores[:, numbers])
        return replace(self._rows, init_score=scores)

    def binned(self, binning: BinningParameters, weight: FloatArray | None, workers: Workers) -> BinnedTable:
        """The bins, cut by these parameters and weights: those that are there already, if they are the same."""
        binning = without_idle_seed(binning, self.num_data())
        with self._lock:  # of many calls at once the first one bins
            for known_binning, known_weight, dataset in self._binned:
                if known_binning == binning and same_weights(known_weight, weight):
                    return dataset
            if not self.has_table:
                raise ParameterError(
                    f"train_set is kept as bins of other settings ({_differing(self._binned[-1][0], binning)}): make "
                    "the Dataset with free_raw_data=False to bin it again."
                )
            dataset = bin_table(self._rows.table, binning, workers, weight)
            self._binned = [*self._binned, (binning, weight, dataset)][-_MOST_BINNINGS:]
            if self.free_raw_data:
                self._rows = self._rows.without_columns()
            return dataset

    def watched(
        self, columns: Columns, handle_unknown: Literal["missing", "error"], n_outputs: int, name: str
    ) -> EvaluationPart:
        """The rows as others than those that are trained on, with their columns matched."""
        if not self.has_table:
            raise ValueError(
                f"{name} was trained on and is kept as bins: make it with free_raw_data=False to evaluate other models "
                "on it."
            )
        rows = self.labelled_rows(n_outputs, name)
        return EvaluationPart(replace(rows, table=matched(rows.table, columns, handle_unknown, "train_set", name)))


def _table_and_listed(
    data: Any, reference: Any, feature_name: Any, categorical_feature: CategoricalFeature
) -> tuple[Table, frozenset[int] | None]:
    """The table, and which of its columns keep categories that no row holds; None for all."""
    if reference is None:
        names = names_listed(feature_name)
        table = table_from(data, categorical_feature=categorical_feature, name="data", names=names)
        warn_of_table(data, table, categorical_feature)
        return table, listed_categories(data)
    if not isinstance(reference, Dataset | Booster):
        raise TypeError(f"reference must be a Dataset or a Booster, got {reference!r:.80}.")
    for name, value in (("feature_name", feature_name), ("categorical_feature", categorical_feature)):
        if not isinstance(value, str) or value != "auto":
            raise ValueError(f"{name} and reference were passed, which has columns already: leave {name} out.")
    return table_like(data, reference.columns, "missing", estimator_name="reference", name="data"), None


def _differing(one: BinningParameters, other: BinningParameters) -> str:
    names = {"sample_rows": "subsample_for_bin", "seed": "random_state"}
    differing = [names.get(name, name) for name, value in vars(one).items() if getattr(other, name) != value]
    return ", ".join(differing) or "the weights of rows"
