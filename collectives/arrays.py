"""Turns what callers hand in into flat arrays that programs can run on, and refuses what cannot be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgbm.collectives.reducers import Array

_NUMBERS = frozenset("bhilqBHILQfd")


def flat(array: Any, name: str = "array") -> Array:
    """The elements of an array in C order, without a copy where they already lie so. The array is not written to."""
    if type(array) is np.ndarray and array.ndim == 1 and array.flags.c_contiguous and array.dtype.char in _NUMBERS:
        return array  # most calls, which should cost little
    values = np.asarray(array)
    check_dtype(values.dtype, name)
    return np.ascontiguousarray(values).reshape(-1)


def check_dtype(dtype: np.dtype[Any], name: str) -> None:
    if dtype.hasobject:
        raise TypeError(f"{name} has dtype {dtype}; Python objects cannot be sent, use numbers, bytes or structures")
    if dtype.itemsize == 0:
        raise TypeError(f"{name} has dtype {dtype}, whose elements have no bytes")


def output(out: Array | None, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array for the result: a new one, or `out` if it fits."""
    if out is None:
        return np.empty(tuple(shape), dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != tuple(shape):
        found = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of {dtype} with shape {tuple(shape)}, got {found}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be contiguous in C order and writeable")
    return out


def separate(array: Array, out: Array | None) -> Array:
    """The input, copied when it overlaps `out`: results may not overwrite what has yet to be sent."""
    return array.copy() if out is not None and np.may_share_memory(array, out) else array


def check_counts(counts: Sequence[int], world_size: int, total: int, name: str) -> tuple[int, ...]:
    """One size a rank, adding up to the length of the first axis."""
    sizes = tuple(int(count) for count in counts)
    if len(sizes) != world_size or min(sizes) < 0 or sum(sizes) != total:
        raise ValueError(f"{name} must have {world_size} sizes, one for each rank, that add up to {total}, got {sizes}")
    return sizes
