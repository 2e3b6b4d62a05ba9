"""Every random choice is a pure function of (seed, purpose, tree, ...): no generator has a state to lose."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a random number is for; two purposes never share numbers."""

    BIN_SAMPLE = 1
    ROUNDING = 2
    ROW_SAMPLE = 3
    TREE_FEATURES = 4
    NODE_FEATURES = 5
    EQUAL_ROWS = 6
    DROPPED_ITERATIONS = 7
    ROW_WEIGHTS = 8
    GRADIENTS = 9


def random_key(seed: int, purpose: Purpose, *numbers: int) -> np.uint64:
    """A 64-bit key for `hash_counter`, mixed from the arguments one by one."""
    key = 0
    for number in (seed, int(purpose), *numbers):
        key = _mixed((key + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK)
    return np.uint64(key)


def random_shares(key: np.uint64, n_numbers: int) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1: what `hash_counter` makes of the key and 0, 1, 2 and so on."""
    z = key + np.arange(n_numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
