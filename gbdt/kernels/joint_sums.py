"""Sums of joint bytes, each of which holds the values of several columns: spread onto the columns, or never made.

A byte's sums are folded part by part, the largest stride first. What is left are the sums of a byte without that part:

    3 x 4 values   a b c d | e f g h | i j k l      part of stride 4: a+b+c+d, e+f+g+h, i+j+k+l
                   a+e+i b+f+j c+g+k d+h+l          part of stride 1: as it is
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined
from dmlgbm.gbdt.kernels.layout import BinStorage, RecordArray


@inlined
def spread_sums(parts: RecordArray, histogram: npt.NDArray[np.int64]) -> None:
    """Add the sums of joint bytes, behind the positions of the histogram, to the bins of their parts; uses them up."""
    for part in range(parts.size):
        stride, n_values = parts[part].stride, parts[part].values
        first, position = parts[part].first_sum, parts[part].position
        bins, folded = histogram[position : position + n_values], histogram[first : first + stride]
        if stride == 1:
            left_over = histogram[first : first + n_values]
            for value in range(n_values):
                bins[value] += left_over[value]
            continue
        total = np.int64(0)
        for i in range(stride):
            total += folded[i]
        bins[0] += total
        for value in range(1, n_values):
            own = histogram[first + value * stride : first + (value + 1) * stride]
            total = np.int64(0)
            for i in range(stride):
                total += own[i]
                folded[i] += own[i]
            bins[value] += total


@inlined
def add_parts(
    storage: BinStorage,
    tile: int,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    words: npt.NDArray[np.int64],
    histogram: npt.NDArray[np.int64],
) -> None:
    """Add rows to the bins of every part of their joint bytes; four rows part by part, as `add_four_rows` does."""
    narrow, parts, digits = storage.narrow, storage.parts, storage.digits
    first, last = np.uint64(storage.tiles[tile].first_part), np.uint64(storage.tiles[tile].last_part)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    begin, end = np.uint64(start), np.uint64(stop)
    fours_end = begin + (end - begin) // four * four
    for i in range(begin, fours_end, four):
        row_0, row_1, row_2, row_3 = i, i + one, i + two, i + three
        if not every_row:
            row_0, row_1 = np.uint64(rows[i]), np.uint64(rows[i + one])
            row_2, row_3 = np.uint64(rows[i + two]), np.uint64(rows[i + three])
        word_0, word_1, word_2, word_3 = words[row_0], words[row_1], words[row_2], words[row_3]
        for part in range(first, last):
            column, position, own_digits = np.uint64(parts[part].column), np.uint64(parts[part].position), digits[part]
            histogram[position + np.uint64(own_digits[np.uint64(narrow[row_0, column])])] += word_0
            histogram[position + np.uint64(own_digits[np.uint64(narrow[row_1, column])])] += word_1
            histogram[position + np.uint64(own_digits[np.uint64(narrow[row_2, column])])] += word_2
            histogram[position + np.uint64(own_digits[np.uint64(narrow[row_3, column])])] += word_3
    for i in range(fours_end, end):
        row = i if every_row else np.uint64(rows[i])
        for part in range(first, last):
            cell = np.uint64(narrow[row, np.uint64(parts[part].column)])
            histogram[np.uint64(parts[part].position) + np.uint64(digits[part, cell])] += words[row]
