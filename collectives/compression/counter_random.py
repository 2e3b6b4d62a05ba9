"""What codecs draw by hashing: every rank computes the same numbers at the same step, so choices need not be sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.counter_random import random_bits


def _bits(key: int, count: int) -> npt.NDArray[np.uint64]:
    return random_bits(key, np.arange(count, dtype=np.uint64))


def random_signed_units(key: int, count: int) -> npt.NDArray[np.float64]:
    """Numbers spread evenly over [-1, 1)."""
    return (_bits(key, count) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def one_of_each_stratum(key: int, count: int, n_strata: int) -> npt.NDArray[np.int64]:
    """One position from each of `n_strata` stretches of nearly equal length that together cover `count`, ascending."""
    borders = np.arange(n_strata + 1, dtype=np.int64) * count // n_strata
    lengths = np.diff(borders)
    return borders[:-1] + (_bits(key, n_strata) % lengths.astype(np.uint64)).astype(np.int64)
