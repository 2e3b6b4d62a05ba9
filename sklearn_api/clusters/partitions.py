"""One partition of a Dask collection, read on its worker: checked as a whole table would be, in the engine's types.

A partition knows its own categories and labels only. It is described in a small record, the client puts the records
of all partitions together (`partition_schema.py`), and `conformed` then numbers categories as the whole table does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.bin_sample import candidate_rows
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, NumericColumn, SparseColumn, Table
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.sklearn_api.rows.labels import Labels, distinct_labels, label_vector
from dmlgbm.sklearn_api.rows.targets import (
    FloatArray,
    nonnegative_weights,
    numeric_target,
    one_for_each_row,
    position_vector,
    score_matrix,
    survival_times,
)
from dmlgbm.sklearn_api.rows.weightless_rows import kept_rows, with_used_categories
from dmlgbm.sklearn_api.tables import listed_categories, table_from
from dmlgbm.sklearn_api.tables.matching import table_like
from dmlgbm.sklearn_api.tables.names import CategoricalFeature

Target = Literal["classes", "numbers", "times"]


@dataclass(frozen=True)
class LeftOut:
    """Rows that were left out for their weight, which is zero."""

    kept: npt.NDArray[np.uint8]  # a bit for every row that there was
    n_rows: int  # that there were
    target: npt.NDArray[Any]

    def row_before(self, row: int) -> int:
        """The number that a row had before some were left out."""
        return int(np.flatnonzero(self.mask())[row])

    def mask(self) -> npt.NDArray[np.bool_]:
        """Which rows were kept."""
        return np.unpackbits(self.kept, count=self.n_rows).astype(np.bool_)


@dataclass(frozen=True)
class ReadPartition:
    """A partition in this process; `rows` is None where there are none.

    Where classes are to be learnt, the target holds labels still: their numbers are known when all partitions are.
    """

    n_rows: int
    names: tuple[str, ...] | None
    rows: Rows | None
    fixed_order: frozenset[int] = frozenset()  # columns whose categories have an order of their own
    query_ids: npt.NDArray[Any] | None = None
    left_out: LeftOut | None = None  # rows that weigh nothing; the other fields are without them
    error: Exception | None = None  # what is wrong with it, for the client to raise


@dataclass(frozen=True)
class ColumnDescription:
    """What the client must know of a column to number its categories; `dtype` is numpy's."""

    dtype: str
    categories: tuple[Any, ...] | None = None
    fixed_order: bool = False
    sparse: bool = False
    all_missing: bool = False


@dataclass(frozen=True)
class PartitionDescription:
    """What the client must know of a partition."""

    n_rows: int
    n_bytes: int
    names: tuple[str, ...] | None
    columns: tuple[ColumnDescription, ...] = ()
    labels: Labels | None = None
    label_counts: npt.NDArray[np.int64] | None = None
    has_weight: bool = True  # some row weighs more than nothing
    n_scores: int | None = None  # outputs in init_score
    query_ids: list[Any] | None = None  # of the queries in the order of the rows
    query_sizes: npt.NDArray[np.int64] | None = None
    left_out: LeftOut | None = None
    error: Exception | None = None


