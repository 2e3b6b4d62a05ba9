"""Arrays that begin where kernels can read them.

What Dask had on disk or got from another worker may be slices of one buffer, which begin at any byte. Kernels need
whole words, so tasks pass what they are given through `aligned` first.
"""

from __future__ import annotations

import copy
from dataclasses import is_dataclass
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")

_WITHOUT_ARRAYS = frozenset({str, int, float, bool, type(None)})


def aligned(value: Value) -> Value:
    """The value itself, or a copy if an array in it (in lists, tuples, dicts and dataclasses) is not aligned."""
    return value if _is_aligned(value) else copy.deepcopy(value)


def _is_aligned(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.aligned)
    if isinstance(value, list | tuple):
        # Categories are thousands of names, which a set of their types deals with at once.
        return _WITHOUT_ARRAYS.issuperset(map(type, value)) or all(map(_is_aligned, value))
    if isinstance(value, dict):
        return all(map(_is_aligned, value.values()))
    return not is_dataclass(value) or _is_aligned(vars(value))
