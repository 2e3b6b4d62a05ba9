"""From partitions as they were read to the rows of one share: whole queries, without the rows that are set aside.

Shares keep the order of the rows. Mostly a share is a partition; where a query crosses a border, its rows go to
the share in which it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.sklearn_api.clusters.partition_schema import ColumnSchema
from dmlgbm.sklearn_api.clusters.partitions import ReadPartition, conformed
from dmlgbm.sklearn_api.rows.labels import Labels, numbers_of_known_labels
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray


@dataclass(frozen=True)
class RowRules:
    """What every worker must know to turn partitions into rows for the engine."""

    schema: ColumnSchema
    classes: Labels | None = None
    class_weights: FloatArray | None = None
    lengths: tuple[int, ...] = ()  # rows of each partition
    label: str = ""  # " of eval_set[0]"


@dataclass(frozen=True)
class RowCut:
    """The rows of one share: pieces (partition, start, stop), where queries start, and which rows are taken."""

    pieces: tuple[tuple[int, int, int], ...]
    group_starts: IntArray | None = None
    rows: IntArray | None = None  # None for all

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(partition for partition, _, _ in self.pieces)

    @property
    def n_rows(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return sum(stop - start for _, start, stop in self.pieces)


def rows_of(partitions: Sequence[ReadPartition], rules: RowRules, cut: RowCut) -> Rows:
    """The rows of a share, from the partitions that it names."""
    for partition, (number, _, _) in zip(partitions, cut.pieces, strict=True):
        if partition.n_rows != rules.lengths[number]:
            raise ValueError(
                f"Partition {number} of X{rules.label} had {rules.lengths[number]} rows when it was read first and "
                f"{partition.n_rows} when it was read again: persist the collection, so that it stays the same."
            )
    parts = [
        _in_engine_types(partition, rules, start, stop)
        for partition, (_, start, stop) in zip(partitions, cut.pieces, strict=True)
    ]
    whole = replace(Rows.join(parts), group_starts=cut.group_starts)
    return whole if cut.rows is None else whole.take(cut.rows)


def share_cuts(lengths: Sequence[int], boundaries: IntArray | None = None) -> list[RowCut]:
    """Shares of the rows of all partitions, none empty; with `boundaries` no query is torn."""
    borders = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ends = borders if boundaries is None else boundaries[np.searchsorted(boundaries, borders)]
    cuts = []
    for start, stop in pairwise(ends.tolist()):
        if start == stop:
            continue
        starts = None
        if boundaries is not None:
            starts = boundaries[np.searchsorted(boundaries, start) : np.searchsorted(boundaries, stop) + 1] - start
        cuts.append(RowCut(_pieces(borders, start, stop), starts))
    return cuts


def place_of_row(cuts: Sequence[RowCut], row: int) -> tuple[int, int]:
    """The partition of a row that is numbered over all shares, and its number there."""
    for cut in cuts:
        if row < cut.n_rows:
            row = row if cut.rows is None else int(cut.rows[row])
            for partition, start, stop in cut.pieces:
                if row < stop - start:
                    return partition, start + row
                row -= stop - start
        row -= cut.n_rows
    raise IndexError("no share has this row")


def _pieces(borders: IntArray, start: int, stop: int) -> tuple[tuple[int, int, int], ...]:
    """The parts of partitions that rows start..stop are in."""
    first = int(np.searchsorted(borders, start, "right")) - 1
    last = int(np.searchsorted(borders, stop))
    return tuple(
        (
            partition,
            max(start, int(borders[partition])) - int(borders[partition]),
            min(stop, int(borders[partition + 1])) - int(borders[partition]),
        )
        for partition in range(first, last)
        if borders[partition] < borders[partition + 1]
    )


def _in_engine_types(partition: ReadPartition, rules: RowRules, start: int, stop: int) -> Rows:
    """Some rows of a partition, with class numbers, class weights, and columns as they are in all partitions."""
    rows = partition.rows
    assert rows is not None
    target, weight = rows.target, rows.weight
    if rules.classes is not None:
        target = numbers_of_known_labels(target, len(target), rules.classes, f"y{rules.label}")
    if rules.class_weights is not None:
        of_row = rules.class_weights[target.astype(np.intp)]
        weight = of_row if weight is None else weight * of_row
    table = conformed(rows.table, rules.schema.columns, rules.schema.dtypes)
    whole = replace(rows, table=table, target=target, weight=weight)
    # Of a sample there are fewer rows than the partition has: `stop` counts those that it had.
    return whole if (start, stop) == (0, partition.n_rows) else whole.slice(start, stop)