@dataclass(frozen=True)
class PartitionReader:
    """Reads partitions for one fit: `fitted` are the columns to match, where these are known already."""

    target: Target
    estimator_name: str
    categorical_feature: CategoricalFeature = "auto"
    fitted: Columns | None = None
    handle_unknown: Literal["missing", "error"] = "missing"
    set_label: str = ""  # " of eval_set[0]"
    feature_names: tuple[str, ...] | None = None  # what to call the columns of arrays
    binning: BinningParameters | None = None  # of the sample to take while partitions are at hand; None for none

    def __call__(self, number: int, X: Any, vectors: Mapping[str, Any]) -> ReadPartition:
        """The partition of X with this number and its pieces of y and the other arguments by row."""
        n_rows = X.shape[0]  # sparse matrices have no length
        error: Exception | None = self._wrong_length(number, n_rows, vectors)
        if n_rows == 0 or error is not None:
            return ReadPartition(0, self.feature_names or _names_of(X), None, error=error)
        try:
            return self._read(X, n_rows, vectors)
        except (TypeError, ValueError) as found:
            # Returned and not raised: of several errors the client shows the first in the order of the rows.
            kind = ValueError if isinstance(found, ValueError) else TypeError
            told = kind(f"In partition {number}{self.set_label} (rows counted from its start): {found}")
            return ReadPartition(0, _names_of(X), None, error=told)

    def _read(self, X: Any, n_rows: int, vectors: Mapping[str, Any]) -> ReadPartition:
        table_name = f"X{self.set_label}"
        if self.fitted is None:
            table = table_from(
                X, categorical_feature=self.categorical_feature, name=table_name, names=self.feature_names
            )
        else:
            table = table_like(X, self.fitted, self.handle_unknown, estimator_name=self.estimator_name, name=table_name)
        checked = {"classes": label_vector, "numbers": numeric_target, "times": survival_times}[self.target]
        given = (vectors.get(name) for name in ("sample_weight", "init_score", "qid", "position"))
        weight, scores, ids, position = given
        rows = Rows(
            table=table,
            target=checked(vectors["y"], n_rows, f"y{self.set_label}"),
            weight=None if weight is None else nonnegative_weights(weight, n_rows, f"sample_weight{self.set_label}"),
            init_score=None if scores is None else _scores(scores, n_rows, f"init_score{self.set_label}"),
            position=position_vector(position, n_rows),
        )
        read = ReadPartition(
            n_rows=n_rows,
            names=table.names,
            rows=rows,
            fixed_order=listed_categories(X),
            query_ids=None if ids is None else one_for_each_row(ids, n_rows, f"qid{self.set_label}"),
        )
        # Rows to watch stay: they weigh nothing in a metric, and nothing else is made of them.
        return read if self.set_label else _weighing_rows(read, read.fixed_order if self.fitted is None else None)

    def _wrong_length(self, number: int, n_rows: int, vectors: Mapping[str, Any]) -> ValueError | None:
        for name, values in vectors.items():
            if np.ndim(values) and len(values) != n_rows:
                return ValueError(
                    f"Partition {number} of X{self.set_label} has {n_rows} rows, but that of {name} has {len(values)}: "
                    f"repartition them so that the rows of each partition of X and {name} are the same."
                )
        return None


def _weighing_rows(partition: ReadPartition, listed: frozenset[int] | None) -> ReadPartition:
    """The rows of a partition that weigh something; none at all if there are none."""
    rows = partition.rows
    kept = None if rows is None else kept_rows(rows.weight)
    if rows is None or rows.weight is None or kept is None:
        return partition
    mask = rows.weight > 0
    left_out = LeftOut(np.packbits(mask), partition.n_rows, rows.target[~mask])
    if len(kept) == 0:
        return ReadPartition(0, partition.names, None, left_out=left_out)
    left = rows.take(kept)
    return replace(
        partition,
        n_rows=len(kept),
        rows=replace(left, table=with_used_categories(left.table, listed)),
        query_ids=None if partition.query_ids is None else partition.query_ids[kept],
        left_out=left_out,
    )


def describe(partition: ReadPartition, target: Target) -> PartitionDescription:
    """The small record of a partition."""
    labels = counts = None
    rows, left_out = partition.rows, partition.left_out
    if target == "classes" and (left_out is not None or partition.n_rows):
        # The classes of all rows, but the number of those that weigh something.
        targets = [each.target for each in (rows, left_out) if each is not None]
        labels, numbers = distinct_labels(targets[0] if len(targets) == 1 else np.concatenate(targets))
        counts = np.bincount(numbers[: partition.n_rows], minlength=len(labels))
    if left_out is not None:
        left_out = replace(left_out, target=left_out.target[:0])
    if rows is None:
        return PartitionDescription(
            0, 0, partition.names, labels=labels, label_counts=counts, has_weight=False, left_out=left_out,
            error=partition.error,
        )  # fmt: skip
    ids, sizes = (None, None) if partition.query_ids is None else _queries(partition.query_ids)
    columns = rows.table.columns
    return PartitionDescription(
        n_rows=partition.n_rows,
        n_bytes=sum(_bytes_of(column) for column in columns),
        names=partition.names,
        columns=tuple(_described(column, feature in partition.fixed_order) for feature, column in enumerate(columns)),
        labels=labels,
        label_counts=counts,
        has_weight=rows.weight is None or bool(rows.weight.any()),
        n_scores=None if rows.init_score is None else len(rows.init_score),
        query_ids=ids,
        query_sizes=sizes,
        left_out=left_out,
    )


