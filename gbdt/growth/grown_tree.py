"""A tree over bins as it comes out of growing, and where its leaves' rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.layout import RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.leaf_values import Labels, label_rows
from dmlgbm.gbdt.kernels.tree_description import list_leaves
from dmlgbm.gbdt.threads import ROWS_WORTH_A_THREAD, Workers

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class LeafSteps(NamedTuple):
    """What the leaves of a tree add to scores, and their hessians."""

    values: FloatArray
    hessians: FloatArray


@dataclass(frozen=True)
class GrownTree:
    """The splits of a tree in the order they were made, and where its leaves' rows are."""

    tree: TreeNodes
    splits: IntArray  # internal nodes
    leaves: IntArray  # from left to right
    rows: npt.NDArray[np.uint32]
    starts: IntArray  # where in `rows` each node's rows start that are here
    counts: IntArray
    labels: Labels  # the position in `leaves` of each row's leaf
    no_leaf: int  # the label of rows that the tree was not grown on
    sums: IntArray | None = None  # [leaf, 2]: fixed-point gradients and hessians of the rows here, if known already
    added: LeafSteps | None = None  # if the tree was added to the scores already, unless it is chance

    @property
    def nodes(self) -> RecordArray:
        """NODE records; splits and leaves are positions in them."""
        return self.tree.nodes

    def leaf_ranges(self) -> tuple[IntArray, IntArray]:
        """Where each leaf's rows start in `rows`, and how many they are."""
        return self.starts[self.leaves], self.counts[self.leaves]


def leaves_of(nodes: RecordArray, splits: IntArray) -> IntArray:
    """The leaves that these splits leave, from left to right."""
    leaves = np.empty(len(splits) + 1, np.int64)
    list_leaves(nodes, splits, np.zeros(len(nodes), np.uint8), np.empty(len(splits) + 1, np.int64), leaves)
    return leaves


def label_leaves(grown: GrownTree, n_rows: int, every_row: bool, workers: Workers) -> None:
    """Write each row's leaf to the tree's labels; `n_rows` are in its leaves, all there are if `every_row`."""
    if len(grown.splits) == 0 and every_row:
        grown.rows[:] = np.arange(n_rows, dtype=np.uint32)
    if not every_row:
        grown.labels[:] = grown.no_leaf
    starts, counts = grown.leaf_ranges()
    workers.run_ranges(
        lambda a, b: label_rows(grown.rows, starts[a:b], counts[a:b], a, grown.labels),
        len(grown.leaves),
        max(1, ROWS_WORTH_A_THREAD * len(grown.leaves) // max(1, n_rows)),
    )
