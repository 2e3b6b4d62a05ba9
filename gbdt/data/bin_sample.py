"""The sample of rows that decides how a table is binned: where bins are cut, and what each feature's usual bin is.

A row is in the sample if a hash of the seed and its global row number says so, whoever holds it and however many rows
they hold: the samples of all parts of a table, joined in the order of their rows, are the sample of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.feature_bins import CategoricalBins, FeatureBins, cut_numeric
from dmlgbm.gbdt.data.row_binning import bins_of_rows
from dmlgbm.gbdt.data.storage_plan import SampledFeature
from dmlgbm.gbdt.data.table import CategoricalColumn, Column, Table, joined_columns
from dmlgbm.gbdt.kernels.binning import chosen_rows
from dmlgbm.gbdt.parameters import BinningParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers

# Rows from which the storage plan guesses each feature's usual bin; every row is checked against it later.
ROWS_FOR_PLAN = 50_000
_SUM_BITS = 53

RowChoice = npt.NDArray[np.uint32] | slice
"""Row numbers within a table, ascending, or all of them."""


def sampled_rows(
    n_rows: int, sample_rows: int, seed: int, first_row_number: int = 0, n_total_rows: int | None = None
) -> RowChoice:
    """The rows that a sample of about `sample_rows` of `n_total_rows` contains, of the `n_rows` from the first on."""
    total = n_rows if n_total_rows is None else n_total_rows
    if total <= sample_rows:
        return slice(None)
    return chosen_rows(first_row_number, n_rows, random_key(seed, Purpose.BIN_SAMPLE), sample_rows / total)


def without_idle_seed(parameters: BinningParameters, n_rows: int) -> BinningParameters:
    """The same parameters for all seeds where no row is drawn by the seed: tables binned by them are the same."""
    return replace(parameters, seed=0) if n_rows <= min(parameters.sample_rows, ROWS_FOR_PLAN) else parameters


def cut(
    column: Column,
    sample: RowChoice,
    parameters: BinningParameters,
    repeats: npt.NDArray[np.int64] | None = None,
) -> FeatureBins:
    """The bins of a column; the sampled rows count as often as `repeats` says."""
    if isinstance(column, CategoricalColumn):
        return CategoricalBins(column.categories)
    return cut_numeric(column, sample, parameters.max_bin, parameters.min_data_in_bin, repeats)


def repeats_of(weight: npt.NDArray[np.float64] | None, sample: RowChoice) -> npt.NDArray[np.int64] | None:
    """How often each sampled row counts, in a unit that is a power of two; None where all rows count alike.

    Sums of all rows stay below 2^53: bins are cut by quotients of them, which a power of two does not change. So rows
    of whole weights make the bins that as many equal rows would make.
    """
    if weight is None:
        return None
    own = weight[sample]
    if len(own) == 0 or (own == own[0]).all():
        return None
    _, exponent = np.frexp(own.max())
    units = np.rint(np.ldexp(own, _SUM_BITS - len(own).bit_length() - exponent))
    return np.maximum(units, own > 0.0).astype(np.int64)


def sampled_feature(column: Column, bins: FeatureBins, sample: RowChoice) -> SampledFeature:
    """What the storage plan has to know of a column."""
    sampled = column if isinstance(sample, slice) else column.take(sample)
    values = np.empty(len(sampled), np.uint8 if bins.n_bins <= 256 else np.uint16)
    bins_of_rows(sampled, bins, 0, len(values), values)
    counts = np.bincount(values, minlength=bins.n_bins)
    usual = int(counts.argmax())
    has_missing = bool(counts[bins.missing_bin])
    return SampledFeature(usual, np.packbits(values != usual), 1.0 - counts[usual] / len(values), has_missing)


@dataclass(frozen=True)
class SampledRows:
    """The sampled rows of one part of a table.

    Bins are cut from the rows of `cutting`, storage is planned from those of `planning`: one of the two is all rows.
    """

    table: Table
    cutting: npt.NDArray[np.bool_]
    planning: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float64] | None = None

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def of_columns(self, first: int, last: int) -> SampledRows:
        """The same rows of some columns only, so that wide tables can be summarised block by block."""
        names = None if self.table.names is None else self.table.names[first:last]
        table = Table(self.table.columns[first:last], self.table.n_rows, names)
        return SampledRows(table, self.cutting, self.planning, self.weight)


@dataclass(frozen=True)
class ColumnSummary:
    """All that has to be known of a column to bin it."""

    bins: FeatureBins
    sampled: SampledFeature

    @property
    def may_split(self) -> bool:
        """False for one value bin and the missing bin, and never a missing value: nothing to split."""
        return self.bins.n_bins > 2 or self.sampled.share_away > 0.0


def sample_rows(
    table: Table,
    *,
    first_row_number: int,
    n_total_rows: int,
    parameters: BinningParameters,
    weight: npt.NDArray[np.float64] | None = None,
) -> SampledRows:
    """The rows of a part of a table that the sample of the whole table contains."""
    everything = np.arange(table.n_rows, dtype=np.uint32)
    return sample_candidates(
        table,
        everything,
        table.n_rows,
        first_row_number=first_row_number,
        n_total_rows=n_total_rows,
        parameters=parameters,
        weight=weight,
    )


def candidate_rows(
    n_rows: int, first_row_number: int, n_rows_so_far: int, parameters: BinningParameters
) -> npt.NDArray[np.uint32]:
    """Rows of a part of a table that its sample may contain, where the table has at least `n_rows_so_far` rows."""
    cutting, planning = _masks(n_rows, first_row_number, n_rows_so_far, parameters)
    return np.flatnonzero(cutting | planning).astype(np.uint32)


def sample_candidates(
    table: Table,
    rows: npt.NDArray[np.uint32],
    n_rows: int,
    *,
    first_row_number: int,
    n_total_rows: int,
    parameters: BinningParameters,
    weight: npt.NDArray[np.float64] | None = None,
) -> SampledRows:
    """What `sample_rows` gives for a part of `n_rows`, from those of its rows that were candidates."""
    cutting, planning = (mask[rows] for mask in _masks(n_rows, first_row_number, n_total_rows, parameters))
    kept = np.flatnonzero(cutting | planning).astype(np.uint32)
    own_weight = None if weight is None else weight[kept]
    return SampledRows(table.take(kept), cutting[kept], planning[kept], own_weight)


def summarise_columns(
    parts: Sequence[SampledRows], parameters: BinningParameters, workers: Workers | None = None
) -> list[ColumnSummary]:
    """Cut the bins of every column from the samples of all parts, which come in the order of their rows."""
    cutting = _chosen(np.concatenate([part.cutting for part in parts]))
    planning = _chosen(np.concatenate([part.planning for part in parts]))
    weights = [part.weight for part in parts if part.weight is not None]
    repeats = repeats_of(np.concatenate(weights) if weights else None, cutting)

    def summarise(feature: int) -> ColumnSummary:
        column = joined_columns([part.table.columns[feature] for part in parts], parts[0].table.name_of(feature))
        bins = cut(column, cutting, parameters, repeats)
        return ColumnSummary(bins, sampled_feature(column, bins, planning))

    return (workers or Workers(1)).run_each(summarise, range(parts[0].table.n_features))


def _masks(
    n_rows: int, first_row_number: int, n_total_rows: int, parameters: BinningParameters
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows bins are cut from, and which ones storage is planned from."""
    seed = parameters.seed
    cutting = sampled_rows(n_rows, parameters.sample_rows, seed, first_row_number, n_total_rows)
    planning = sampled_rows(n_rows, ROWS_FOR_PLAN, seed, first_row_number, n_total_rows)
    return _mask(cutting, n_rows), _mask(planning, n_rows)


def _mask(choice: RowChoice, n_rows: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(n_rows, bool)
    mask[choice] = True
    return mask


def _chosen(mask: npt.NDArray[np.bool_]) -> RowChoice:
    return slice(None) if mask.all() else np.flatnonzero(mask).astype(np.uint32)
