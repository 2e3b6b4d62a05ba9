"""Gradients and hessians to integers, rounded up or down at random so that sums are unbiased.

The noise is a hash of (tree, global row number): a row is rounded alike wherever and whenever it is met.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import kernel
from gbdt.kernels.elementwise_math import hash_counter
from gbdt.kernels.layout import RecordArray


@kernel
def largest_magnitude(values: npt.NDArray[np.float32], start: int, stop: int) -> float:
    """The largest absolute value of a range of rows."""
    largest = np.float32(0.0)
    for row in range(start, stop):
        largest = max(largest, abs(values[row]))
    return float(largest)


@kernel
def sum_magnitudes(values: npt.NDArray[np.float32], start: int, stop: int, scale: float) -> int:
    """The sum of absolute values times `scale`, each rounded down: an integer, so in no particular order."""
    total = np.int64(0)
    for row in range(start, stop):
        total += np.int64(abs(float(values[row])) * scale)
    return total


@kernel
def pack_words(
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    start: int,
    stop: int,
    first_row_number: int,
    key: np.uint64,
    gradient_scale: float,
    hessian_scale: float,
    packing: RecordArray,
    words: npt.NDArray[np.int64],
) -> None:
    """Write the packed word(s) of rows start..stop; `first_row_number` is the global number of row 0."""
    unit = 1.0 / 4294967296.0
    gradient_shift, hessian_factor = packing[0].gradient_shift, packing[0].hessian_factor
    two_words = packing[0].two_words
    first_words, last_words = words[0], words[two_words]
    for row in range(start, stop):
        noise = hash_counter(key, np.uint64(first_row_number + row))
        gradient_noise = float(np.int64(noise >> np.uint64(32))) * unit
        gradient = np.int64(np.floor(float(gradients[row]) * gradient_scale + gradient_noise))
        first_words[row] = (gradient << gradient_shift) + (1 - two_words)
    if hessian_factor == 0:
        return
    for row in range(start, stop):
        noise = hash_counter(key, np.uint64(first_row_number + row))
        hessian_noise = float(np.int64(noise & np.uint64(0xFFFFFFFF))) * unit
        hessian = np.int64(np.floor(float(hessians[row]) * hessian_scale + hessian_noise))
        before = np.int64(1) if two_words == 1 else last_words[row]
        last_words[row] = before + hessian * hessian_factor
