"""Plain references: what every collective must return, from the arrays that all ranks would have passed.

Arrays are functions of (rank, size, type), so each rank can work out what the others hold.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SPLIT = np.dtype([("gain", "<f8"), ("feature", "<i4"), ("bin", "<u2")])
INTEGERS = [np.dtype(code) for code in "bhilBHIL"]
FLOATS = [np.dtype(code) for code in ("f", "d", "e", ">f8")]
OTHERS = [np.dtype(code) for code in ("?", "F", "D", "<M8[us]", "S5", "<U3")]
EVERY_TYPE = [*INTEGERS, *FLOATS, *OTHERS, SPLIT]


def values_of(rank: int, size: int, dtype: np.dtype[Any]) -> Array:
    """Any bits for integers; for floats numbers of very different size, so that the order of a sum shows."""
    generator = np.random.default_rng([rank, size, dtype.num])
    if dtype.kind in "iu":
        return np.frombuffer(generator.bytes(size * dtype.itemsize), dtype)
    if dtype.kind in "fc":
        numbers = generator.normal(size=size) * 10.0 ** generator.integers(-3, 4, size)
        numbers[generator.random(size) < 0.05] = -0.0
        return numbers.astype(dtype)
    if dtype == SPLIT:
        result = np.zeros(size, SPLIT)
        result["gain"] = generator.integers(0, 4, size)
        result["feature"], result["bin"] = generator.integers(0, 9, size), generator.integers(0, 9, size)
        return result
    if dtype.kind == "b":
        return generator.integers(0, 2, size).astype(dtype)
    return generator.integers(0, 99, size).astype(dtype)


def smaller(left: Array, right: Array) -> Array:
    return np.where((left <= right) | (left != left), left, right)


def larger(left: Array, right: Array) -> Array:
    return np.where((left >= right) | (left != left), left, right)


OPERATIONS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": smaller,
    "max": larger,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def operations_for(dtype: np.dtype[Any]) -> list[str]:
    if dtype.kind in "biu":
        return list(OPERATIONS)
    return {"f": ["sum", "prod", "min", "max"], "c": ["sum", "prod"], "M": ["min", "max"]}.get(dtype.kind, [])


def better_split(left: Array, right: Array) -> Array:
    """The split with the larger gain; at equal gains the lower feature, then the lower bin."""
    wins = (right["gain"] > left["gain"]) | (
        (right["gain"] == left["gain"])
        & (
            (right["feature"] < left["feature"])
            | ((right["feature"] == left["feature"]) & (right["bin"] < left["bin"]))
        )
    )
    return np.where(wins, right, left)


def reduced(arrays: list[Array], operation: str) -> Array:
    """The arrays combined in rank order."""
    with np.errstate(all="ignore"):
        return reduce(OPERATIONS[operation], arrays).astype(arrays[0].dtype)


def same_bits(found: Array, expected: Array) -> bool:
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()
