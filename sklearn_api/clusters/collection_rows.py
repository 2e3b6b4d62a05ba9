"""Partitions of a Dask collection, described, as sets of rows that the cluster can bin or watch."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgbm.gbdt.data.rows import Rows, kept_queries
from dmlgbm.gbdt.system.cluster_types import is_dask_collection
from dmlgbm.sklearn_api.clusters.partition_rows import RowCut, RowRules, share_cuts
from dmlgbm.sklearn_api.clusters.partition_schema import merged_queries
from dmlgbm.sklearn_api.clusters.partitions import (
    PartitionDescription,
    PartitionReader,
    Target,
    candidates_of,
    describe,
)
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray, group_boundaries, require_weight
from dmlgbm.sklearn_api.watching.stopping import row_digest

if TYPE_CHECKING:
    from dmlgbm.dask_backend.cluster import Cluster
    from dmlgbm.dask_backend.ingestion import PartitionRowSet, PartitionSource
    from dmlgbm.gbdt.parameters import BinningParameters
    from dmlgbm.gbdt.ranks.row_set import RowSet, RowsOf

# Partitions that take more than this share of the workers' memory are read again for every step.
_SHARE_OF_MEMORY = 0.3
# Partitions that are computed twice take longer by as much.
_SECONDS_WORTH_A_WARNING = 10.0
# Fewer rows of a local evaluation set than this are not worth another worker.
_ROWS_OF_A_BLOCK = 4096


class DaskPlace:
    """The workers of a Dask client, or this process: where partitions are read, and where ranks train on them."""

    def __init__(self, cluster: Cluster, fit_id: str) -> None:
        from dmlgbm.dask_backend.train import train_on_cluster

        self._cluster = cluster
        self.train = partial(train_on_cluster, cluster, fit_id)

    def is_collection(self, X: Any) -> bool:
        return is_dask_collection(X)

    def described(
        self, reader: PartitionReader, rows: GivenRows, name: str, needs_queries: bool
    ) -> DescribedPartitions:
        return described_rows(self._cluster, reader, rows, name, needs_queries=needs_queries)

    def local_rows(self, rows: Rows, name: str) -> RowSet:
        return local_rows(self._cluster, rows, name)

    def first_share(self, rows: PartitionRowSet) -> Rows:
        return rows.rows_of(self._cluster.gather(rows.parts_of(0)), rows.rules, rows.cuts[0])

    def digest(self, rows: PartitionRowSet, name: str) -> int:
        shares = zip(rows.cuts, rows.first_rows, strict=False)
        arguments = [
            (rows.rows_of, rows.parts_of(share), rows.rules, cut, first) for share, (cut, first) in enumerate(shares)
        ]
        return joined_digests(self._cluster.gather(self._cluster.map(_digest_of, arguments, f"compare-{name}")))


@dataclass(frozen=True)
class Described(ABC):
    """A collection whose partitions were read once: what they hold, and where queries start."""

    partitions: Sequence[PartitionDescription]
    boundaries: IntArray | None
    label: str

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(each.n_rows for each in self.partitions)

    def row_before(self, partition: int, row: int) -> tuple[int, int]:
        """Rows before a partition, and the number of a row in it, with the rows that were left out for their weight."""
        before = [
            each.n_rows if each.left_out is None else each.left_out.n_rows for each in self.partitions[:partition]
        ]
        left_out = self.partitions[partition].left_out
        return sum(before), row if left_out is None else left_out.row_before(row)

    @abstractmethod
    def row_set(self, rules: RowRules, function: RowsOf) -> RowSet:
        """The rows of all partitions in shares."""

    @abstractmethod
    def targets(self, rows: Any) -> FloatArray:
        """The targets of all rows of a set, here."""

    def require_scores(self, n_outputs: int) -> None:
        """Whether init_score has a number for each output."""
        for number, each in enumerate(self.partitions):
            if each.n_scores not in (None, n_outputs):
                raise ValueError(
                    f"init_score{self.label} must have {n_outputs} numbers a row, but partition {number} has "
                    f"{each.n_scores}."
                )


@dataclass(frozen=True)
class DescribedPartitions(Described):
    """Partitions of a Dask collection."""

    cluster: Cluster
    source: PartitionSource

    def row_set(self, rules: RowRules, function: RowsOf) -> PartitionRowSet:
        from dmlgbm.dask_backend.ingestion import PartitionRowSet

        return PartitionRowSet(rules, share_cuts(self.lengths, self.boundaries), function, self.source)

    def targets(self, rows: PartitionRowSet) -> FloatArray:
        arguments = [(rows.rows_of, rows.parts_of(share), rows.rules, cut) for share, cut in enumerate(rows.cuts)]
        return joined_targets(self.cluster.gather(self.cluster.map(_target_of, arguments, "target")))


def described_rows(
    cluster: Cluster, reader: PartitionReader, rows: GivenRows, name: str, *, needs_queries: bool
) -> DescribedPartitions:
    """Read every partition where it is, and describe it."""
    from dmlgbm.dask_backend.ingestion import PartitionSource
    from dmlgbm.dask_backend.row_inputs import partition_inputs

    label = reader.set_label
    if rows.y is None:
        raise ValueError(f"This estimator requires y{label} to be passed, but the target y{label} is None.")
    names = ("y", "sample_weight", "init_score", "qid", "position")
    vectors = {name: getattr(rows, name) for name in names}
    inputs = partition_inputs(rows.X, vectors, f"X{label}")
    source = PartitionSource(cluster, reader, inputs, name)
    partitions = _descriptions(cluster, source, reader, f"described-{name}")
    boundaries = checked_boundaries(rows, partitions, label, needs_queries)
    return DescribedPartitions(partitions, boundaries, label, cluster, source)


def _descriptions(
    cluster: Cluster, source: PartitionSource, reader: PartitionReader, name: str
) -> list[PartitionDescription]:
    """A description of every partition. Partitions are kept for the steps to come as long as there is room."""
    began = time.monotonic()
    handles = cluster.map(
        _numbered_description,
        [(number, each, reader.target) for number, each in enumerate(source.handles(range(len(source))))],
        name,
    )
    reading = _Reading(cluster, source, reader.binning, _SHARE_OF_MEMORY * cluster.memory())
    found = [description for _, description in cluster.gather_each(handles, reading.note)]
    seconds = time.monotonic() - began
    reading.finish(found)
    if source.is_large and seconds > _SECONDS_WORTH_A_WARNING:
        warnings.warn(
            f"The partitions of X{reader.set_label} do not fit into a third of the workers' memory and are computed a "
            f"second time for binning; the first took {seconds:.0f} s: use more or larger workers, or write what is "
            "slow to compute to Parquet and read it from there.",
            stacklevel=2,
        )
    return found


class _Reading:
    """Follows the reading of all partitions, and lets go of them when they become too many to be kept.

    The rows that bins are cut from are known by their numbers over all partitions, which are known when those before
    have been read. So they are taken out in the order of the rows, before a partition is let go.
    """

    def __init__(
        self, cluster: Cluster, source: PartitionSource, binning: BinningParameters | None, room: float
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._binning = binning
        self._room = room
        self._kept: dict[int, PartitionDescription] = {}  # described, and not let go
        self._n_bytes = 0
        self._next = 0  # the first partition that was not sampled
        self._first_row = 0

    def note(self, numbered: tuple[int, PartitionDescription]) -> None:
        """This partition has been read."""
        number, description = numbered
        self._kept[number] = description
        self._n_bytes += description.n_bytes
        if self._n_bytes > self._room:
            self._source.is_large = True
        if not self._source.is_large:
            return
        while self._next in self._kept:
            self._sample(self._next, self._kept[self._next])
            self._let_go(self._next)
            self._next += 1
        while self._n_bytes > self._room:
            # One that is late keeps others waiting: the last of them are read again.
            self._let_go(max(self._kept))

    def finish(self, descriptions: Sequence[PartitionDescription]) -> None:
        """All partitions have been read: sample those that had to go before those in front of them were read."""
        if self._source.is_large and self._binning is not None:
            for number in range(self._next, len(descriptions)):
                self._sample(number, descriptions[number])
                self._source.let_go(number)

    def _sample(self, number: int, description: PartitionDescription) -> None:
        first, n_rows = self._first_row, description.n_rows
        self._first_row += n_rows
        if self._binning is None or not n_rows:
            return
        from dmlgbm.dask_backend.ingestion import Candidates

        partition = self._source.handles([number])
        arguments = [(*partition, first, self._first_row, self._binning)]
        handle = self._cluster.map(candidates_of, arguments, f"candidates-{number}")[0]
        self._source.candidates[number] = Candidates(handle, RowCut(((number, 0, n_rows),)), first)

    def _let_go(self, number: int) -> None:
        self._n_bytes -= self._kept.pop(number).n_bytes
        self._source.let_go(number)


def _numbered_description(number: int, partition: Any, target: Target) -> tuple[int, PartitionDescription]:
    return number, describe(partition, target)


def local_rows(cluster: Cluster, rows: Rows, name: str) -> PartitionRowSet:
    """Rows of this process in a block for each worker, queries whole."""
    from dmlgbm.dask_backend.ingestion import PartitionRowSet, PartitionSource
    from dmlgbm.dask_backend.row_inputs import PartitionInputs

    n_blocks = max(1, min(len(cluster.workers()), rows.n_rows // _ROWS_OF_A_BLOCK))
    lengths = np.diff([rows.n_rows * block // n_blocks for block in range(n_blocks + 1)]).tolist()
    cuts = share_cuts(lengths, rows.group_starts)
    ends = np.cumsum([0, *(cut.n_rows for cut in cuts)]).tolist()
    inputs = [PartitionInputs(number, rows.slice(*ends_of), {}) for number, ends_of in enumerate(pairwise(ends))]
    whole = [RowCut(((number, 0, cut.n_rows),)) for number, cut in enumerate(cuts)]
    return PartitionRowSet(None, whole, _first, PartitionSource(cluster, _as_given, inputs, name))


def split_cuts(cuts: Sequence[RowCut], rows: IntArray) -> list[RowCut]:
    """Shares with some of their rows only, which are numbered over all shares."""
    split, first = [], 0
    for cut in cuts:
        last = first + cut.n_rows
        own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)] - first
        if len(own):
            split.append(replace(cut, rows=own))
        first = last
    return split


def checked_boundaries(
    rows: GivenRows, partitions: Sequence[PartitionDescription], label: str, needs_queries: bool
) -> IntArray | None:
    """Where queries start, if there are any; what is wrong with a partition is raised."""
    for error in (each.error for each in partitions if each.error is not None):
        raise error
    if rows.sample_weight is not None:
        require_weight(any(each.has_weight for each in partitions), f"sample_weight{label}")
    return _boundaries(rows, partitions, label) if needs_queries else None


def _boundaries(rows: GivenRows, partitions: Sequence[PartitionDescription], label: str) -> IntArray:
    if rows.qid is not None and rows.group is None:
        return merged_queries(partitions, f"qid{label}")
    sizes = rows.group.compute() if is_dask_collection(rows.group) else rows.group
    kept = [np.ones(each.n_rows, np.bool_) if each.left_out is None else each.left_out.mask() for each in partitions]
    mask = np.concatenate(kept)
    boundaries = group_boundaries(sizes, rows.qid, len(mask), (f"group{label}", f"qid{label}"))
    return kept_queries(boundaries, np.flatnonzero(mask))


def _target_of(rows_of: RowsOf, parts: list[Any], rules: RowRules, cut: RowCut) -> Any:
    return share_target(rows_of(parts, rules, cut))


def _digest_of(rows_of: RowsOf, parts: list[Any], rules: RowRules, cut: RowCut, first_row: int) -> int:
    return row_digest(rows_of(parts, rules, cut), first_row)


def joined_digests(parts: Sequence[int]) -> int:
    """The digest of shares together."""
    return sum(parts) % 2**64


def share_target(rows: Rows) -> Any:
    """Class numbers of a share, as narrow as they come."""
    target = rows.target
    return target.astype(np.uint8) if target.max(initial=0) < 256 else target


def joined_targets(parts: Sequence[Any]) -> FloatArray:
    """The targets of shares, one after the other."""
    return np.concatenate(parts).astype(np.float64)


def _as_given(number: int, X: Any, vectors: Any) -> Any:
    return X


def _first(parts: Sequence[Any], rules: Any, cut: Any) -> Any:
    return parts[0]
