"""How many bits a tree's gradients and hessians get, and how they share a word.

A word has three fields: row count, hessian, gradient (signed, on top). A field of b bits summed over m rows
needs b + log2(m) bits, so finer numbers mean smaller blocks. Three levels are tried in turn; the first whose
steps are small against the *typical* value is taken, because a few outliers must not round everybody else to
zero. Scales are powers of two: multiplying by them never rounds.

A small table leaves room for more bits in one word, and its numbers are rounded to the nearest unit: equal rows count
alike there, so that a weight of 3 is the row given three times. Larger tables have coarse units, and rounding at random
keeps their sums unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_numbers import Segment, stretches_between
from dmlgbm.gbdt.data.row_weights import Repeats
from dmlgbm.gbdt.kernels.layout import PACKING, PackedGradients, RecordArray
from dmlgbm.gbdt.kernels.quantise import ROUNDING, largest_magnitudes, pack_words, sum_magnitudes
from dmlgbm.gbdt.random_keys import Purpose, random_key
from dmlgbm.gbdt.threads import Workers

_TYPICAL_SCALE_BITS = 20


@dataclass(frozen=True)
class _Level:
    """Bits of one row's gradient and hessian, and of the row count of a block."""

    gradient_bits: int
    hessian_bits: int
    count_bits: int
    two_words: bool = False


# 1 sign bit + 3 x count bits + gradient bits + hessian bits = 64 in the packed levels.
_COARSE = _Level(10, 8, 15)
_FINE = _Level(13, 11, 13)
_PACKED = (_COARSE, _FINE)
_EXACT = _Level(40, 31, 16, two_words=True)
# Without hessians: 1 sign bit + 2 x count bits + gradient bits = 64.
_CONSTANT = _Level(31, 0, 16)
_CONSTANT_EXACT = _Level(39, 0, 12)
# Up to as many rows there are at least 14 bits for gradients and 13 for hessians in one word.
MOST_ROWS_OF_A_SMALL_TABLE = 4095
# More bits than 17 and 16 would bring nothing.
_FEWEST_COUNT_BITS = 10
# The least number of steps that the mean magnitude must have.
_FEWEST_GRADIENT_STEPS = 8.0
_FEWEST_HESSIAN_STEPS = 4.0
# As many times more where numbers are rounded to the nearest: what is below half a step is lost.
_STEPS_OF_NEAREST = 4.0
# The least share of rows that must reach as many.
_FEWEST_ROWS = 0.1
# Rounding moves a sum of n gradients by about sqrt(n) / 2 units: a gain of n / 4 over the hessian on each side,
# and the largest of some thousands of such chances is about sixteen times that.
_ROUNDING_GAIN = 8.0
# A hessian sum of few units is mostly rounding noise, and dividing by it makes enormous gains and steps. (Measured
# on a seven-class table: log loss 0.372 with 8 units, 0.352 with 32, 0.346 with 128; largest leaf 2621, 419, 48.)
_HESSIAN_MARGIN = 128
# The share of rows that may be too light for a smallest leaf of them to reach the margin.
_MOST_LIGHT_ROWS = 0.1


@dataclass(frozen=True)
class Quantised:
    """The words of one tree and what their units are worth."""

    words: npt.NDArray[np.int64]  # [1 or 2, row]
    packing: RecordArray
    gradient_scale: float  # integer units per unit of gradient
    hessian_scale: float
    fine_gradient_scale: float  # of the fixed-point sums that leaf values are made of
    fine_hessian_scale: float
    rounding: RecordArray  # how gradients become words
    written: bool = True  # whether the words are there, or left to the grower
    rounding_gain: float = 0.0  # see SPLIT_RULES
    hessian_margin: int = 0  # units that a leaf's hessian must have beyond min_child_weight

    @property
    def gain_unit(self) -> float:
        """What a unit of the gain in integers is worth."""
        return self.hessian_scale / self.gradient_scale**2

    @property
    def packed(self) -> PackedGradients:
        """As kernels take them."""
        return PackedGradients(self.packing, self.words)


def most_repeated_rows(precision: str) -> float:
    """The rows, each as often as its weight says, up to which equal rows are rounded alike."""
    return {"exact": math.inf, "auto": MOST_ROWS_OF_A_SMALL_TABLE}.get(precision, 0)


