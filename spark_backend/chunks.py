"""Partitions of a Spark frame as Arrow chunks: written once, kept by Spark, read again for each step.

A chunk is one Arrow batch in one value of bytes, which passes through Spark as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dmlgbm.spark_backend.frames import FrameColumns

ReadFunction = Callable[[int, Any, Mapping[str, Any]], Any]
"""From (number of the partition, its features as an Arrow table, vectors by name) to whatever the caller needs."""


def chunked(columns: FrameColumns, frame: Any) -> Any:
    """An RDD of chunks with the partitions of the frame; Spark runs nothing yet."""
    return columns.selected(frame).mapInArrow(_packed, "chunk binary").rdd


def _packed(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["chunk"])


@dataclass(frozen=True)
class PartitionReading:
    """Reads the chunks of a partition; what comes out is (number, what the function made of it), or nothing."""

    columns: FrameColumns
    function: ReadFunction

    def __call__(self, number: int, chunks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa

        tables = [pa.ipc.open_stream(pa.py_buffer(bytes(row.chunk))).read_all() for row in chunks]
        if sum(table.num_rows for table in tables) == 0:
            return
        whole = pa.concat_tables(tables)
        del tables
        n_features = len(self.columns.features)
        features = whole.select(list(range(n_features))).rename_columns(list(self.columns.features))
        vectors = {
            purpose: _vector(whole.column(n_features + position))
            for position, purpose in enumerate(self.columns.vectors)
        }
        yield number, self.function(number, features, vectors)


def _vector(values: Any) -> Any:
    """A column as numpy: a list in each row becomes a second axis, text stays text."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_list(values.type):
        width = len(values[0]) if len(values) and values[0].is_valid else 0
        flat = np.asarray(values.combine_chunks().flatten())
        return flat.reshape(len(values), width) if len(flat) == len(values) * width else values.to_pylist()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    return values.to_numpy()
