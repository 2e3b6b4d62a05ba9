"""X and what belongs to its rows as partitions that lie side by side, checked as far as that goes without reading them.

The one idea: whatever came in (a frame, an array, local values), every partition of X gets its own piece of every
other input, so that one task can read them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dask_backend.collections import is_array, is_collection, is_frame, is_series


@dataclass(frozen=True)
class PartitionInputs:
    """The pieces of one partition, still to be computed: `vectors` by name, such as "y"."""

    number: int
    X: Any
    vectors: dict[str, Any]


def partition_inputs(X: Any, vectors: Mapping[str, Any], name: str = "X") -> list[PartitionInputs]:
    """The partitions of X with the pieces of every vector (None is left out); what cannot fit raises."""
    _require_table(X, name)
    rows = _Rows(X, name)
    pieces = {label: rows.pieces_of(value, label) for label, value in vectors.items() if value is not None}
    tables = _delayed(rows.table)
    return [
        PartitionInputs(number, table, {label: values[number] for label, values in pieces.items()})
        for number, table in enumerate(tables)
    ]


class _Rows:
    """How the rows of X are divided."""

    def __init__(self, X: Any, name: str) -> None:
        self.name = name
        self.table = X.rechunk({1: -1}) if is_array(X) and X.numblocks[1] > 1 else X
        self.n_partitions = X.npartitions if is_frame(X) else X.numblocks[0]
        # None where Dask does not know.
        self.lengths = tuple(X.chunks[0]) if is_array(X) and not np.isnan(X.shape[0]) else None

    def pieces_of(self, value: Any, label: str) -> list[Any]:
        if is_series(value) or is_frame(value):
            self._check_divisions(value, label)
            return _delayed(value)
        if is_array(value):
            return _delayed(self._aligned_array(value, label))
        if is_collection(value):
            raise TypeError(f"{label} is a {type(value).__qualname__}: pass a Dask series or array, or local values.")
        if np.ndim(value) == 0:
            return [value] * self.n_partitions
        return self._cut(value, label)

    def _check_divisions(self, value: Any, label: str) -> None:
        if value.npartitions != self.n_partitions:
            raise self._different(f"{value.npartitions} partitions", label)
        known = is_frame(self.table) and self.table.known_divisions and value.known_divisions
        if known and value.divisions != self.table.divisions:
            raise ValueError(
                f"The divisions of {self.name} and {label} differ ({_first_difference(self.table, value)}): "
                f"repartition {label} to the divisions of {self.name}."
            )

    def _aligned_array(self, value: Any, label: str) -> Any:
        whole = value.rechunk({1: -1}) if value.ndim == 2 and value.numblocks[1] > 1 else value
        lengths = None if np.isnan(whole.shape[0]) else tuple(whole.chunks[0])
        if self.lengths is not None and lengths is not None:
            if sum(lengths) != sum(self.lengths):
                raise ValueError(
                    f"{label} has {sum(lengths)} values for {sum(self.lengths)} rows of {self.name}: pass one value "
                    "for each row."
                )
            return whole if lengths == self.lengths else whole.rechunk({0: self.lengths})
        if whole.numblocks[0] != self.n_partitions:
            raise self._different(f"{whole.numblocks[0]} chunks", label)
        return whole

    def _different(self, found: str, label: str) -> ValueError:
        return ValueError(
            f"{self.name} has {self.n_partitions} partitions, but {label} has {found}: repartition one of them so that "
            "the rows of a partition of both are the same."
        )

    def _cut(self, value: Any, label: str) -> list[Any]:
        """Local values, cut where X is: needs its lengths, which may have to be computed first."""
        from dask.base import compute
        from dask.delayed import delayed

        if self.lengths is None:
            self.lengths = tuple(int(n) for n in compute(*[delayed(len)(part) for part in _delayed(self.table)]))
        values = value if hasattr(value, "iloc") else np.asarray(value)
        if len(values) != sum(self.lengths):
            raise ValueError(
                f"{label} has {len(values)} values for {sum(self.lengths)} rows of {self.name}: pass one value for "
                "each row."
            )
        bounds = np.concatenate(([0], np.cumsum(self.lengths))).tolist()
        rows = values.iloc if hasattr(values, "iloc") else values
        return [rows[start:stop] for start, stop in pairwise(bounds)]


def _require_table(X: Any, name: str) -> None:
    if is_frame(X):
        return
    if is_array(X):
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: {name} has shape {X.shape}.")
        return
    raise TypeError(
        f"{name} is a {type(X).__module__}.{type(X).__qualname__}: of the Dask collections, dask.dataframe.DataFrame "
        "and dask.array.Array can be trained on."
    )


def _delayed(collection: Any) -> list[Any]:
    """One lazy piece for each partition."""
    return list(np.ravel(np.array(collection.to_delayed(), dtype=object)))


def _first_difference(one: Any, other: Any) -> str:
    for number, (first, second) in enumerate(zip(one.divisions, other.divisions, strict=True)):
        if first != second:
            return f"division {number} is {first!r} and {second!r}"
    return "their types"
