"""Vector columns of Spark ML inside Arrow tables: one column there, a column for each element here.

Spark stores a vector as (type, size, indices, values); of a sparse one only what differs from zero. All vectors of a
column are read as sparse, because Spark mixes both kinds from row to row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dmlgbm.gbdt.data.table import Column, SparseColumn
from dmlgbm.sklearn_api.tables.arrow_tables import arrow_column
from dmlgbm.sklearn_api.tables.names import Labels

_FIELDS = ["type", "size", "indices", "values"]


class ExpandedTable:
    """An Arrow table whose vector columns are taken apart; the names of elements are `features[0]` and so on."""

    def __init__(self, table: Any, name: str) -> None:
        self._parts: list[Any] = []
        self.names: list[str] = []
        for label, values in zip(table.schema.names, table.columns, strict=True):
            if _is_vector(values.type):
                elements = _elements(_one_array(values), f"column {label!r} of {name}")
                self._parts += elements
                self.names += [f"{label}[{position}]" for position in range(len(elements))]
            else:
                self._parts.append(values)
                self.names.append(label)
        self.shape = (table.num_rows, len(self.names))

    def columns_of(self, labels: Labels) -> tuple[Column, ...]:
        return tuple(
            part if isinstance(part, SparseColumn) else arrow_column(part, labels(position))
            for position, part in enumerate(self._parts)
        )


def has_vectors(table: Any) -> bool:
    """Whether a column holds vectors."""
    return any(_is_vector(each) for each in table.schema.types)


def columns_of(table: ExpandedTable, labels: Labels) -> tuple[Column, ...]:
    """The columns, elements of vectors among them."""
    return table.columns_of(labels)


def _is_vector(arrow_type: Any) -> bool:
    return bool(pa.types.is_struct(arrow_type)) and [field.name for field in arrow_type] == _FIELDS


def _one_array(values: Any) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _elements(vectors: Any, label: str) -> list[SparseColumn]:
    if vectors.null_count:
        row = int(np.argmax(vectors.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"The {label} has no vector in row {row}: drop the row, or fill it.")
    kinds, sizes, indices, values = vectors.flatten()
    is_sparse = kinds.to_numpy() == 0
    lengths = values.value_lengths().to_numpy().astype(np.int64)
    widths = np.where(is_sparse, sizes.fill_null(0).to_numpy(), lengths)
    width = int(widths[0])
    if (widths != width).any():
        row = int(np.argmax(widths != width))
        raise ValueError(
            f"The {label} holds vectors of {width} and, in row {row}, of {widths[row]} elements: give all one size."
        )
    row_of = np.repeat(np.arange(len(kinds), dtype=np.int64), lengths)
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(lengths.sum(), dtype=np.int64) - np.repeat(starts, lengths)
    positions[np.repeat(is_sparse, lengths)] = indices.flatten().to_numpy()
    stored = values.flatten().to_numpy()
    kept = stored != 0
    row_of, positions, stored = row_of[kept], positions[kept], stored[kept]
    order = np.argsort(positions, kind="stable")
    ends = np.searchsorted(positions[order], np.arange(width + 1))
    row_of, stored = row_of[order], stored[order]
    return [
        SparseColumn(row_of[start:stop], stored[start:stop], len(kinds))
        for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
