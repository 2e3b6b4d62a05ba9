"""Sorting inside kernels (numba's own sorts take seconds to compile).

Items are ordered by (keys[item], item), so that there are no ties. A heap has the last of its items on top.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import inlined, kernel

Keys = npt.NDArray[np.float64]
Items = npt.NDArray[np.int64]


@inlined
def precedes(keys: Keys, a: int, b: int, descending: bool) -> bool:
    """Whether item a comes before item b."""
    if descending:
        a, b = b, a
    return keys[a] < keys[b] or (keys[a] == keys[b] and a < b)


@inlined
def sink(keys: Keys, items: Items, position: int, end: int, descending: bool) -> None:
    """Make a heap of items[:end] again, in which only the item at `position` may come before one below it."""
    item = items[position]
    hole = position
    while 2 * hole + 1 < end:
        child = 2 * hole + 1
        if child + 1 < end and precedes(keys, items[child], items[child + 1], descending):
            child += 1
        below = items[child]
        if precedes(keys, below, item, descending):
            break
        items[hole] = below
        hole = child
    items[hole] = item


@kernel
def bring_to_front(keys: Keys, items: Items, n: int, n_front: int, descending: bool) -> None:
    """Rearrange items[:n] so that the first `n_front` are those of the whole order, in order."""
    for parent in range(n_front // 2 - 1, -1, -1):
        sink(keys, items, parent, n_front, descending)
    for position in range(n_front, n):
        if precedes(keys, items[position], items[0], descending):
            items[0], items[position] = items[position], items[0]
            sink(keys, items, 0, n_front, descending)
    for end in range(n_front - 1, 0, -1):
        items[0], items[end] = items[end], items[0]
        sink(keys, items, 0, end, descending)


@inlined
def order_by_key(keys: Keys, items: Items, n: int) -> None:
    """Sort items[:n] by (keys[item], item), ascending."""
    bring_to_front(keys, items, n, n, np.bool_(0))


@kernel
def order_ends_by_key(keys: Keys, items: Items, n: int, n_ends: int) -> None:
    """Bring the first and the last `n_ends` of items[:n] where `order_by_key` would; those between lie in any order."""
    n_first = min(n_ends, n)
    bring_to_front(keys, items, n, n_first, np.bool_(0))
    rest = items[n_first:n]
    bring_to_front(keys, rest, rest.size, min(n_ends, rest.size), np.bool_(1))
    for k in range(rest.size // 2):
        rest[k], rest[rest.size - 1 - k] = rest[rest.size - 1 - k], rest[k]
