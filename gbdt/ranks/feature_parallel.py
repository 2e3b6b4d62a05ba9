"""Columns are split over ranks, every rank has all rows of its own: ranks tell each other which rows go left.

Before the first tree the binned table is turned around (`column_shares`); targets and scores are on every rank, so
gradients are computed everywhere alike. A round: who has the column of a split says for each row of the leaf whether
it goes left, one bit a row; every rank builds and searches its own columns and tells everybody its best splits. The
tree is that of a fit on one machine, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.growth.leaf_fitting import rows_outside
from dmlgbm.gbdt.growth.round_grower import GrowingTree, candidate_words, no_candidates
from dmlgbm.gbdt.kernels.feature_parallel import RowBits, build_own_columns, mark_rows, split_by_bits
from dmlgbm.gbdt.kernels.layout import Buffers, NodeRows, TreeNodes
from dmlgbm.gbdt.kernels.leaf_values import label_rows
from dmlgbm.gbdt.kernels.round_growth import sum_rows
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.exchange import RankExchange
from dmlgbm.gbdt.ranks.leaf_threads import LeafThreads
from dmlgbm.gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]


class FeatureParallel:
    """Expands leaves over the columns that are here; rows are routed by bits."""

    def __init__(self, dataset: Dataset, parameters: TrainParameters, workers: Workers, exchange: RankExchange) -> None:
        self._dataset = dataset
        self._exchange = exchange
        layout = dataset.plan.layout
        self._own_features = np.flatnonzero(layout["storage"] >= 0).astype(np.int64)
        self._pool = np.empty((GrowingTree(0, parameters).n_slots, 3, dataset.plan.n_positions), np.int64)
        self._threads = LeafThreads(dataset, parameters.num_leaves, workers)
        self._candidate_words = candidate_words(layout, parameters.max_cat_threshold)

    def begin_trees(self, trees: Sequence[GrowingTree]) -> IntArray:
        """Build the root's histogram of the columns here; the root's sums, which every rank knows."""
        self._exchange.begin_trees()
        (tree,) = trees
        n_rows = int(tree.rows.counts[0])
        if len(self._own_features):
            # The first slot that the grower hands out, to the root.
            self._pool[0] = self._threads.build_root(self._dataset.storage, tree)
        gradient, hessian = sum_rows(tree.space.gradients, tree.rows.numbers, 0, n_rows, tree.every_row)
        return np.array([[gradient, hessian, n_rows]], np.int64)

    def expand(self, trees: Sequence[GrowingTree]) -> Sequence[IntArray]:
        """Split the picked leaves and find the best splits of their children over all ranks."""
        (tree,) = trees
        n_picked = tree.n_picked
        if not tree.at_root:
            picked, lefts = tree.leaves.picked[:n_picked], tree.leaves.lefts[:n_picked]
            self._route(tree.tree, picked, lefts, tree.rows, tree.every_row)
        candidates = np.empty((tree.n_children, self._candidate_words), np.int64)

        def search(thread: int, buffers: Buffers) -> None:
            build_own_columns(
                self._dataset.binned, tree.space, self._own_features, self._pool, buffers, candidates,
                self._threads.taken,
            )  # fmt: skip

        self._threads.run(search, n_picked)
        return [self._exchange.all_gather(candidates) if tree.any_child_may_split() else no_candidates(tree)]

    def end_trees(self, n_trees: int) -> None:
        """Close the count of what was sent for this tree."""
        self._exchange.end_trees(n_trees)

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Send the rows outside the bag down the tree, one depth after the other."""
        rows = rows_outside(bag, self._dataset.n_rows, len(grown.nodes))
        depths = grown.nodes["depth"][grown.splits]
        for depth in range(int(depths.max(initial=-1)) + 1):
            nodes = grown.splits[depths == depth]
            self._route(grown.tree, nodes, grown.nodes["left"][nodes], rows, False)
        label_rows(rows.numbers, rows.starts[grown.leaves], rows.counts[grown.leaves], 0, grown.labels)

    def _route(self, tree: TreeNodes, nodes: IntArray, lefts: IntArray, rows: NodeRows, every_row: bool) -> None:
        """Rearrange the rows of some nodes by what the owners of their columns say."""
        n_bytes = (rows.counts[nodes] + 7) // 8
        ends = np.cumsum(n_bytes)
        marks = RowBits(np.zeros(-(-int(ends[-1]) // 8) * 8, np.uint8), ends - n_bytes)
        table, threads = self._dataset.binned, self._threads
        threads.run(
            lambda thread, buffers: mark_rows(
                table, tree, buffers.directions.goes_left, rows, every_row, nodes, marks, threads.taken
            ),
            len(nodes),
        )
        merged = self._exchange.reduce_or(marks.bits.view(np.uint64)).view(np.uint8)
        of_all_ranks = marks._replace(bits=merged)
        threads.run(
            lambda thread, buffers: split_by_bits(of_all_ranks, rows, every_row, nodes, lefts, threads.taken),
            len(nodes),
        )
