"""Rows that lie in the partitions of a Spark frame, as RDDs: partitions as they were read, and shares of rows.

A share is made where its first partition is. Rows of a query that goes on in later partitions travel: the beginnings
of those partitions are collected (they are short) and given to every executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dmlgbm.gbdt.ranks.row_set import RowSet, RowsOf
from dmlgbm.spark_backend.chunks import PartitionReading, ReadFunction, chunked
from dmlgbm.spark_backend.cluster import SparkCluster
from dmlgbm.spark_backend.frames import FrameColumns

TakeRows = Callable[[Any, int], Any]
"""From (partition, number of rows) to the partition with its first rows only."""


class PartitionsOf(Protocol):
    """Where numbered partitions come from."""

    def partitions(self) -> Any:
        """An RDD of (number, partition); empty partitions are left out."""

    def release(self) -> None:
        """Nothing is read any more, unless something was lost."""


class FrameSource:
    """The partitions of a frame. Spark keeps their chunks, so that the frame is computed once."""

    def __init__(self, cluster: SparkCluster, frame: Any, columns: FrameColumns, read: ReadFunction) -> None:
        self._cluster = cluster
        self._chunks = cluster.keep(chunked(columns, frame))
        self._reading = PartitionReading(columns, read)

    def __len__(self) -> int:
        return int(self._chunks.getNumPartitions())

    def partitions(self) -> Any:
        return self._chunks.mapPartitionsWithIndex(self._reading)

    def release(self) -> None:
        self._cluster.drop(self._chunks)


class LocalSource:
    """Partitions that the driver has."""

    def __init__(self, cluster: SparkCluster, partitions: list[Any]) -> None:
        self._numbered = cluster.context.parallelize(list(enumerate(partitions)), len(partitions))

    def partitions(self) -> Any:
        return self._numbered

    def release(self) -> None:
        """The driver's memory stays as it is."""


@dataclass(frozen=True)
class FrameRowSet(RowSet):
    """Rows of a frame. `beginnings` are the first rows of partitions in which a query of another share goes on."""

    cluster: SparkCluster
    source: PartitionsOf
    beginnings: Mapping[int, Any]

    def shares(self) -> Any:
        """An RDD of (number of the share, its rows)."""
        starting = {cut.partitions[0]: (share, cut) for share, cut in enumerate(self.cuts)}
        making = self.cluster.share(ShareMaking(self.rules, starting, self.rows_of, self.beginnings))
        return self.source.partitions().flatMap(_MadeShares(making))


@dataclass(frozen=True)
class ShareMaking:
    """What an executor must know to make shares of partitions; `starting` has the share that starts in each."""

    rules: Any
    starting: Mapping[int, tuple[int, Any]]
    rows_of: RowsOf
    beginnings: Mapping[int, Any]


@dataclass(frozen=True)
class _MadeShares:
    making: Any  # broadcast

    def __call__(self, numbered: tuple[int, Any]) -> Iterator[tuple[int, Any]]:
        number, partition = numbered
        making: ShareMaking = self.making.value
        if number not in making.starting:
            return
        share, cut = making.starting[number]
        parts = [partition, *(making.beginnings[other] for other in cut.partitions[1:])]
        yield share, making.rows_of(parts, making.rules, cut)


def with_beginnings(rows: FrameRowSet, lengths: Mapping[int, int], take: TakeRows) -> FrameRowSet:
    """The row set with the first rows of partitions that continue a query: `lengths` of them."""
    if not lengths:
        return rows
    found = rows.source.partitions().flatMap(_Beginnings(lengths, take)).collect()
    return replace(rows, beginnings=dict(found))


@dataclass(frozen=True)
class _Beginnings:
    lengths: Mapping[int, int]
    take: TakeRows

    def __call__(self, numbered: tuple[int, Any]) -> Iterator[tuple[int, Any]]:
        number, partition = numbered
        if number in self.lengths:
            yield number, self.take(partition, self.lengths[number])