def coarsest_level(
    weight: npt.NDArray[np.float64] | None, min_child_samples: int, n_total_rows: int, exchange: Exchange = ALONE
) -> int:
    """The first of the packed levels of a table of so many rows that sample weights leave room for.

    A few heavy rows must not make leaves of light ones impossible: a leaf of `min_child_samples` rows has to reach the
    margin, whatever rows it holds. (Measured on friedman1 with lognormal weights of sigma 2: without this, the squared
    error was 6 to 10 % above that of exact sums.)
    """
    own = np.zeros(0) if weight is None else weight
    largest = float(exchange.reduce_max(np.array([own.max(initial=0.0)]))[0])
    if largest == 0.0:
        return 0
    units = _HESSIAN_MARGIN / max(1, min_child_samples)
    levels = _packed_levels(n_total_rows)
    light = [np.count_nonzero((own > 0.0) & (own < largest * units / (1 << level.hessian_bits))) for level in levels]
    counts = exchange.reduce_sum(np.array([*light, np.count_nonzero(own > 0.0)], np.int64))
    return next((k for k in range(len(levels)) if counts[k] <= _MOST_LIGHT_ROWS * counts[-1]), len(levels))


def quantise(
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    *,
    precision: Literal["auto", "fast", "exact"],
    segments: Sequence[Segment],
    seed: int,
    tree: int,
    workers: Workers,
    buffer: npt.NDArray[np.int64] | None = None,
    exchange: Exchange = ALONE,
    n_total_rows: int | None = None,
    coarsest: int = 0,
    least_leaf_hessian: float = 0.0,
    repeats: Repeats | None = None,
    largest_here: tuple[float, float] | None = None,
    write: bool = True,
) -> Quantised:
    """Pack the gradients of all rows; an empty `hessians` says that every hessian is 1.

    The words are written to `buffer` [2, row] if there is one: new memory for every tree would cost page faults. Bits
    and scales follow from the rows of all processes, `n_total_rows` (those that are here, if not given); levels before
    the `coarsest` are left out. A leaf needs `least_leaf_hessian` beyond what the parameters ask for. A row that is
    repeated counts like as many rows, but for the count of rows itself. `largest_here` are the largest magnitudes of
    gradients and hessians, where they are known already. Without `write` the words are left to the grower.
    """
    n_rows = len(gradients)
    everywhere = n_rows if n_total_rows is None else n_total_rows
    if repeats is not None:
        everywhere = repeats.total
    # A process without rows cannot tell whether there are hessians: the others say it.
    if largest_here is None:
        of_ranges = workers.run_ranges(lambda a, b: largest_magnitudes(gradients, hessians, a, b), n_rows)
        largest_here = max(one[0] for one in of_ranges), max(one[1] for one in of_ranges)
    largest = np.array([*largest_here, len(hessians) > 0])
    largest_gradient, largest_hessian, has_hessians = exchange.reduce_max(largest).tolist()
    to_nearest = everywhere <= most_repeated_rows(precision)
    level = _CONSTANT_EXACT if precision == "exact" else _CONSTANT
    hessian_margin = 0
    if has_hessians:
        hessian_margin = _HESSIAN_MARGIN
        level = _EXACT
        if precision != "exact":
            level = _level(
                precision,
                _Magnitudes(gradients, hessians, (largest_gradient, largest_hessian), repeats, workers),
                everywhere,
                exchange,
                coarsest,
            )
    row_bits = max(everywhere, 1).bit_length()
    gradient_scale = _power_of_two(min(level.gradient_bits, 62 - row_bits), largest_gradient)
    hessian_scale = _power_of_two(min(level.hessian_bits, 62 - row_bits), largest_hessian) if has_hessians else 1.0
    if repeats is not None:
        # All rows, each as often as it counts, fit one block of a small table's level.
        if level.two_words or not has_hessians:
            level = _repeated(level, repeats.most)
        hessians = hessians if has_hessians else np.ones(n_rows, np.float32)
    packing = _packing(level)
    n_words = 2 if level.two_words else 1
    words = np.empty((n_words, n_rows), np.int64) if buffer is None else buffer[:n_words]
    packed = PackedGradients(packing, words)
    rounding = rounding_of(gradient_scale, hessian_scale, not to_nearest, seed, tree)

    def pack(start: int, stop: int) -> None:
        for first, last, number in stretches_between(segments, start, stop):
            pack_words(gradients, hessians, first, last, number, rounding, packed)
        if repeats is not None:
            times = repeats.counts[start:stop]
            if level.two_words:
                words[0, start:stop] *= times
            # The last word has the count of one row, which stays 1.
            words[-1, start:stop] = (words[-1, start:stop] - 1) * times + 1

    if write:
        workers.run_ranges(pack, n_rows)
    return Quantised(
        words,
        packing,
        gradient_scale,
        hessian_scale,
        *fine_scales(largest_gradient, largest_hessian if has_hessians else None, everywhere),
        rounding,
        write,
        _ROUNDING_GAIN,
        hessian_margin + math.ceil(least_leaf_hessian * hessian_scale),
    )


def fine_scales(largest_gradient: float, largest_hessian: float | None, n_rows: int) -> tuple[float, float]:
    """Units of the fixed-point sums that leaf values are made of; a hessian of None says that all are 1."""
    bits = min(40, 62 - max(n_rows, 1).bit_length())
    return _power_of_two(bits, largest_gradient), 1.0 if largest_hessian is None else _power_of_two(
        bits, largest_hessian
    )


