"""Rows of a matrix as the tiles that prediction works on, [tile, slot, lane]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import kernel
from dmlgbm.gbdt.kernels.predict import LANES, Tiles

# Lanes of a slot that fill a cache line: they are written together, while the values of so many rows are in the cache.
_LANES_PER_LINE = 8


@kernel
def fill_tiles(
    matrix: npt.NDArray[np.floating], columns: npt.NDArray[np.uint32], first_row: int, last_row: int, tiles: Tiles
) -> None:
    """Write the rows first_row..last_row; columns[slot] is the column of a slot.

    Column by column, each value of a wide matrix is fetched with a cache line of its own: 4 ns a value, like this 1.
    """
    for start in range(np.uint64(first_row), np.uint64(last_row), np.uint64(_LANES_PER_LINE)):
        position = start - np.uint64(first_row)
        tile, lane = position // np.uint64(LANES), position % np.uint64(LANES)
        n_lanes = min(np.uint64(_LANES_PER_LINE), np.uint64(last_row) - start)
        for slot in range(np.uint64(columns.size)):
            column = np.uint64(columns[slot])
            if n_lanes == np.uint64(_LANES_PER_LINE):
                for k in range(np.uint64(_LANES_PER_LINE)):
                    tiles[tile, slot, lane + k] = matrix[start + k, column]
            else:
                for k in range(n_lanes):
                    tiles[tile, slot, lane + k] = matrix[start + k, column]
