"""Rows are split over ranks, every rank has all columns: ranks add up histograms, each for a share of the features.

A round: every rank builds the histogram of the smaller child of each picked leaf from its own rows and sends each rank
that one's features, encoded (`gbdt.kernels.histogram_codec`). The owner adds up, subtracts from the parent, searches,
and tells everybody its best splits. The tree is that of a fit on one machine, bit for bit.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dask_backend.exchange import RankExchange
from dask_backend.histogram_messages import HistogramMessages, most_bytes, stored_bins
from dask_backend.leaf_threads import LeafThreads
from gbdt.dataset import Dataset
from gbdt.grown_tree import GrownTree
from gbdt.kernels.histogram_exchange import build_and_encode, merge_and_search
from gbdt.kernels.layout import Buffers, RecordArray
from gbdt.leaf_fitting import label_others
from gbdt.parameters import TrainParameters
from gbdt.round_grower import GrowingTree, candidate_words
from gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]


class DataParallel:
    """Expands leaves by reduce-scatter of histograms."""

    def __init__(self, dataset: Dataset, parameters: TrainParameters, workers: Workers, exchange: RankExchange) -> None:
        self._dataset = dataset
        self._exchange = exchange
        layout = dataset.plan.layout
        self._features, self._blocks = feature_blocks(layout, exchange.n_ranks)
        self._own_features = self._features[self._blocks[exchange.rank] : self._blocks[exchange.rank + 1]]
        self._own_layout, width = own_positions(layout, self._own_features)
        # Untouched slots cost no memory: the operating system hands out pages on first use.
        self._pool = np.empty((GrowingTree(0, parameters).n_slots, 3, width), np.int64)
        self._threads = LeafThreads(dataset.plan, parameters.num_leaves, workers)
        part_bytes = max(most_bytes(layout, self._features[first:last]) for first, last in pairwise(self._blocks))
        self._messages = HistogramMessages(exchange, part_bytes)
        self._candidate_words = candidate_words(layout, parameters.max_cat_threshold)

    def begin_tree(self, tree: GrowingTree) -> IntArray:
        """Build the root's histogram of the rows here; the root's sums over all ranks."""
        self._exchange.begin_tree()
        if len(self._features):
            self._threads.build_root(self._dataset.storage, tree)
        root = tree.nodes[0]
        return self._exchange.sum(np.array([root["gradient"], root["hessian"], tree.counts[0]], np.int64))

    def expand(self, tree: GrowingTree) -> IntArray | None:
        """Split the picked leaves and find the best splits of their children over all ranks."""
        n_picked = tree.n_picked
        self._messages.make_room(n_picked)
        self._threads.run(lambda thread, buffers: self._build(tree, thread, buffers), n_picked)
        if not tree.any_child_may_split():
            return None
        messages = self._messages.exchanged(n_picked)
        candidates = np.empty((tree.n_children, self._candidate_words), np.int64)

        def search(thread: int, buffers: Buffers) -> None:
            merge_and_search(
                self._own_layout, tree.quantised.packing, tree.rules, tree.features, self._own_features,
                tree.nodes, tree.categories, tree.picked, tree.lefts, tree.slots, n_picked,
                self._pool, messages, self._exchange.rank, buffers, candidates, self._threads.taken,
            )  # fmt: skip

        self._threads.run(search, n_picked)
        return self._exchange.all_gather(candidates)

    def end_tree(self) -> None:
        """Close the count of what was sent for this tree."""
        self._exchange.end_tree()

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Send the rows outside the bag down the tree."""
        label_others(grown, self._dataset, bag)

    def _build(self, tree: GrowingTree, thread: int, buffers: Buffers) -> None:
        build_and_encode(
            self._dataset.storage, self._dataset.plan.layout, tree.quantised.packing, tree.rules,
            tree.rows, tree.scratch, tree.every_row, tree.quantised.words, self._threads.planes[thread], buffers,
            tree.nodes, tree.categories, tree.starts, tree.counts,
            tree.picked, tree.lefts, tree.slots, tree.n_picked, tree.is_last,
            self._pool, self._features, self._blocks, self._exchange.rank,
            self._messages.staging, self._messages.lengths, self._threads.taken,
        )  # fmt: skip


def feature_blocks(layout: RecordArray, n_ranks: int) -> tuple[IntArray, IntArray]:
    """All features in the order of their place in a histogram, and where each rank's share begins and the last ends."""
    features = np.argsort(layout["position"], kind="stable").astype(np.int64)
    ends = np.cumsum(stored_bins(layout, features))
    total = int(ends[-1]) if len(ends) else 0
    # A feature belongs to the rank in whose share of all bins its middle lies.
    middles = ends - stored_bins(layout, features) / 2
    targets = [total * rank / n_ranks for rank in range(1, n_ranks)]
    return features, np.array([0, *np.searchsorted(middles, targets), len(features)], np.int64)


def own_positions(layout: RecordArray, own_features: IntArray) -> tuple[RecordArray, int]:
    """The layout with positions counted from the first of some neighbouring features on, and how many they have."""
    if len(own_features) == 0:
        return layout, 0
    shifted = layout.copy()
    shifted["position"] -= layout["position"][own_features[0]]
    last = own_features[-1:]
    return shifted, int((shifted["position"][last] + stored_bins(layout, last))[0])
