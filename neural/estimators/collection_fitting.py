"""`fit` on Dask collections: workers describe their partitions, the client decides, workers make numbers of them.

The client sees small things only: lengths, widths, labels or sums of targets, categories. Partitions stay where they
are.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from dask_backend.cluster import connected
from dask_backend.row_inputs import partition_inputs
from neural.estimators.base import InputTable
from neural.estimators.categories import CategoryColumns
from neural.estimators.parameters import checked_choice, checked_integer
from neural.running.dask_workers import train_on_cluster
from neural.running.generations import Survivor
from neural.running.row_parts import PartTable, RowPart
from neural.targets import ClassTargets, Targets, ValueTargets, target_sums

if TYPE_CHECKING:
    from neural.estimators.base import NeuralEstimator


@dataclass(frozen=True)
class RawPart:
    """A partition as it was read."""

    number: int
    X: Any
    y: Any


@dataclass(frozen=True)
class PartDescription:
    """What the client must know of a partition."""

    n_rows: int
    n_columns: int
    dtype: Any
    names: tuple[str, ...] | None
    labels: npt.NDArray[Any] | None
    sums: npt.NDArray[np.float64] | None
    one_dimensional: bool
    categories: CategoryColumns | None


@dataclass(frozen=True)
class Encoding:
    """How partitions become numbers, the same for all."""

    dtype: str
    targets: Targets
    categories: CategoryColumns | None


def fit_collection(estimator: NeuralEstimator, X: Any, y: Any) -> None:
    """Train on the workers of the current client (or in this process), and store the result."""
    session = secrets.token_hex(8)
    checked_choice("backend", estimator.backend, ("auto", "dask"))
    with connected([X, y], session) as cluster:
        raw = cluster.read(read_part, partition_inputs(X, {"y": y}), "neural-read")
        describe = partial(described, classifies=estimator._classifies, chosen=estimator.categorical_columns)
        descriptions = cluster.gather(cluster.map(describe, [(part,) for part in raw], "neural-describe"))
        _require_one_table(descriptions)
        filled = [each for each in descriptions if each.n_rows]
        targets = _merged_targets(filled, estimator._classifies)
        categories = None
        if estimator.categorical_columns is not None:
            categories = CategoryColumns.merged([each.categories for each in filled if each.categories is not None])
        dtypes = {estimator._dtype_for(each) for each in filled}
        dtype = "float32" if dtypes == {"float32"} else "float64"
        encoding = Encoding(dtype, targets, categories)
        parts = cluster.map(encoded, [(part, encoding) for part in raw], "neural-encode")
        del raw
        seed = estimator._seed()
        table = PartTable(
            tuple(each.n_rows for each in descriptions),
            seed,
            estimator._fraction() if estimator.early_stopping else 0.0,
        )
        job = estimator._job(table.n_training_rows(), InputTable(filled[0].n_columns, dtype, categories), targets, seed)
        survivor = Survivor(job, checked_integer("max_restarts", estimator.max_restarts, 0))
        limit = None if estimator.n_ranks is None else checked_integer("n_ranks", estimator.n_ranks, 1)
        trained = train_on_cluster(cluster, session, job, parts, table, survivor, limit)
    # Names and width of the columns, as every estimator keeps them.
    validate_data(estimator, _example(filled[0]), skip_check_array=True)
    estimator._store(job, trained, targets, categories, survivor.losses)


def read_part(number: int, X: Any, vectors: Mapping[str, Any]) -> RawPart:
    """A partition with its piece of y."""
    return RawPart(number, X, vectors["y"])


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
        sums = target_sums(values)
    names = getattr(part.X, "columns", None)
    return PartDescription(
        n_rows,
        n_columns,
        getattr(part.X, "dtype", None),
        None if names is None else tuple(map(str, names)),
        labels,
        sums,
        y.ndim == 1,
        None if chosen is None or not n_rows else CategoryColumns.of(part.X, chosen),
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
    return RowPart(part.number, inputs, encoding.targets.encoded(np.asarray(part.y), encoding.dtype))


def _require_one_table(descriptions: Sequence[PartDescription]) -> None:
    filled = [(number, each) for number, each in enumerate(descriptions) if each.n_rows]
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
