"""How the values of one feature become bins, and how a split on bins is told in values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.table import CategoricalColumn, Category, NumericColumn, SparseColumn
from dmlgbm.gbdt.kernels.binning import count_whole_numbers, cut_points, look_bins_up, search_bins, take_present

_SMALL_INTEGERS = ("b1", "i1", "u1", "i2", "u2")
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
# Tables of whole numbers stay in the second cache level.
_MOST_WHOLE_NUMBERS = 65_536
MAX_CATEGORIES = 65_000
"""Categories beyond this many count as missing; bins are stored in at most two bytes."""


@dataclass(frozen=True)
class NumericBins:
    """Bin b holds the values above cut b - 1 and up to cut b; the last bin is for missing values."""

    cuts: npt.NDArray[np.float64]
    _padded: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _tables: dict[tuple[str, str], npt.NDArray[np.generic]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        padded_size = 255
        while padded_size < len(self.cuts):
            padded_size = 2 * padded_size + 1
        padded = np.full(padded_size, np.inf)
        padded[: len(self.cuts)] = self.cuts
        object.__setattr__(self, "_padded", padded)

    @property
    def missing_bin(self) -> int:
        return len(self.cuts) + 1

    @property
    def n_bins(self) -> int:
        return len(self.cuts) + 2

    def bins_of(self, column: NumericColumn, start: int, stop: int, out: npt.NDArray[np.generic]) -> None:
        """Write the bins of rows start..stop."""
        values = column.values[start:stop]
        if values.dtype.str[1:] in _SMALL_INTEGERS:
            patterns = values.view(f"u{values.dtype.itemsize}")
            np.take(self._bins_by_pattern(values.dtype, out.dtype), patterns, out=out, mode="clip")
        else:
            self.bins_of_floats(values, out)
        if column.missing is not None:
            out[column.missing[start:stop]] = self.missing_bin

    def bins_of_floats(self, values: npt.NDArray[np.generic], out: npt.NDArray[np.generic]) -> None:
        lowest, table = self._bins_of_whole_numbers
        if len(table):
            read = _for_reading(values if values.dtype == np.float64 else values.astype(np.float64))
            if look_bins_up(read, lowest, table, self.missing_bin, out):
                return
        search_bins(values.astype(np.float64), self._padded, self.missing_bin, out)

    @cached_property
    def _bins_of_whole_numbers(self) -> tuple[float, npt.NDArray[np.uint16]]:
        """The lowest of some whole numbers, and their bins; none unless the cuts look like cuts between whole numbers.

        To look a bin up takes a quarter of the time of searching it.
        """
        none = 0.0, np.empty(0, np.uint16)
        if len(self.cuts) == 0 or np.abs(self.cuts[[0, -1]]).max() > _MOST_WHOLE_NUMBERS:
            return none
        lowest, highest = np.floor(self.cuts[0]), np.ceil(self.cuts[-1]) + 1.0
        if highest - lowest > _MOST_WHOLE_NUMBERS or (2.0 * self.cuts != np.floor(2.0 * self.cuts)).any():
            return none
        firsts = np.concatenate(([0.0], np.floor(self.cuts) - lowest + 1.0, [highest - lowest + 1.0]))
        lengths = np.diff(firsts).astype(np.int64)
        return float(lowest), np.repeat(np.arange(len(lengths), dtype=np.uint16), lengths)

    def _bins_by_pattern(self, dtype: np.dtype[np.generic], bin_dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """The bin of every value that one or two bytes can hold, in the order of their unsigned patterns."""
        known = self._tables.get((dtype.str, bin_dtype.str))
        if known is not None:
            return known
        patterns = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
        numbers = (patterns != 0) if dtype.kind == "b" else patterns.view(dtype)
        bins = np.empty(len(patterns), bin_dtype)
        self.bins_of_floats(numbers.astype(np.float64), bins)
        self._tables[dtype.str, bin_dtype.str] = bins
        return bins


@dataclass(frozen=True)
class CategoricalBins:
    """One bin a category, in the order of the categories; the last bin is for missing and unknown ones."""

    categories: tuple[Category, ...]

    @property
    def missing_bin(self) -> int:
        return min(len(self.categories), MAX_CATEGORIES)

    @property
    def n_bins(self) -> int:
        return self.missing_bin + 1

    def bins_of(self, column: CategoricalColumn, start: int, stop: int, out: npt.NDArray[np.generic]) -> None:
        codes = column.codes[start:stop]
        known = (codes >= 0) & (codes < self.missing_bin)
        out[:] = np.where(known, codes, np.int32(self.missing_bin))


FeatureBins = NumericBins | CategoricalBins


def cut_numeric(
    column: NumericColumn | SparseColumn,
    sample: npt.NDArray[np.uint32] | slice,
    max_bin: int,
    min_data_in_bin: int = 1,
    repeats: npt.NDArray[np.int64] | None = None,
) -> NumericBins:
    """Quantile bins from the sampled rows, each of at least so many; frequent values get bins of their own.

    `repeats` says how often each sampled row counts, in any unit.
    """
    values, counts = _distinct_values(column, sample, repeats)
    if len(values) == 0:
        return NumericBins(np.zeros(0))
    cuts = cut_points(values, counts, max_bin)
    if min_data_in_bin <= 1:
        return NumericBins(cuts)
    # What a bin must hold is rows, however much they weigh.
    if repeats is not None:
        values, counts = _distinct_values(column, sample, None)
    return NumericBins(_cuts_of_full_bins(cuts, values, counts, min_data_in_bin))


def _distinct_values(
    column: NumericColumn | SparseColumn,
    sample: npt.NDArray[np.uint32] | slice,
    repeats: npt.NDArray[np.int64] | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The values of the sampled rows, ascending, and how often each counts."""
    if isinstance(column, SparseColumn):
        return _distinct_of_sparse(column, sample, repeats)
    if column.values.dtype in _FLOATS and column.missing is None and repeats is None:
        return _distinct_floats(column.values, sample)
    sampled = column.values[sample]
    if column.missing is not None:
        present = ~column.missing[sample]
        sampled, repeats = sampled[present], None if repeats is None else repeats[present]
    return _distinct(sampled) if repeats is None else _distinct_repeated(sampled, repeats)


