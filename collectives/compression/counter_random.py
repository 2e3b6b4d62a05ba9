"""Random numbers without a generator: each is a hash of what it is for and of a counter.

Every rank computes the same numbers at the same step, so what they choose need not be sent.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt


def hash_of(*parts: int | str) -> int:
    """64 bits mixed from the parts; their order and their borders count."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def random_bits(key: int, count: int) -> npt.NDArray[np.uint64]:
    """64 random bits for each counter below `count`: the finaliser of splitmix64."""
    z = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def random_signed_units(key: int, count: int) -> npt.NDArray[np.float64]:
    """Numbers spread evenly over [-1, 1)."""
    return (random_bits(key, count) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def one_of_each_stratum(key: int, count: int, n_strata: int) -> npt.NDArray[np.int64]:
    """One position from each of `n_strata` stretches of nearly equal length that together cover `count`, ascending."""
    borders = np.arange(n_strata + 1, dtype=np.int64) * count // n_strata
    lengths = np.diff(borders)
    return borders[:-1] + (random_bits(key, n_strata) % lengths.astype(np.uint64)).astype(np.int64)
