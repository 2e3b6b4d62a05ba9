"""What Spark's Python workers do with partitions of a frame. It loads no scikit-learn: they start sooner without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.sklearn_api.clusters.partitions import PartitionDescription, ReadPartition, Target, describe
from dmlgbm.sklearn_api.watching.stopping import row_digest


@dataclass(frozen=True)
class Describing:
    """Describes partitions for a kind of target."""

    target: Target

    def __call__(self, partition: ReadPartition) -> PartitionDescription:
        return describe(partition, self.target)


@dataclass(frozen=True)
class Digesting:
    """The digest of a numbered share; `firsts` are the numbers of the first rows of all shares."""

    firsts: tuple[int, ...]

    def __call__(self, numbered: tuple[int, Rows]) -> int:
        share, rows = numbered
        return row_digest(rows, self.firsts[share])


def first_rows(partition: ReadPartition, n_rows: int) -> ReadPartition:
    """The partition with its first rows only; it still says how many it had."""
    assert partition.rows is not None
    return replace(partition, rows=partition.rows.slice(0, n_rows), query_ids=None)


def as_given(parts: Sequence[Any], rules: Any, cut: Any) -> Any:
    """Rows that are in the engine's types already."""
    return parts[0]