def _cuts_of_full_bins(
    cuts: npt.NDArray[np.float64], values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], least: int
) -> npt.NDArray[np.float64]:
    """The cuts without those that close a bin of fewer than `least` rows, counted from below."""
    rows_below = np.cumsum(counts)[np.searchsorted(values, cuts, "right") - 1]
    kept: list[int] = []
    closed, n_rows = 0, int(counts.sum())
    for position, below in enumerate(rows_below.tolist()):
        if below - closed >= least and n_rows - below >= least:
            kept.append(position)
            closed = below
    return cuts[kept]


def _distinct_floats(
    values: npt.NDArray[np.generic], sample: npt.NDArray[np.uint32] | slice
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """As `_distinct`, of the sampled rows: whole numbers are counted, which takes a fraction of the time of sorting."""
    every_row = isinstance(sample, slice)
    rows = np.empty(0, np.uint32) if isinstance(sample, slice) else sample
    taken, extent = np.empty(len(values) if every_row else len(rows), values.dtype), np.array([1.0, 0.0])
    taken = taken[: take_present(_for_reading(values), rows, every_row, taken, extent)]
    lowest, highest = extent.tolist()
    if not 0.0 <= highest - lowest < _MOST_WHOLE_NUMBERS:
        return _distinct(taken)
    counts = np.zeros(int(highest - lowest) + 1, np.int64)
    count_whole_numbers(taken, lowest, counts)
    present = np.flatnonzero(counts)
    return present + lowest, counts[present]


def _distinct(sampled: npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The distinct values that are not NaN, ascending, and how often each occurs."""
    if sampled.dtype.str[1:] in _SMALL_INTEGERS:
        lowest = int(sampled.min()) if len(sampled) else 0
        counts = np.bincount(sampled.astype(np.int64) - lowest)
        present = np.flatnonzero(counts)
        return (present + lowest).astype(np.float64), counts[present].astype(np.int64)
    ordered = np.sort(sampled)
    if ordered.dtype.kind == "f":
        # NaN sorts last; adding zero turns -0.0 into 0.0.
        ordered = ordered[: np.searchsorted(ordered, np.inf, "right")] + ordered.dtype.type(0)
    if len(ordered) == 0:
        return np.zeros(0), np.zeros(0, np.int64)
    starts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    values = ordered[starts].astype(np.float64)
    counts = np.diff(np.append(starts, len(ordered)))
    if np.all(values[1:] > values[:-1]):
        return values, counts
    # Distinct 64-bit integers may be one float64.
    merged, index = np.unique(values, return_inverse=True)
    return merged, np.bincount(index, counts).astype(np.int64)


def _distinct_repeated(
    sampled: npt.NDArray[np.generic], repeats: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """As `_distinct`, of rows that count several times."""
    values = sampled.astype(np.float64)
    present = ~np.isnan(values)
    # Adding zero turns -0.0 into 0.0.
    distinct, positions = np.unique(values[present] + 0.0, return_inverse=True)
    counts = np.zeros(len(distinct), np.int64)
    np.add.at(counts, positions, repeats[present])
    counted = counts > 0
    return distinct[counted], counts[counted]


def _distinct_of_sparse(
    column: SparseColumn, sample: npt.NDArray[np.uint32] | slice, repeats: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    if repeats is not None:
        rows = np.arange(column.n_rows, dtype=np.uint32)[sample]
        _, positions, own = np.intersect1d(rows, column.rows, assume_unique=True, return_indices=True)
        everything = np.zeros(len(rows), column.values.dtype)
        everything[positions] = column.values[own]
        return _distinct_repeated(everything, repeats)
    if isinstance(sample, slice):
        stored, n_sampled = column.values, column.n_rows
    else:
        stored, n_sampled = column.values[np.isin(column.rows, sample, assume_unique=True)], len(sample)
    values, counts = _distinct(np.append(stored, np.zeros(1, stored.dtype)))
    counts[np.searchsorted(values, 0.0)] += n_sampled - len(stored) - 1
    kept = counts > 0
    return values[kept], counts[kept]


def _for_reading(values: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
    """The same values, aligned and read-only whoever owns them: kernels are compiled for one kind."""
    view = np.require(values, requirements=["ALIGNED"]).view()
    view.flags.writeable = False
    return view
