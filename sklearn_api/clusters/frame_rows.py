"""Partitions of a Spark frame, described, as sets of rows that Spark's tasks can bin or ranks can watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.system.cluster_types import is_spark_frame
from dmlgbm.sklearn_api.clusters.collection_rows import (
    Described,
    checked_boundaries,
    joined_digests,
    joined_targets,
    share_target,
)
from dmlgbm.sklearn_api.clusters.frame_tasks import Describing, Digesting, as_given, first_rows
from dmlgbm.sklearn_api.clusters.partition_rows import RowCut, RowRules, share_cuts
from dmlgbm.sklearn_api.clusters.partitions import PartitionDescription, PartitionReader
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.targets import FloatArray
from dmlgbm.spark_backend.cluster import SparkCluster
from dmlgbm.spark_backend.frames import FrameColumns, all_but, columns_of_model
from dmlgbm.spark_backend.row_sets import FrameRowSet, FrameSource, LocalSource, with_beginnings
from dmlgbm.spark_backend.train import train_on_spark

if TYPE_CHECKING:
    from dmlgbm.gbdt.ranks.row_set import RowsOf


class SparkPlace:
    """The executors of the session of a frame: where partitions are read, and where ranks train on them."""

    def __init__(self, X: Any, fit_id: str) -> None:
        self._cluster = SparkCluster(X, fit_id)
        self.train = partial(train_on_spark, self._cluster)

    def is_collection(self, X: Any) -> bool:
        return is_spark_frame(X)

    def described(self, reader: PartitionReader, rows: GivenRows, name: str, needs_queries: bool) -> DescribedFrame:
        label = reader.set_label
        if rows.y is None:
            raise ValueError(f"This estimator requires y{label}, the name of its column, but y{label} is None.")
        rows = _with_query_column(rows)
        source = FrameSource(self._cluster, rows.X, _columns(reader, rows, f"X{label}"), reader)
        partitions = _descriptions(source, reader)
        boundaries = checked_boundaries(rows, partitions, label, needs_queries)
        return DescribedFrame(partitions, boundaries, label, self._cluster, source)

    def local_rows(self, rows: Rows, name: str) -> FrameRowSet:
        cut = RowCut(((0, 0, rows.n_rows),))
        return FrameRowSet(None, [cut], as_given, self._cluster, LocalSource(self._cluster, [rows]), {})

    def first_share(self, rows: FrameRowSet) -> Rows:
        return replace(rows, cuts=rows.cuts[:1]).shares().values().collect()[0]

    def digest(self, rows: FrameRowSet, name: str) -> int:
        return joined_digests(rows.shares().map(Digesting(tuple(rows.first_rows))).collect())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.close()


@dataclass(frozen=True)
class DescribedFrame(Described):
    """Partitions of a Spark frame."""

    cluster: SparkCluster
    source: FrameSource

    def row_set(self, rules: RowRules, function: RowsOf) -> FrameRowSet:
        cuts = share_cuts(self.lengths, self.boundaries)
        rows = FrameRowSet(rules, cuts, function, self.cluster, self.source, {})
        continued = {number: stop for cut in cuts for number, _, stop in cut.pieces[1:]}
        return with_beginnings(rows, continued, first_rows)

    def targets(self, rows: FrameRowSet) -> FloatArray:
        found = rows.shares().mapValues(share_target).collect()
        return joined_targets([target for _, target in sorted(found, key=lambda numbered: numbered[0])])


def _with_query_column(rows: GivenRows) -> GivenRows:
    """`group` may name the column of query ids, as it does in other libraries on Spark."""
    if isinstance(rows.group, str) and rows.qid is None:
        return replace(rows, group=None, qid=rows.group)
    return rows


def _columns(reader: PartitionReader, rows: GivenRows, name: str) -> FrameColumns:
    vectors: Mapping[str, Any] = {
        purpose: column
        for purpose, column in (
            ("y", rows.y),
            ("sample_weight", rows.sample_weight),
            ("init_score", rows.init_score),
            ("qid", rows.qid),
            ("position", rows.position),
        )
        if column is not None
    }
    if reader.fitted is None:
        return all_but(rows.X, vectors, name)
    return columns_of_model(rows.X, reader.fitted.names, reader.fitted.n_features, vectors, name)


def _descriptions(source: FrameSource, reader: PartitionReader) -> list[PartitionDescription]:
    """A description of every partition; Spark says nothing of empty ones."""
    found = dict(source.partitions().mapValues(Describing(reader.target)).collect())
    names = next((each.names for each in found.values() if each.n_rows), None)
    empty = PartitionDescription(0, 0, names, has_weight=False)
    return [found.get(number, empty) for number in range(len(source))]
