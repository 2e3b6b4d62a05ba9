"""How many bits a tree's gradients and hessians get, and how they share a word.

A word has three fields: row count, hessian, gradient (signed, on top). A field of b bits summed over m rows
needs b + log2(m) bits, so finer numbers mean smaller blocks. Three levels are tried in turn; the first whose
steps are small against the *typical* value is taken, because a few outliers must not round everybody else to
zero. Scales are powers of two: multiplying by them never rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gbdt.kernels.layout import PACKING, RecordArray
from gbdt.kernels.quantise import count_at_least, largest_magnitude, pack_words, sum_magnitudes
from gbdt.random_keys import Purpose, random_key
from gbdt.threads import Workers

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
_EXACT = _Level(40, 31, 16, two_words=True)
# Without hessians: 1 sign bit + 2 x count bits + gradient bits = 64.
_CONSTANT = _Level(31, 0, 16)
_CONSTANT_EXACT = _Level(39, 0, 12)
# The least number of steps that the mean magnitude must have.
_FEWEST_GRADIENT_STEPS = 8.0
_FEWEST_HESSIAN_STEPS = 4.0
# The least share of rows that must reach as many.
_FEWEST_ROWS = 0.1
# Rounding moves a sum of n gradients by about sqrt(n) / 2 units: a gain of n / 4 over the hessian on each side,
# and the largest of some thousands of such chances is about sixteen times that.
_ROUNDING_GAIN = 8.0
# A hessian sum of few units is mostly rounding noise, and dividing by it makes enormous gains and steps. (Measured
# on a seven-class table: log loss 0.372 with 8 units, 0.352 with 32, 0.346 with 128; largest leaf 2621, 419, 48.)
_HESSIAN_MARGIN = 128


@dataclass(frozen=True)
class Quantised:
    """The words of one tree and what their units are worth."""

    words: npt.NDArray[np.int64]  # [1 or 2, row]
    packing: RecordArray
    gradient_scale: float  # integer units per unit of gradient
    hessian_scale: float
    fine_gradient_scale: float  # of the fixed-point sums that leaf values are made of
    fine_hessian_scale: float
    rounding_gain: float = 0.0  # see SPLIT_RULES
    hessian_margin: int = 0  # units that a leaf's hessian must have beyond min_child_weight


def quantise(
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    *,
    precision: Literal["auto", "fast", "exact"],
    first_row_number: int,
    seed: int,
    tree: int,
    workers: Workers,
    buffer: npt.NDArray[np.int64] | None = None,
) -> Quantised:
    """Pack the gradients of all rows; an empty `hessians` says that every hessian is 1.

    The words are written to `buffer` [2, row] if there is one: new memory for every tree would cost page faults.
    """
    n_rows = len(gradients)
    largest_gradient = _largest(gradients, workers)
    largest_hessian = _largest(hessians, workers) if len(hessians) else 1.0
    level = _CONSTANT_EXACT if precision == "exact" else _CONSTANT
    hessian_margin = 0
    if len(hessians):
        hessian_range = _Range(hessians, largest_hessian, workers)
        level = _level(precision, _Range(gradients, largest_gradient, workers), hessian_range)
        hessian_margin = _HESSIAN_MARGIN
    row_bits = max(n_rows, 1).bit_length()
    gradient_scale = _power_of_two(min(level.gradient_bits, 62 - row_bits), largest_gradient)
    hessian_scale = _power_of_two(min(level.hessian_bits, 62 - row_bits), largest_hessian) if len(hessians) else 1.0
    packing = _packing(level)
    n_words = 2 if level.two_words else 1
    words = np.empty((n_words, n_rows), np.int64) if buffer is None else buffer[:n_words]
    key = random_key(seed, Purpose.ROUNDING, tree)
    workers.run_ranges(
        lambda start, stop: pack_words(
            gradients, hessians, start, stop, first_row_number, key, gradient_scale, hessian_scale, packing, words
        ),
        n_rows,
    )
    fine_bits = min(40, 62 - row_bits)
    return Quantised(
        words,
        packing,
        gradient_scale,
        hessian_scale,
        _power_of_two(fine_bits, largest_gradient),
        _power_of_two(fine_bits, largest_hessian) if len(hessians) else 1.0,
        _ROUNDING_GAIN,
        hessian_margin,
    )


def _largest(values: npt.NDArray[np.float32], workers: Workers) -> float:
    return max(workers.run_ranges(lambda start, stop: largest_magnitude(values, start, stop), len(values)))


class _Range:
    """How the magnitudes of all rows compare with the largest one; integers, so in no particular order."""

    def __init__(self, values: npt.NDArray[np.float32], largest: float, workers: Workers) -> None:
        self._values = values
        self._largest = largest
        self._workers = workers
        scale = _power_of_two(_TYPICAL_SCALE_BITS, largest)
        total = sum(workers.run_ranges(lambda start, stop: sum_magnitudes(values, start, stop, scale), len(values)))
        self.mean_share = total / (max(len(values), 1) * (1 << _TYPICAL_SCALE_BITS))

    def fits(self, bits: int, fewest_steps: float) -> bool:
        """Whether the mean has enough of the steps that `bits` make, and not thanks to a few rows alone."""
        if self.mean_share * (1 << bits) < fewest_steps:
            return False
        values, least = self._values, fewest_steps * math.ldexp(self._largest, -bits)
        counts = self._workers.run_ranges(lambda a, b: count_at_least(values, a, b, least), len(values))
        return sum(counts) >= _FEWEST_ROWS * len(values)


def _level(precision: str, gradients: _Range, hessians: _Range) -> _Level:
    if precision == "exact":
        return _EXACT
    for level in (_COARSE, _FINE):
        if gradients.fits(level.gradient_bits, _FEWEST_GRADIENT_STEPS) and hessians.fits(
            level.hessian_bits, _FEWEST_HESSIAN_STEPS
        ):
            return level
    return _FINE if precision == "fast" else _EXACT


def _power_of_two(bits: int, largest: float) -> float:
    """The power of two that takes `largest` to at most 2**bits."""
    if not 0.0 < largest < math.inf:
        return 1.0
    return math.ldexp(1.0, bits - math.frexp(largest)[1])


def _packing(level: _Level) -> RecordArray:
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