def candidates_of(
    partition: ReadPartition, first_row: int, n_rows_so_far: int, binning: BinningParameters
) -> tuple[ReadPartition, npt.NDArray[np.uint32]]:
    """The partition with the rows only that bins may be cut from (it still says how many it had), and their numbers."""
    if partition.rows is None:  # read again, and not what it was: `rows_of` is going to say so
        return partition, np.zeros(0, np.uint32)
    rows = candidate_rows(partition.n_rows, first_row, n_rows_so_far, binning)
    return replace(partition, rows=partition.rows.take(rows), query_ids=None), rows


def conformed(table: Table, schema: Columns, dtypes: tuple[str | None, ...]) -> Table:
    """The table with numbers in the common types and categories numbered as in the whole collection."""
    columns = tuple(
        _conformed_number(column, dtype) if known is None else _conformed_category(column)
        for column, known, dtype in zip(table.columns, schema.categories, dtypes, strict=True)
    )
    return schema.encode(Table(columns, table.n_rows, schema.names), "missing")


def _conformed_number(column: Column, dtype: str | None) -> Column:
    if dtype is None or isinstance(column, CategoricalColumn) or column.values.dtype == dtype:
        return column
    if isinstance(column, SparseColumn):
        return SparseColumn(column.rows, column.values.astype(dtype), column.n_rows)
    return NumericColumn(column.values.astype(dtype), column.missing)


def _conformed_category(column: Column) -> CategoricalColumn:
    """A column without any value has the type of numbers where it is read alone."""
    if isinstance(column, CategoricalColumn):
        return column
    return CategoricalColumn(np.full(len(column), -1, np.int32), ())


def _described(column: Column, fixed_order: bool) -> ColumnDescription:
    if isinstance(column, CategoricalColumn):
        return ColumnDescription("category", column.categories, fixed_order)
    is_sparse = isinstance(column, SparseColumn)
    return ColumnDescription(
        column.values.dtype.str, sparse=is_sparse, all_missing=not is_sparse and _is_missing(column)
    )


def _is_missing(column: Column) -> bool:
    if not isinstance(column, NumericColumn):
        return False
    values = column.values
    if column.missing is not None and column.missing.all():
        return True
    # One present value, nearly always among the first, is enough to know.
    if values.dtype.kind != "f" or not np.isnan(values[:16]).all():
        return False
    return bool(np.isnan(values).all())


def _bytes_of(column: Column) -> int:
    if isinstance(column, CategoricalColumn):
        return column.codes.nbytes
    return column.values.nbytes + (column.rows.nbytes if isinstance(column, SparseColumn) else 0)


def _names_of(X: Any) -> tuple[str, ...] | None:
    names = tuple(getattr(X, "columns", ()))
    return tuple(map(str, names)) if names and all(isinstance(name, str) for name in names) else None


def _scores(scores: Any, n_rows: int, name: str) -> FloatArray | None:
    """Scores [output, row] of however many outputs there are; the client compares the number with the objective's."""
    values = np.asarray(scores)
    return score_matrix(values, n_rows, 1 if values.ndim < 2 else values.shape[1], name)


def _queries(ids: npt.NDArray[Any]) -> tuple[list[Any], npt.NDArray[np.int64]]:
    starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
    return ids[starts].tolist(), np.diff(np.append(starts, len(ids))).astype(np.int64)
