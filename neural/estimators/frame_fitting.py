"""`fit` on Spark frames: Spark's tasks describe partitions and make numbers of them; y and weights are columns.

What is wrong with a partition comes back as words, so that errors here read like those of a local fit.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgbm.neural.estimators.parameters import checked_choice
from dmlgbm.neural.estimators.partitioned_fit import (
    PartDescription,
    PartitionedFit,
    RawPart,
    described,
    encoded,
    read_part,
)
from dmlgbm.neural.running.row_parts import RowPart
from dmlgbm.neural.running.spark_tasks import train_on_spark
from dmlgbm.spark_backend.cluster import SparkCluster
from dmlgbm.spark_backend.frames import all_but, vector_columns
from dmlgbm.spark_backend.row_sets import FrameSource

if TYPE_CHECKING:
    from dmlgbm.neural.estimators.base import NeuralEstimator


def fit_frame(estimator: NeuralEstimator, frame: Any, y: Any, sample_weight: Any = None) -> None:
    """Train on the executors of the frame's session, and store the result; y and weights are names of columns."""
    checked_choice("backend", estimator.backend, ("auto", "spark"))
    vectors = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
    columns = all_but(frame, vectors, "X")
    if coded := [name for name in vector_columns(frame) if name in columns.features]:
        raise ValueError(
            f"column {coded[0]!r} of X holds vectors: neural models take one column for each feature; use "
            "pyspark.ml.functions.vector_to_array and select its elements"
        )
    with SparkCluster(frame, secrets.token_hex(8)) as cluster:
        source = FrameSource(cluster, frame, columns, read_frame_part)
        raw = source.partitions()
        describing = _Describing(estimator._classifies, estimator.categorical_columns)
        found = dict(_without_problems(raw.mapValues(describing).collect()))
        empty = PartDescription(0, 0, len(columns.features), None, columns.features, None, None, True, None, 0.0)
        fit = PartitionedFit.of(estimator, [found.get(number, empty) for number in range(len(source))])
        parts = cluster.keep(raw.mapValues(_Encoding(cluster.share(fit.encoding))))
        _without_problems(parts.mapValues(_problem).collect())
        source.release()
        trained = train_on_spark(cluster, fit.job, parts, fit.table, fit.survivor, fit.max_ranks)
    fit.store(trained)


def read_frame_part(number: int, features: Any, vectors: Mapping[str, Any]) -> RawPart | str:
    """A partition, from an Arrow table and vectors."""
    try:
        return read_part(number, features.to_pandas(), {name: np.asarray(value) for name, value in vectors.items()})
    except (TypeError, ValueError) as error:
        return str(error)


@dataclass(frozen=True)
class _Describing:
    classifies: bool
    categorical_columns: Any

    def __call__(self, part: RawPart | str) -> PartDescription | str:
        if isinstance(part, str):
            return part
        try:
            return described(part, self.classifies, self.categorical_columns)
        except (TypeError, ValueError) as error:
            return str(error)


@dataclass(frozen=True)
class _Encoding:
    encoding: Any  # broadcast

    def __call__(self, part: RawPart | str) -> RowPart | str:
        assert not isinstance(part, str), "partitions with problems are refused when they are described"
        try:
            return encoded(part, self.encoding.value)
        except (TypeError, ValueError) as error:
            return str(error)


def _problem(part: RowPart | str) -> str | None:
    return part if isinstance(part, str) else None


def _without_problems(numbered: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    for _, result in sorted(numbered, key=_number):
        if isinstance(result, str):
            raise ValueError(result)
    return numbered


def _number(numbered: tuple[int, Any]) -> int:
    return numbered[0]
