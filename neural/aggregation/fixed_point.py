"""Real numbers as whole numbers modulo 2**64: sums that are exact, in any order, under any masks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.model import FloatArray

Ring = npt.NDArray[np.uint64]


def to_ring(values: FloatArray, bits: int, n_terms: int) -> Ring:
    """Multiples of 2**-bits, rounded to even. ValueError if a sum of `n_terms` such vectors could leave the range."""
    scaled = np.rint(values.astype(np.float64) * 2.0**bits)
    largest = float(np.abs(scaled).max(initial=0.0))
    if not largest * n_terms < 2.0**62:
        raise ValueError(
            f"an update of {largest * 2.0**-bits:g} does not fit fixed point with {bits} bits after the point and "
            f"{n_terms} terms: lower fixed_point_bits or the learning rate"
        )
    return scaled.astype(np.int64).view(np.uint64)


def from_ring(total: Ring, bits: int) -> npt.NDArray[np.float64]:
    """The numbers that a sum stands for."""
    return total.view(np.int64).astype(np.float64) * 2.0**-bits
