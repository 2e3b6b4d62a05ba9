"""Gradient-based one-side sampling (GOSS): the rows of large gradients, and some of the others that count for all.

The rows of large gradients are the first of all rows in the order of their places (`kernels/row_importance.py`), the
others are drawn by hashes of their numbers: neither depends on who holds a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_numbers import Segment, stretches_between
from dmlgbm.gbdt.data.row_weights import Repeats
from dmlgbm.gbdt.kernels.row_importance import DIGIT_BITS, N_DIGITS, count_digits, write_factors, write_places
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers

SingleArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


def samples_by_gradient(parameters: TrainParameters, iteration: int) -> bool:
    """The first iterations, as many as it takes to make a whole step, use all rows."""
    return parameters.data_sample_strategy == "goss" and iteration >= int(1.0 / parameters.shrinkage)


def gradient_factors(
    parameters: TrainParameters,
    iteration: int,
    gradients: SingleArray,
    hessians: SingleArray,
    segments: Sequence[Segment],
    n_total_rows: int,
    repeats: Repeats | None,
    workers: Workers,
    exchange: Exchange,
) -> SingleArray:
    """What the derivatives [output, row] of each row here are multiplied by: 0 for rows outside the sample."""
    n_rows = gradients.shape[1]
    places = np.empty(n_rows, np.int64)
    times = np.zeros(0, np.int64) if repeats is None else repeats.counts
    tie_key = random_key(parameters.seed, Purpose.EQUAL_ROWS, iteration)

    def place(start: int, stop: int) -> None:
        for first, last, number in stretches_between(segments, start, stop):
            write_places(gradients, hessians, times, first, last, number, tie_key, places)

    workers.run_ranges(place, n_rows)
    last_place, n_large = _place_number(max(1, int(n_total_rows * parameters.top_rate)), places, workers, exchange)
    n_others, n_drawn = n_total_rows - n_large, max(1, int(n_total_rows * parameters.other_rate))
    # Of so many others all are drawn, and count once.
    share = min(1.0, n_drawn / max(n_others, 1))
    draw_key = random_key(parameters.seed, Purpose.ROW_SAMPLE, iteration)
    limit = np.uint64(share * 9007199254740992.0)
    factors = np.empty(n_rows, np.float32)

    def write(start: int, stop: int) -> None:
        for first, last, number in stretches_between(segments, start, stop):
            write_factors(places, last_place, first, last, number, draw_key, limit, 1.0 / share, factors)

    workers.run_ranges(write, n_rows)
    return factors


def multiply(derivatives: SingleArray, factors: SingleArray, workers: Workers) -> None:
    """Multiply derivatives [output, row] in place."""

    def multiply_rows(start: int, stop: int) -> None:
        derivatives[:, start:stop] *= factors[start:stop]

    workers.run_ranges(multiply_rows, derivatives.shape[1])


def _place_number(k: int, places: IntArray, workers: Workers, exchange: Exchange) -> tuple[int, int]:
    """The k-th lowest place of all rows, counted from 1, and how many rows have it or a lower one."""
    prefix, n_before = 0, 0
    for digit in reversed(range(N_DIGITS)):
        counts = _digits_of(places, prefix, digit * DIGIT_BITS, workers, exchange)
        ends = n_before + np.cumsum(counts)
        found = int(np.searchsorted(ends, k))
        prefix, n_before = prefix << DIGIT_BITS | found, int(ends[found] - counts[found])
    return prefix, int(ends[found])


def _digits_of(places: IntArray, prefix: int, shift: int, workers: Workers, exchange: Exchange) -> IntArray:
    def count(start: int, stop: int) -> IntArray:
        counts = np.zeros(1 << DIGIT_BITS, np.int64)
        count_digits(places, start, stop, prefix, shift, counts)
        return counts

    return exchange.reduce_sum(sum(workers.run_ranges(count, len(places))))
