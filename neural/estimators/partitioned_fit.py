"""A table in partitions, wherever they lie: each is described, the client decides, each becomes numbers.

The client sees small things only: lengths, widths, labels or sums of targets, categories. What is done to a partition
here is done by the tasks of a cluster, where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from dmlgbm.neural.estimators.base import InputTable
from dmlgbm.neural.estimators.categories import CategoryColumns
from dmlgbm.neural.estimators.parameters import checked_integer
from dmlgbm.neural.estimators.weights import WeightArray, checked_weights, mean_weight
from dmlgbm.neural.running.generations import Survivor
from dmlgbm.neural.running.row_parts import PartTable, RowPart
from dmlgbm.neural.targets import ClassTargets, Targets, ValueTargets, target_sums
from dmlgbm.neural.training import Job, Trained

if TYPE_CHECKING:
    from dmlgbm.neural.estimators.base import NeuralEstimator


@dataclass(frozen=True)
class RawPart:
    """A partition as it was read."""

    number: int
    X: Any
    y: Any
    weights: WeightArray | None

    @property
    def counted(self) -> slice | npt.NDArray[np.int64]:
        """The rows that have weight."""
        return slice(None) if self.weights is None else np.flatnonzero(self.weights)


@dataclass(frozen=True)
class PartDescription:
    """What the client must know of a partition: of `n_given` rows `n_rows` have a weight, `weight` all together."""

    n_given: int
    n_rows: int
    n_columns: int
    dtype: Any
    names: tuple[str, ...] | None
    labels: npt.NDArray[Any] | None
    sums: npt.NDArray[np.float64] | None
    one_dimensional: bool
    categories: CategoryColumns | None
    weight: float


@dataclass(frozen=True)
class Encoding:
    """How partitions become numbers, the same for all."""

    dtype: str
    targets: Targets
    categories: CategoryColumns | None
    mean_weight: float


@dataclass(frozen=True)
class PartitionedFit:
    """What the client decides: how partitions become numbers, which rows there are, what is trained."""

    estimator: NeuralEstimator
    example: PartDescription
    encoding: Encoding
    table: PartTable
    job: Job
    survivor: Survivor
    max_ranks: int | None

    @classmethod
    def of(cls, estimator: NeuralEstimator, descriptions: Sequence[PartDescription]) -> PartitionedFit:
        """From the descriptions of all partitions, in order."""
        _require_one_table(descriptions)
        filled = [each for each in descriptions if each.n_given]
        targets = _merged_targets(filled, estimator._classifies)
        categories = None
        if estimator.categorical_columns is not None:
            categories = CategoryColumns.merged([each.categories for each in filled if each.categories is not None])
        dtypes = {estimator._dtype_for(each) for each in filled}
        dtype = "float32" if dtypes == {"float32"} else "float64"
        lengths = tuple(each.n_rows for each in descriptions)
        mean = mean_weight(sum(each.weight for each in descriptions), sum(lengths))
        seed = estimator._seed()
        table = PartTable(lengths, seed, estimator._fraction() if estimator.early_stopping else 0.0)
        job = estimator._job(table.n_training_rows(), InputTable(filled[0].n_columns, dtype, categories), targets, seed)
        return cls(
            estimator,
            filled[0],
            Encoding(dtype, targets, categories, mean),
            table,
            job,
            Survivor(job, checked_integer("max_restarts", estimator.max_restarts, 0)),
            None if estimator.n_ranks is None else checked_integer("n_ranks", estimator.n_ranks, 1),
        )

    def store(self, trained: Trained) -> None:
        """Keep what training has come to in the estimator."""
        # Names and width of the columns, as every estimator keeps them.
        validate_data(self.estimator, _example(self.example), skip_check_array=True)
        encoding = self.encoding
        self.estimator._store(self.job, trained, encoding.targets, encoding.categories, self.survivor.losses)


def read_part(number: int, X: Any, vectors: Mapping[str, Any]) -> RawPart:
    """A partition with its piece of y and of the weights."""
    weights = checked_weights(vectors.get("sample_weight"), X.shape[0], f"partition {number}: ")
    return RawPart(number, X, vectors["y"], weights)


def described(part: RawPart, classifies: bool, chosen: Sequence[Any] | None) -> PartDescription:
    """What one partition holds; runs where it lies."""
    n_rows, n_columns = part.X.shape
    y = np.asarray(part.y)
    if len(y) != n_rows:
        raise ValueError(f"partition {part.number}: X has {n_rows} rows, but y has {len(y)} values")
    labels = sums = None
    if classifies and n_rows:
        check_classification_targets(y)
        labels = np.unique(y)
    elif n_rows:
        values = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        sums = target_sums(values, part.weights)
    names = getattr(part.X, "columns", None)
    return PartDescription(
        n_rows,
        n_rows if part.weights is None else int(np.count_nonzero(part.weights)),
        n_columns,
        getattr(part.X, "dtype", None),
        None if names is None else tuple(map(str, names)),
        labels,
        sums,
        y.ndim == 1,
        None if chosen is None or not n_rows else CategoryColumns.of(part.X, chosen),
        n_rows if part.weights is None else float(part.weights.sum()),
    )


def encoded(part: RawPart, encoding: Encoding) -> RowPart:
    """A partition as numbers; runs where it lies."""
    if not part.X.shape[0]:
        inputs = np.empty(part.X.shape, encoding.dtype)
    elif encoding.categories is not None:
        inputs = encoding.categories.encoded(part.X, encoding.dtype)
    else:
        try:
            inputs = check_array(part.X, accept_sparse="csr", dtype=encoding.dtype, order="C", input_name="X")
        except ValueError as error:
            raise ValueError(f"partition {part.number}: {error}") from None
    targets = encoding.targets.encoded(np.asarray(part.y), encoding.dtype)
    if part.weights is None:
        return RowPart(part.number, inputs, targets)
    counted = part.counted
    return RowPart(part.number, inputs[counted], targets[counted], part.weights[counted] / encoding.mean_weight)


def _require_one_table(descriptions: Sequence[PartDescription]) -> None:
    filled = [(number, each) for number, each in enumerate(descriptions) if each.n_given]
    if not filled:
        raise ValueError("Found array with 0 sample(s): no partition of X has rows.")
    first_number, first = filled[0]
    for number, each in filled[1:]:
        if each.n_columns != first.n_columns:
            raise ValueError(
                f"partition {number} of X has {each.n_columns} features, but partition {first_number} has "
                f"{first.n_columns}: all partitions must have the same columns"
            )
        if each.names != first.names:
            raise ValueError(
                f"partition {number} of X has the columns {each.names}, but partition {first_number} has {first.names}"
            )


def _merged_targets(filled: Sequence[PartDescription], classifies: bool) -> Targets:
    if classifies:
        return ClassTargets(np.unique(np.concatenate([each.labels for each in filled if each.labels is not None])))
    sums = np.sum([each.sums for each in filled if each.sums is not None], axis=0)
    return ValueTargets.from_sums(sums, filled[0].one_dimensional)


def _example(description: PartDescription) -> Any:
    row = np.zeros((1, description.n_columns))
    if description.names is None:
        return row
    import pandas as pd

    return pd.DataFrame(row, columns=list(description.names))
