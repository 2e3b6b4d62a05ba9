"""Random numbers without a generator: each is a hash of what it is for, so any rank can compute any of them.

A permutation of all rows, the initial weights, the units that dropout removes for a row: all are pure functions of
(seed, purpose, epoch or step, number). That is why a fit on any number of ranks sees the same batches and the same
noise, and why nothing has to be restored when training is resumed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.counter_random import random_bits


def uniform(key: int, count: int) -> npt.NDArray[np.float64]:
    """Numbers spread evenly over [0, 1)."""
    return (random_bits(key, np.arange(count, dtype=np.uint64)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: int, count: int) -> npt.NDArray[np.float64]:
    """Standard normal numbers (Box-Muller)."""
    half = (count + 1) // 2
    first, second = uniform(key, 2 * half).reshape(2, half)
    radius = np.sqrt(-2.0 * np.log1p(-first))
    return np.concatenate([radius * np.cos(2.0 * np.pi * second), radius * np.sin(2.0 * np.pi * second)])[:count]


def permutation(key: int, count: int) -> npt.NDArray[np.int64]:
    """All numbers below `count` in random order."""
    return np.argsort(random_bits(key, np.arange(count, dtype=np.uint64)), kind="stable").astype(np.int64)


def integers(key: int, count: int, below: int) -> npt.NDArray[np.int64]:
    """`count` numbers from 0 to below - 1, drawn with replacement."""
    return (random_bits(key, np.arange(count, dtype=np.uint64)) % np.uint64(below)).astype(np.int64)
