"""Gradients and hessians to integers, rounded up or down at random so that sums are unbiased.

The noise is a hash of (tree, global row number): a row is rounded alike wherever and whenever it is met. Where steps
are so fine that bias does not matter, numbers are rounded to the nearest instead: equal rows then count alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel, single_from_bits
from dmlgbm.gbdt.kernels.elementwise_math import float_of_count, hash_counter, integer_of
from dmlgbm.gbdt.kernels.layout import PackedGradients, RecordArray

_NOISE_UNIT = 1.0 / 4294967296.0
# One half for the gradient and one half for the hessian: to the nearest.
_TWO_HALVES = np.uint64((1 << 63) + (1 << 31))

ROUNDING = np.dtype(
    [
        ("gradient_scale", np.float64),  # integer units per unit of gradient
        ("hessian_scale", np.float64),
        ("at_random", np.int64),  # 0: to the nearest
        ("key", np.uint64),  # the tree's name in random choices
    ]
)
"""How the gradients of a tree become integers."""


@inlined
def largest_of(own: npt.NDArray[np.float32]) -> float:
    """The largest absolute value."""
    # The bits of non-negative floats are in the order of the floats, and only integer maxima are vectorised.
    bits = own.view(np.int32)
    largest = np.int32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & np.int32(0x7FFFFFFF))
    return float(single_from_bits(largest))


@kernel
def largest_magnitudes(
    gradients: npt.NDArray[np.float32], hessians: npt.NDArray[np.float32], start: int, stop: int
) -> tuple[float, float]:
    """The largest absolute gradient and hessian of a range of rows; no hessians are 0."""
    # A view that starts at 0 tells the compiler that no index is negative.
    return largest_of(gradients[start:stop]), largest_of(hessians[start:stop])


@inlined
def _compare_magnitudes(
    own: npt.NDArray[np.float32], scale: float, least: npt.NDArray[np.float64], sums: npt.NDArray[np.int64]
) -> None:
    """Write what `sum_magnitudes` says of one array."""
    total = np.int64(0)
    for i in range(own.size):
        total += integer_of(np.floor(abs(float(own[i])) * scale))
    sums[0] = total
    for k in range(least.size):
        limit, reaching = least[k], np.int64(0)
        for i in range(own.size):
            reaching += 1 if abs(float(own[i])) >= limit else 0
        sums[1 + k] = reaching


@kernel
def sum_magnitudes(
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    start: int,
    stop: int,
    scales: npt.NDArray[np.float64],
    least: npt.NDArray[np.float64],
    sums: npt.NDArray[np.int64],
) -> None:
    """Sum absolute values times `scales`, each rounded down, and count those that are at least each of `least`.

    The first row of the tables is for gradients, the second for hessians. Integers, so in no particular order.
    """
    _compare_magnitudes(gradients[start:stop], scales[0], least[0], sums[0])
    _compare_magnitudes(hessians[start:stop], scales[1], least[1], sums[1])


@inlined
def rounded_by(value: np.float32, scale: float, noise: np.uint64) -> int:
    """An integer next to value times scale: the upper one if its 32 bits of noise say so."""
    return integer_of(np.floor(float(value) * scale + float_of_count(np.int64(noise)) * _NOISE_UNIT))


@kernel
def pack_words(
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    start: int,
    stop: int,
    first_row_number: int,
    rounding: RecordArray,
    packed: PackedGradients,
) -> None:
    """Write the packed word(s) of rows start..stop; `first_row_number` is the global number of row 0."""
    packing, words = packed.packing, packed.words
    gradient_scale, hessian_scale = rounding[0].gradient_scale, rounding[0].hessian_scale
    at_random, key = rounding[0].at_random == 1, rounding[0].key
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    two_words, has_hessians = packing[0].two_words, packing[0].hessian_factor > 0
    own_gradients, own_words = gradients[start:stop], words[0, start:stop]
    first = np.uint64(first_row_number + start)
    if not has_hessians:
        for i in range(own_words.size):
            noise = hash_counter(key, first + np.uint64(i)) if at_random else _TWO_HALVES
            own_words[i] = (rounded_by(own_gradients[i], gradient_scale, noise >> np.uint64(32)) << gradient_shift) + 1
        return
    own_hessians = hessians[start:stop]
    # Two loops: one that may write a second word is not vectorised.
    if two_words == 0:
        for i in range(own_words.size):
            noise = hash_counter(key, first + np.uint64(i)) if at_random else _TWO_HALVES
            gradient = rounded_by(own_gradients[i], gradient_scale, noise >> np.uint64(32))
            hessian = rounded_by(own_hessians[i], hessian_scale, noise & np.uint64(0xFFFFFFFF))
            own_words[i] = (gradient << gradient_shift) + (hessian << hessian_shift) + 1
        return
    last_words = words[1, start:stop]
    for i in range(own_words.size):
        noise = hash_counter(key, first + np.uint64(i)) if at_random else _TWO_HALVES
        own_words[i] = rounded_by(own_gradients[i], gradient_scale, noise >> np.uint64(32)) << gradient_shift
        hessian = rounded_by(own_hessians[i], hessian_scale, noise & np.uint64(0xFFFFFFFF))
        last_words[i] = (hessian << hessian_shift) + 1
