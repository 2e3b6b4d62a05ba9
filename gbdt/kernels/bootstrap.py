"""Weights of rows for one iteration: at random (Bayesian bootstrap), or by the size of gradients (minimal variance).

A row's weight follows from its derivatives and a hash of its number alone, but for one number that all rows share.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import bits_from_float, kernel
from dmlgbm.gbdt.kernels.elementwise_math import exp, float_of_count, hash_counter, log

_HASH_UNIT = 1.0 / 9007199254740992.0
_WEIGHT_UNIT = 1.0 / 2251799813685248.0
# Classes of size are sixteenths of a power of two, down from that of the largest.
N_SIZE_CLASSES, _CLASS_SHIFT = 4096, 48


@kernel
def write_random_weights(
    start: int,
    stop: int,
    first_row_number: int,
    key: np.uint64,
    temperature: float,
    weights: npt.NDArray[np.float32],
) -> None:
    """Write exponentially distributed weights to the power of the temperature."""
    for row in range(start, stop):
        count = np.int64(hash_counter(key, np.uint64(first_row_number + row)) >> np.uint64(13))
        share = (float_of_count(count) + 0.5) * _WEIGHT_UNIT  # never 0, and never 1
        weights[row] = exp(temperature * log(-log(share)))


@kernel
def write_sizes(
    gradients: npt.NDArray[np.float32], start: int, stop: int, ridge: float, sizes: npt.NDArray[np.float64]
) -> None:
    """Write the root of the sum of squared gradients, over outputs, and the ridge."""
    for row in range(start, stop):
        square = ridge
        for output in range(gradients.shape[0]):
            square += float(gradients[output, row]) * float(gradients[output, row])
        sizes[row] = np.sqrt(square)


@kernel
def sum_size_classes(
    sizes: npt.NDArray[np.float64], start: int, stop: int, largest: float, scale: float, sums: npt.NDArray[np.int64]
) -> None:
    """Count the rows of each class of sizes, and sum their sizes times the scale: sums[class, 2], the largest first."""
    top = bits_from_float(largest) >> _CLASS_SHIFT
    for row in range(start, stop):
        size_class = min(top - (bits_from_float(sizes[row]) >> _CLASS_SHIFT), N_SIZE_CLASSES - 1)
        sums[size_class, 0] += 1
        sums[size_class, 1] += np.int64(sizes[row] * scale)


@kernel
def write_inverse_shares(
    sizes: npt.NDArray[np.float64],
    certain: float,
    start: int,
    stop: int,
    first_row_number: int,
    key: np.uint64,
    weights: npt.NDArray[np.float32],
) -> None:
    """Draw rows with a probability of their size over `certain`, at most 1: write the inverse of it, or 0."""
    for row in range(start, stop):
        share = float(hash_counter(key, np.uint64(first_row_number + row)) >> np.uint64(11)) * _HASH_UNIT
        drawn_below = sizes[row] / certain
        if drawn_below >= 1.0:
            weights[row] = 1.0
        else:
            weights[row] = 1.0 / drawn_below if share < drawn_below else 0.0
