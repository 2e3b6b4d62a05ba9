"""Random numbers without a generator: each is a hash of what it is for, so any rank can compute any of them.

A permutation of all rows, the initial weights, the units that dropout removes for a row: all are pure functions of
(seed, purpose, epoch or step, number). That is why a fit on any number of ranks sees the same batches and the same
noise, and why nothing has to be restored when training is resumed.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hash_of(*parts: int | str) -> int:
    """64 bits mixed from the parts; their order and their borders count."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def bits_of(key: int, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """64 random bits for each number under this key: the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (numbers + np.uint64(1)) * _GOLDEN
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def uniform(key: int, count: int) -> npt.NDArray[np.float64]:
    """Numbers spread evenly over [0, 1)."""
    return (bits_of(key, np.arange(count, dtype=np.uint64)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: int, count: int) -> npt.NDArray[np.float64]:
    """Standard normal numbers (Box-Muller)."""
    half = (count + 1) // 2
    first, second = uniform(key, 2 * half).reshape(2, half)
    radius = np.sqrt(-2.0 * np.log1p(-first))
    return np.concatenate([radius * np.cos(2.0 * np.pi * second), radius * np.sin(2.0 * np.pi * second)])[:count]


def permutation(key: int, count: int) -> npt.NDArray[np.int64]:
    """All numbers below `count` in random order."""
    return np.argsort(bits_of(key, np.arange(count, dtype=np.uint64)), kind="stable").astype(np.int64)


def integers(key: int, count: int, below: int) -> npt.NDArray[np.int64]:
    """`count` numbers from 0 to below - 1, drawn with replacement."""
    return (bits_of(key, np.arange(count, dtype=np.uint64)) % np.uint64(below)).astype(np.int64)