def rounding_of(gradient_scale: float, hessian_scale: float, at_random: bool, seed: int, tree: int) -> RecordArray:
    """How the gradients of a tree become integers."""
    key = random_key(seed, Purpose.ROUNDING, tree)
    return np.array([(gradient_scale, hessian_scale, at_random, key)], ROUNDING)


@dataclass(frozen=True)
class _Magnitudes:
    """How the magnitudes of the rows here compare with the largest of all rows."""

    gradients: npt.NDArray[np.float32]
    hessians: npt.NDArray[np.float32]
    largest: tuple[float, float]
    repeats: Repeats | None
    workers: Workers

    def sums(self, least: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """For gradients and hessians: the sum in units of at most 2**-20 of the largest, and how many reach `least`."""
        values = self.gradients, self.hessians
        if self.repeats is not None:
            values = np.repeat(values[0], self.repeats.counts), np.repeat(values[1], self.repeats.counts)
        scales = np.array([_power_of_two(_TYPICAL_SCALE_BITS, largest) for largest in self.largest])

        def sum_part(start: int, stop: int) -> npt.NDArray[np.int64]:
            part = np.empty((2, 1 + least.shape[1]), np.int64)
            sum_magnitudes(*values, start, stop, scales, least, part)
            return part

        return sum(self.workers.run_ranges(sum_part, len(values[0])))


def _level(precision: str, magnitudes: _Magnitudes, n_rows: int, exchange: Exchange, coarsest: int) -> _Level:
    """The first level whose steps suffice for the mean, and not thanks to a few rows alone."""
    levels = _packed_levels(n_rows)[coarsest:] if precision == "auto" else _PACKED
    more = _STEPS_OF_NEAREST if n_rows <= most_repeated_rows(precision) else 1.0
    steps = more * _FEWEST_GRADIENT_STEPS, more * _FEWEST_HESSIAN_STEPS
    bits = [(level.gradient_bits, level.hessian_bits) for level in levels]
    least = [[steps[k] * math.ldexp(magnitudes.largest[k], -own[k]) for own in bits] for k in range(2)]
    sums = exchange.reduce_sum(magnitudes.sums(np.array(least))).tolist()
    means = [own[0] / (max(n_rows, 1) * (1 << _TYPICAL_SCALE_BITS)) for own in sums]
    for position, level in enumerate(levels):
        fine_enough = all(means[k] * (1 << bits[position][k]) >= steps[k] for k in range(2))
        if fine_enough and min(own[1 + position] for own in sums) >= _FEWEST_ROWS * n_rows:
            return level
    return _FINE if precision == "fast" else _EXACT


def _packed_levels(n_rows: int) -> tuple[_Level, ...]:
    """What is tried in turn under "auto", before two words are taken."""
    return (_small_table(n_rows.bit_length()),) if n_rows <= MOST_ROWS_OF_A_SMALL_TABLE else _PACKED


@cache
def _small_table(count_bits: int) -> _Level:
    """All rows in one block, and all other bits to gradients and hessians."""
    count_bits = max(count_bits, _FEWEST_COUNT_BITS)
    bits = 63 - 3 * count_bits
    return _Level((bits + 2) // 2, bits - (bits + 2) // 2, count_bits)


def _repeated(level: _Level, most: int) -> _Level:
    """Room for hessians that are multiplied by up to `most`; gradients have a word of their own."""
    hessian_bits = max(level.hessian_bits, 1) + (max(most, 1) - 1).bit_length()
    return _Level(level.gradient_bits, hessian_bits, min(16, (63 - hessian_bits) // 2), two_words=True)


def _power_of_two(bits: int, largest: float) -> float:
    """The power of two that takes `largest` to at most 2**bits."""
    if not 0.0 < largest < math.inf:
        return 1.0
    return math.ldexp(1.0, bits - math.frexp(largest)[1])


@cache
def _packing(level: _Level) -> RecordArray:
    """For reading only: there is one for each level."""
    count_mask = (1 << level.count_bits) - 1
    packing = np.zeros(1, PACKING)
    packing["count_mask"] = count_mask
    packing["block_rows"] = count_mask
    packing["packed_rows"] = 0 if level.two_words else count_mask
    packing["two_words"] = level.two_words
    if level.hessian_bits == 0:
        packing["gradient_shift"] = level.count_bits
        packing["hessian_mask"] = count_mask
        return packing
    hessian_field = level.hessian_bits + level.count_bits
    packing["hessian_shift"] = level.count_bits
    packing["hessian_mask"] = (1 << hessian_field) - 1
    packing["hessian_factor"] = 1 << level.count_bits
    packing["gradient_shift"] = 0 if level.two_words else level.count_bits + hessian_field
    return packing
