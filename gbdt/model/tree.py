"""One grown tree, as plain arrays that do not know about bins."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Tree:
    """Internal nodes and leaves, each numbered from 0; a child below 0 is leaf `~child`.

    A numeric node sends x <= threshold left. A categorical node sends the category codes
    `categories[category_start[node] : category_start[node + 1]]` left and every other code right.
    Missing values go left where `missing_left` is 1.
    """

    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    missing_left: npt.NDArray[np.uint8]
    categorical: npt.NDArray[np.uint8]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    gain: npt.NDArray[np.float64]
    count: npt.NDArray[np.int64]
    category_start: npt.NDArray[np.int32]  # one entry more than there are nodes
    categories: npt.NDArray[np.int32]
    leaf_value: npt.NDArray[np.float64]
    leaf_count: npt.NDArray[np.int64]
    leaf_weight: npt.NDArray[np.float64]

    @property
    def n_nodes(self) -> int:
        return len(self.feature)

    @property
    def n_leaves(self) -> int:
        return len(self.leaf_value)

    @property
    def depth(self) -> int:
        """Number of splits on the longest way from the root to a leaf."""
        depths = np.zeros(max(self.n_nodes, 1), np.int64)
        for node in range(self.n_nodes):
            for child in (self.left[node], self.right[node]):
                if child >= 0:
                    depths[child] = depths[node] + 1
        return int(depths.max()) + 1 if self.n_nodes else 0


TREE_ARRAYS = tuple(field.name for field in fields(Tree))
