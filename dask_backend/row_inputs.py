"""X and what belongs to its rows as partitions that lie side by side, checked as far as that goes without reading them.

The one idea: whatever came in (a frame, an array, local values), every partition of X gets its own piece of every
other input, so that one task can read them together. Frames and series become one lazy frame first. Dask then sees
that they come from the same files, reads these once, and gives all of them the same partitions; each alone, it may
join partitions where few columns are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dmlgbm.dask_backend.collections import is_array, is_frame, is_series
from dmlgbm.dask_backend.shared_settings import PARTITIONS_AS_THEY_ARE
from dmlgbm.gbdt.system.cluster_types import is_dask_collection

ReadFunction = Callable[[int, Any, Mapping[str, Any]], Any]
"""From (number of the partition, piece of X, pieces of the vectors by name) to what a fit needs of them."""

# What the pieces of frames and series are called among the vectors, and what X is called among them.
_FRAMES = "frames"
_TABLE = "X"


@dataclass(frozen=True)
class PartitionInputs:
    """The pieces of one partition, still to be computed: `vectors` by name, such as "y"."""

    number: int
    X: Any
    vectors: dict[str, Any]


@dataclass(frozen=True)
class Unpacked:
    """A read function for pieces that are computed together."""

    read: ReadFunction

    def __call__(self, number: int, X: Any, vectors: Mapping[str, Any]) -> Any:
        frames = dict(vectors.get(_FRAMES, {}))
        others = {label: value for label, value in vectors.items() if label != _FRAMES}
        return self.read(number, frames.pop(_TABLE, X), {**frames, **others})


def partition_inputs(X: Any, vectors: Mapping[str, Any], name: str = "X") -> list[PartitionInputs]:
    """The partitions of X with the pieces of every vector (None is left out); what cannot fit raises."""
    _require_table(X, name)
    rows = _Rows(X, name)
    given = {label: value for label, value in vectors.items() if value is not None}
    frames = {label: value for label, value in given.items() if is_series(value) or is_frame(value)}
    for label, value in frames.items():
        rows.check_divisions(value, label)
    pieces = {label: rows.pieces_of(value, label) for label, value in given.items() if label not in frames}
    if is_frame(X):
        frames = {_TABLE: X, **frames}
        tables: Sequence[Any] = [None] * X.npartitions
    else:
        tables = _delayed(rows.table)
    if frames:
        pieces[_FRAMES] = _together(frames)
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
        if is_array(value):
            return _delayed(self._aligned_array(value, label))
        if is_dask_collection(value):
            raise TypeError(f"{label} is a {type(value).__qualname__}: pass a Dask series or array, or local values.")
        if np.ndim(value) == 0:
            return [value] * self.n_partitions
        return self._cut(value, label)

    def check_divisions(self, value: Any, label: str) -> None:
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
        known = self.lengths is not None and not np.isnan(whole.shape[0])
        if not known and whole.numblocks[0] == self.n_partitions:
            return whole
        if not known:
            # Arrays that were made from frames: Dask knows no lengths, and may have joined partitions of one of them.
            whole = whole.copy().compute_chunk_sizes()
        lengths = self._known_lengths()
        if whole.shape[0] != sum(lengths):
            raise self._too_many_or_few(whole.shape[0], lengths, label)
        return whole if whole.chunks[0] == lengths else whole.rechunk({0: lengths})

    def _known_lengths(self) -> tuple[int, ...]:
        """The rows of each partition, which may have to be computed first."""
        if self.lengths is None:
            from dask.base import compute
            from dask.delayed import delayed

            # Of a frame no column is needed: Dask then reads less of many kinds of files.
            parts = _delayed(self.table) if is_array(self.table) else _together({_TABLE: self.table[[]]})
            self.lengths = tuple(compute(*[delayed(_n_rows)(part) for part in parts]))
        return self.lengths

    def _different(self, found: str, label: str) -> ValueError:
        return ValueError(
            f"{self.name} has {self.n_partitions} partitions, but {label} has {found}: repartition one of them so that "
            "the rows of a partition of both are the same."
        )

    def _too_many_or_few(self, n_values: int, lengths: Sequence[int], label: str) -> ValueError:
        return ValueError(
            f"{label} has {n_values} values for {sum(lengths)} rows of {self.name}: pass one value for each row."
        )

    def _cut(self, value: Any, label: str) -> list[Any]:
        """Local values, cut where X is."""
        lengths = self._known_lengths()
        values = value if hasattr(value, "iloc") else np.asarray(value)
        if len(values) != sum(lengths):
            raise self._too_many_or_few(len(values), lengths, label)
        bounds = np.concatenate(([0], np.cumsum(lengths))).tolist()
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


def _together(frames: Mapping[str, Any]) -> list[Any]:
    """One lazy piece for each partition: what each of the frames holds of it, by name."""
    from dask.dataframe import map_partitions

    first = next(iter(frames.values()))
    # The pieces are no frames, which nobody but us is going to see.
    joined = map_partitions(
        _named, tuple(frames), *frames.values(), meta=first._meta, enforce_metadata=False, align_dataframes=False
    )
    with PARTITIONS_AS_THEY_ARE.held():
        pieces = _delayed(joined)
    if len(pieces) == first.npartitions:
        return pieces
    # Filters that were moved into the reading may leave out whole files.
    return list(joined.to_delayed(optimize_graph=False))


def _named(names: tuple[str, ...], *values: Any) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def _n_rows(piece: Any) -> int:
    table = piece[_TABLE] if isinstance(piece, dict) else piece
    return int(table.shape[0])


def _first_difference(one: Any, other: Any) -> str:
    for number, (first, second) in enumerate(zip(one.divisions, other.divisions, strict=True)):
        if first != second:
            return f"division {number} is {first!r} and {second!r}"
    return "their types"
