"""Predictions of Spark frames: lazy, by an Arrow function, as one more column.

The model is broadcast: it reaches every executor once, and a Python worker unpacks it once for all its batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_backend.frames import FrameColumns, columns_named, require_classic

BlockFunction = Callable[[Any, Any, int], npt.NDArray[Any]]
"""From (model, rows of X, number of threads) to one result for each row."""


@dataclass(frozen=True)
class ColumnPrediction:
    """What is done to every batch and what comes out: `example` is the result for one row, `name` the new column."""

    function: BlockFunction
    example: npt.NDArray[Any]
    name: str
    max_threads: int | None = None


def predict_column(frame: Any, columns: FrameColumns, model: Any, prediction: ColumnPrediction) -> Any:
    """The frame with one more column; nothing is computed."""
    from pyspark.sql import functions

    require_classic(frame)
    if prediction.name in frame.columns:
        raise ValueError(f"X has a column {prediction.name!r} already: drop or rename it, the prediction is called so.")
    shipped = frame.sparkSession.sparkContext.broadcast(model)
    function, max_threads = prediction.function, prediction.max_threads
    arrow_type = _arrow_type(prediction.example)

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
            yield _as_arrow(function(shipped.value, table, n_threads), arrow_type)

    fields = [
        each.alias(name) for name, each in zip(columns.features, columns_named(frame, columns.features), strict=True)
    ]
    apply = functions.arrow_udf(predicted, returnType=_spark_type(prediction.example))
    return frame.withColumn(prediction.name, apply(functions.struct(*fields)))


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
