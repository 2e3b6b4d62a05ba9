"""Random numbers without a generator: each is a hash of what it is for and of a counter.

Any process can compute any of them, so what they decide need not be sent, and nothing has to be restored when a run
is resumed. Kernels have the same function in `kernels/elementwise_math.py`.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

WordArray = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hash_of(*parts: int | str) -> int:
    """64 bits mixed from the parts; their order and their borders count."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def mix(words: WordArray) -> WordArray:
    """The finaliser of splitmix64, for multiples of `GOLDEN` plus a key; changes its argument."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def random_bits(key: int, numbers: WordArray) -> WordArray:
    """64 random bits for each number under this key."""
    with np.errstate(over="ignore"):
        return mix(np.uint64(key) + (numbers + np.uint64(1)) * GOLDEN)
