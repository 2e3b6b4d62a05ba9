"""Gradient-based one-side sampling: rows in the order of their gradients, and which of them a tree is grown on.

A row's *place* is an integer: the larger the gradient times the hessian, the lower, and among rows that are alike in
the leading bits, a hash of the row number decides. Places are counted digit by digit: ranks find the k-th of all rows
by adding up counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import bits_from_float, kernel
from dmlgbm.gbdt.kernels.elementwise_math import hash_counter

# Exponent and 29 bits of the mantissa of the product, then bits of the hash.
_PRODUCT_SHIFT, _HASH_BITS = 23, 20
_MOST_PRODUCT = (1 << 40) - 1
DIGIT_BITS, N_DIGITS = 12, 5


@kernel
def write_places(
    gradients: npt.NDArray[np.float32],
    hessians: npt.NDArray[np.float32],
    times: npt.NDArray[np.int64],
    start: int,
    stop: int,
    first_row_number: int,
    key: np.uint64,
    places: npt.NDArray[np.int64],
) -> None:
    """Write the places of rows start..stop, whose derivatives are [output, row].

    Each row counts as often as `times` says, once if it is empty; `first_row_number` is the global number of row 0.
    """
    for row in range(start, stop):
        product = 0.0
        for output in range(gradients.shape[0]):
            product += abs(float(gradients[output, row]) * float(hessians[output, row]))
        if times.size > 0:
            product *= float(times[row]) * float(times[row])
        tie = np.int64(hash_counter(key, np.uint64(first_row_number + row)) >> np.uint64(64 - _HASH_BITS))
        places[row] = ((_MOST_PRODUCT - (bits_from_float(product) >> _PRODUCT_SHIFT)) << _HASH_BITS) + tie


@kernel
def count_digits(
    places: npt.NDArray[np.int64], start: int, stop: int, prefix: int, shift: int, counts: npt.NDArray[np.int64]
) -> None:
    """Count the digits at `shift` of those places that have `prefix` before it."""
    for row in range(start, stop):
        place = places[row] >> shift
        if place >> DIGIT_BITS == prefix:
            counts[place & ((1 << DIGIT_BITS) - 1)] += 1


@kernel
def write_factors(
    places: npt.NDArray[np.int64],
    last_place: int,
    start: int,
    stop: int,
    first_row_number: int,
    key: np.uint64,
    limit: np.uint64,
    factor: float,
    factors: npt.NDArray[np.float32],
) -> None:
    """Write 1 for rows up to the last place, `factor` for those of the others whose hash is below the limit, 0 else."""
    for row in range(start, stop):
        if places[row] <= last_place:
            factors[row] = 1.0
        elif hash_counter(key, np.uint64(first_row_number + row)) >> np.uint64(11) < limit:
            factors[row] = factor
        else:
            factors[row] = 0.0
