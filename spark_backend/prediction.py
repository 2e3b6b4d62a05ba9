"""Predictions of Spark frames: lazy, by an Arrow function, as one more column, of the type that Spark ML gives it.

The model is broadcast: it reaches every executor once, and a Python worker unpacks it once for all its batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dmlgbm.spark_backend.frames import FrameColumns, columns_named

# Columns that are vectors in Spark ML.
_VECTORS = ("probability", "rawPrediction")

BlockFunction = Callable[[Any, Any, int], npt.NDArray[Any]]
"""From (model, rows of X, number of threads) to one result for each row."""


@dataclass(frozen=True)
class ColumnPrediction:
    """What is done to every batch and what comes out: `example` is the result for one row, `name` the new column."""

    function: BlockFunction
    example: npt.NDArray[Any]
    name: str
    max_threads: int | None = None
    of_classes: bool = False
    """Whether a single raw score belongs to the second of two classes: Spark ML has a score for each."""


def predict_column(frame: Any, columns: FrameColumns, model: Any, prediction: ColumnPrediction) -> Any:
    """The frame with one more column; nothing is computed."""
    from pyspark.sql import functions

    if prediction.name in frame.columns:
        raise ValueError(f"X has a column {prediction.name!r} already: drop or rename it, the prediction is called so.")
    example = _as_in_spark_ml(prediction.example, prediction)
    shipped = frame.sparkSession.sparkContext.broadcast(model)
    function, max_threads = prediction.function, prediction.max_threads
    arrow_type = _arrow_type(example)

    def predicted(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        from pyspark import TaskContext

        context = TaskContext.get()
        n_threads = 1 if context is None else max(1, int(context.cpus()))
        if max_threads is not None:
            n_threads = min(n_threads, max_threads)
        for batch in batches:
            if len(batch) == 0:
                yield pa.array([], arrow_type)
                continue
            table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(batch)])
            values = function(shipped.value, table, n_threads)
            yield _as_arrow(_as_in_spark_ml(values, prediction), arrow_type)

    fields = [
        each.alias(name) for name, each in zip(columns.features, columns_named(frame, columns.features), strict=True)
    ]
    apply = functions.arrow_udf(predicted, returnType=_spark_type(example))
    column = apply(functions.struct(*fields))
    if prediction.name in _VECTORS and example.ndim == 2:
        from pyspark.ml.functions import array_to_vector

        column = array_to_vector(column)
    return frame.withColumn(prediction.name, column)


def _as_in_spark_ml(values: npt.NDArray[Any], prediction: ColumnPrediction) -> npt.NDArray[Any]:
    """Numbers as Spark ML's evaluators want them; labels that are text stay what they are."""
    if prediction.name == "prediction" and values.ndim == 1 and values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if prediction.name in _VECTORS and values.ndim == 1 and prediction.of_classes:
        return np.column_stack([-values, values])
    return values


def _as_arrow(values: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values.tolist() if values.dtype.kind in "OU" else values, arrow_type)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(values).reshape(-1), arrow_type.value_type))


def _arrow_type(example: npt.NDArray[Any]) -> pa.DataType:
    item = {"f": pa.float64(), "b": pa.bool_(), "i": pa.int64(), "u": pa.int64()}.get(example.dtype.kind, pa.string())
    return item if example.ndim == 1 else pa.list_(item)


def _spark_type(example: npt.NDArray[Any]) -> str:
    item = {"f": "double", "b": "boolean", "i": "bigint", "u": "bigint"}.get(example.dtype.kind, "string")
    return item if example.ndim == 1 else f"array<{item}>"
