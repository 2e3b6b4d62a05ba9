"""From values to bins: which rows the bins are cut from, where they are cut, and the search for a value's bin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import kernel
from dmlgbm.gbdt.kernels.elementwise_math import hash_counter


def chosen_rows(first_row_number: int, n_rows: int, key: np.uint64, share: float) -> npt.NDArray[np.uint32]:
    """The rows whose hash of (key, global row number) falls below a share of all hashes, ascending."""
    limit = np.uint64(share * 9007199254740992.0)
    rows = np.empty(_write_chosen_rows(first_row_number, n_rows, key, limit, np.empty(0, np.uint32)), np.uint32)
    _write_chosen_rows(first_row_number, n_rows, key, limit, rows)
    return rows


@kernel
def _write_chosen_rows(
    first_row_number: int, n_rows: int, key: np.uint64, limit: np.uint64, rows: npt.NDArray[np.uint32]
) -> int:
    """How many rows are chosen; writes the first of them, as many as there is room for."""
    n_chosen = 0
    for row in range(n_rows):
        if hash_counter(key, np.uint64(first_row_number + row)) >> np.uint64(11) < limit:
            if n_chosen < rows.size:
                rows[n_chosen] = row
            n_chosen += 1
    return n_chosen


@kernel
def take_present(
    values: npt.NDArray[np.generic],
    rows: npt.NDArray[np.uint32],
    every_row: bool,
    taken: npt.NDArray[np.generic],
    extent: npt.NDArray[np.float64],
) -> int:
    """Copy the values of some rows that are not NaN, and return how many they are.

    Where all of them are whole numbers, `extent` becomes the lowest and the highest; else it stays as it is.
    """
    n_taken = np.uint64(0)
    lowest, highest, n_parts = np.inf, -np.inf, 0
    for i in range(np.uint64(values.size if every_row else rows.size)):
        value = values[i if every_row else np.uint64(rows[i])]
        if value == value:
            taken[n_taken] = value
            n_taken += np.uint64(1)
            n_parts += 1 if np.floor(value) != value else 0
            lowest, highest = min(lowest, float(value)), max(highest, float(value))
    if n_parts == 0 and n_taken > np.uint64(0):
        extent[0], extent[1] = lowest, highest
    return np.int64(n_taken)


@kernel
def count_whole_numbers(values: npt.NDArray[np.generic], lowest: float, counts: npt.NDArray[np.int64]) -> None:
    """counts[k] = how many of the values, all whole, are lowest + k."""
    for i in range(np.uint64(values.size)):
        counts[np.uint64(np.int64(float(values[i]) - lowest))] += 1


def cut_points(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], max_bin: int) -> npt.NDArray[np.float64]:
    """Upper bounds of all bins but the last, given the distinct values in ascending order; counts are in any unit."""
    cuts = np.empty(min(max_bin, len(values)) - 1)
    return cuts[: _write_cut_points(values, counts, max_bin, cuts)].copy()


@kernel
def _write_cut_points(
    values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], max_bin: int, cuts: npt.NDArray[np.float64]
) -> int:
    """Write the cuts and return how many they are.

    A value as frequent as an average bin gets a bin of its own; the others share what is left evenly.
    """
    n_values = values.size
    rest_rows, rest_bins = np.int64(0), max_bin
    for i in range(n_values):
        rest_rows += counts[i]
    average = rest_rows / max_bin
    if n_values > max_bin:
        for i in range(n_values):
            if counts[i] >= average:
                rest_rows -= counts[i]
                rest_bins -= 1
        share = rest_rows / max(rest_bins, 1)
    else:
        share = 0.0
    n_cuts, in_bin = 0, np.int64(0)
    for i in range(n_values - 1):
        frequent = counts[i] >= average
        if not frequent:
            rest_rows -= counts[i]
        in_bin += counts[i]
        full = in_bin >= share or frequent or (counts[i + 1] >= average and in_bin >= 0.5 * share)
        if not full:
            continue
        middle = 0.5 * values[i] + 0.5 * values[i + 1]
        # The lower value itself when no number lies between, or when one of the two is infinite.
        cuts[n_cuts] = middle if values[i] <= middle < values[i + 1] else values[i]
        n_cuts += 1
        if n_cuts == cuts.size:
            break
        in_bin = np.int64(0)
        if not frequent and n_values > max_bin:
            rest_bins -= 1
            share = rest_rows / max(rest_bins, 1)
    return n_cuts


@kernel
def search_bins(
    values: npt.NDArray[np.float64], cuts: npt.NDArray[np.float64], missing_bin: int, bins: npt.NDArray[np.generic]
) -> None:
    """bins[i] = number of cuts below values[i]; NaN gets the missing bin.

    `cuts` is padded with infinity to a power of two less one, at least 255. The last eight steps are written
    out: as a loop they took 45 ns a value, like this 8.
    """
    missing = np.uint64(missing_bin)
    wide_step = np.uint64((cuts.size + 1) >> 1)
    for i in range(values.size):
        value = values[i]
        b, step = np.uint64(0), wide_step
        while step > np.uint64(128):
            b += np.uint64(cuts[b + step - np.uint64(1)] < value) * step
            step >>= np.uint64(1)
        b += np.uint64(cuts[b + np.uint64(127)] < value) << np.uint64(7)
        b += np.uint64(cuts[b + np.uint64(63)] < value) << np.uint64(6)
        b += np.uint64(cuts[b + np.uint64(31)] < value) << np.uint64(5)
        b += np.uint64(cuts[b + np.uint64(15)] < value) << np.uint64(4)
        b += np.uint64(cuts[b + np.uint64(7)] < value) << np.uint64(3)
        b += np.uint64(cuts[b + np.uint64(3)] < value) << np.uint64(2)
        b += np.uint64(cuts[b + np.uint64(1)] < value) << np.uint64(1)
        b += np.uint64(cuts[b] < value)
        bins[i] = b if value == value else missing


@kernel
def look_bins_up(
    values: npt.NDArray[np.float64],
    lowest: float,
    table: npt.NDArray[np.generic],
    missing_bin: int,
    bins: npt.NDArray[np.generic],
) -> bool:
    """Write the bins of values that are whole or NaN from a table of them; False if others are among them.

    table[k] is the bin of lowest + k; what lies beyond its ends has the bin of the end.
    """
    highest, n_parts = lowest + float(table.size - 1), 0
    missing = np.uint64(missing_bin)
    for i in range(values.size):
        value = values[i]
        is_missing = value != value
        n_parts += 1 if np.floor(value) != value and not is_missing else 0
        inside = lowest if is_missing else min(max(value, lowest), highest)
        bins[i] = missing if is_missing else np.uint64(table[np.uint64(np.int64(inside - lowest))])
    return n_parts == 0


@kernel
def fill_sparse_entries(
    rows: npt.NDArray[np.uint32],
    values: npt.NDArray[np.uint16],
    cursor: npt.NDArray[np.int64],
    entries: npt.NDArray[np.uint16],
) -> None:
    """Append one feature's stored values to the rows that have them; `cursor` is where each row's list ends."""
    for i in range(rows.size):
        row = np.uint64(rows[i])
        entries[np.uint64(cursor[row])] = values[i]
        cursor[row] += 1


@kernel
def list_rows_by_value(
    sparse_starts: npt.NDArray[np.int64],
    entries: npt.NDArray[np.uint16],
    bases: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    listed: npt.NDArray[np.uint32],
) -> None:
    """List the rows of all entries by stored value, tile after tile; bases[tile] is the number of its value 0.

    `starts`, all 0 at first, has one number more than there are values.
    """
    n_tiles, n_rows = sparse_starts.shape[0], sparse_starts.shape[1] - 1
    for tile in range(n_tiles):
        for entry in range(np.uint64(sparse_starts[tile, 0]), np.uint64(sparse_starts[tile, n_rows])):
            starts[np.uint64(bases[tile]) + np.uint64(entries[entry]) + np.uint64(1)] += 1
    for value in range(1, starts.size):
        starts[value] += starts[value - 1]
    # Each start moves to the end of its list while that is filled, which is where the next one starts.
    for tile in range(n_tiles):
        for row in range(np.uint64(n_rows)):
            first, last = sparse_starts[tile, row], sparse_starts[tile, row + np.uint64(1)]
            for entry in range(np.uint64(first), np.uint64(last)):
                value = np.uint64(bases[tile]) + np.uint64(entries[entry])
                listed[np.uint64(starts[value])] = row
                starts[value] += 1
    for value in range(starts.size - 1, 0, -1):
        starts[value] = starts[value - 1]
    starts[0] = 0
