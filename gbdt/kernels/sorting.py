"""Sorting inside kernels (numba's own sorts take seconds to compile)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import kernel


@kernel
def order_by_key(keys: npt.NDArray[np.float64], items: npt.NDArray[np.int64], n: int) -> None:
    """Heap sort items[:n] by (keys[item], item), ascending."""
    for end in range(n, 0, -1):
        # Once through all parents makes a heap; afterwards only the root is out of place.
        first_parent = n // 2 - 1 if end == n else 0
        for parent in range(first_parent, -1, -1):
            item = items[parent]
            hole = parent
            while 2 * hole + 1 < end:
                child = 2 * hole + 1
                if child + 1 < end:
                    a, b = items[child], items[child + 1]
                    if keys[a] < keys[b] or (keys[a] == keys[b] and a < b):
                        child += 1
                below = items[child]
                if keys[below] < keys[item] or (keys[below] == keys[item] and below < item):
                    break
                items[hole] = below
                hole = child
            items[hole] = item
        items[0], items[end - 1] = items[end - 1], items[0]
