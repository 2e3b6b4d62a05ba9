"""Rows are split over ranks, every rank has all columns: ranks add up histograms, each for a share of the features.

A round: every rank builds the histogram of the smaller child of each picked leaf from its own rows and sends each rank
that one's features, encoded (`kernels/histogram_codec.py`). The owner adds up, subtracts from the parent, searches,
and tells everybody its best splits. The tree is that of a fit on one machine, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.data.storage_plan import StoragePlan
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.growth.leaf_fitting import label_others
from dmlgbm.gbdt.growth.round_grower import GrowingTree, candidate_words, no_candidates
from dmlgbm.gbdt.kernels.compiler import for_types_of
from dmlgbm.gbdt.kernels.data_parallel import (
    FeatureShares,
    OwnFeatures,
    ReceivedParts,
    build_and_encode,
    merge_and_search,
)
from dmlgbm.gbdt.kernels.layout import Buffers, RecordArray
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.exchange import RankExchange
from dmlgbm.gbdt.ranks.histogram_messages import HistogramMessages, most_bytes, stored_bins
from dmlgbm.gbdt.ranks.leaf_threads import LeafThreads
from dmlgbm.gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]

# What trees that are grown together may take beyond the first: packed word, row number and label of a row; a packed
# histogram for each leaf.
_BYTES_AT_ONCE = 64 << 20
_BYTES_PER_ROW = 13
_BYTES_PER_POSITION = 8


class DataParallel:
    """Expands leaves by reduce-scatter of histograms; the leaves of several trees share the messages of a round."""

    def __init__(
        self,
        dataset: Dataset,
        parameters: TrainParameters,
        workers: Workers,
        exchange: RankExchange,
        n_at_once: int = 1,
    ) -> None:
        self._dataset = dataset
        self._exchange = exchange
        layout = dataset.plan.layout
        self._shares = feature_shares(layout, exchange.n_ranks)
        features, blocks = self._shares
        self._own, width = own_features(layout, features[blocks[exchange.rank] : blocks[exchange.rank + 1]])
        # Untouched slots cost no memory: the operating system hands out pages on first use.
        self._pools = np.empty((n_at_once, GrowingTree(0, parameters).n_slots, 3, width), np.int64)
        self._roots = np.empty((n_at_once, 3, dataset.plan.n_positions), np.int64)
        self._threads = LeafThreads(dataset, parameters.num_leaves, workers)
        part_bytes = max(most_bytes(layout, features[first:last]) for first, last in pairwise(blocks))
        self._messages = HistogramMessages(exchange, part_bytes)
        # For the types of a tree's arrays, which stay the same from its root on: looked up once a tree.
        self._build_kernels: dict[int, Callable[..., None]] = {}
        self._search_kernels: dict[int, Callable[..., None]] = {}
        self._candidate_words = candidate_words(layout, parameters.max_cat_threshold)

    def begin_trees(self, trees: Sequence[GrowingTree]) -> IntArray:
        """Build the roots' histograms of the rows here; the roots' sums over all ranks."""
        self._exchange.begin_trees()
        for tree in trees:
            if len(self._shares.features):
                self._roots[tree.index] = self._threads.build_root(self._dataset.storage, tree)
        sums = [[tree.root["gradient"], tree.root["hessian"], tree.rows.counts[0]] for tree in trees]
        return self._exchange.reduce_sum(np.array(sums, np.int64))

    def expand(self, trees: Sequence[GrowingTree]) -> Sequence[IntArray]:
        """Split the picked leaves and find the best splits of their children over all ranks."""
        firsts = list(accumulate((tree.n_picked for tree in trees), initial=0))
        n_parts = firsts[-1]
        self._messages.make_room(n_parts)
        for tree, first in zip(trees, firsts, strict=False):
            self._build(tree, first)
        messages = self._messages.swap(n_parts)
        if messages is None:
            return [no_candidates(tree) for tree in trees]
        candidates = np.empty((2 * n_parts, self._candidate_words), np.int64)
        for tree, first in zip(trees, firsts, strict=False):
            received = ReceivedParts(messages, first, n_parts)
            self._search(tree, received, candidates[2 * first : 2 * first + tree.n_children])
        everybody = self._exchange.all_gather(candidates)
        return [everybody[:, 2 * first : 2 * last] for first, last in pairwise(firsts)]

    def end_trees(self, n_trees: int) -> None:
        """Close the count of what was sent for these trees."""
        self._exchange.end_trees(n_trees)

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Send the rows outside the bag down the tree."""
        label_others(grown, self._dataset, bag)

    def _build(self, tree: GrowingTree, first: int) -> None:
        index, is_root = tree.index, tree.at_root
        parts = self._messages.parts_of(slice(first, first + tree.n_picked))

        def build(thread: int, buffers: Buffers) -> None:
            planes = self._roots[index] if is_root else self._threads.planes[thread]
            arguments = (
                self._dataset.binned, tree.space, tree.every_row, planes, buffers, self._pools[index],
                self._shares, self._exchange.rank, parts, self._threads.taken,
            )  # fmt: skip
            if is_root:
                self._build_kernels[index] = for_types_of(build_and_encode, *arguments)
            self._build_kernels[index](*arguments)

        self._threads.run(build, tree.n_picked)

    def _search(self, tree: GrowingTree, received: ReceivedParts, candidates: IntArray) -> None:
        index, is_root = tree.index, tree.at_root

        def search(thread: int, buffers: Buffers) -> None:
            arguments = (
                tree.space, self._own, self._pools[index], received, self._exchange.rank,
                buffers, candidates, self._threads.taken,
            )  # fmt: skip
            if is_root:
                self._search_kernels[index] = for_types_of(merge_and_search, *arguments)
            self._search_kernels[index](*arguments)

        self._threads.run(search, tree.n_picked)


def trees_at_once(plan: StoragePlan, parameters: TrainParameters, n_outputs: int, n_rows: int, n_ranks: int) -> int:
    """How many of an iteration's trees to grow together: fewer rounds, but each tree takes memory of its own.

    The same on every rank: it follows from the rows and columns of all.
    """
    of_rows = n_rows // n_ranks * _BYTES_PER_ROW
    of_histograms = parameters.num_leaves * plan.n_positions // n_ranks * _BYTES_PER_POSITION
    return max(1, min(n_outputs, _BYTES_AT_ONCE // max(of_rows + of_histograms, 1)))


def feature_shares(layout: RecordArray, n_ranks: int) -> FeatureShares:
    """Who owns which features: neighbours in a histogram, so that every rank has about as many bins to search."""
    features = np.argsort(layout["position"], kind="stable").astype(np.int64)
    ends = np.cumsum(stored_bins(layout, features))
    total = int(ends[-1]) if len(ends) else 0
    # A feature belongs to the rank in whose share of all bins its middle lies.
    middles = ends - stored_bins(layout, features) / 2
    targets = [total * rank / n_ranks for rank in range(1, n_ranks)]
    return FeatureShares(features, np.array([0, *np.searchsorted(middles, targets), len(features)], np.int64))


def own_features(layout: RecordArray, features: IntArray) -> tuple[OwnFeatures, int]:
    """Some neighbouring features with positions counted from the first of them on, and how many positions there are."""
    if len(features) == 0:
        return OwnFeatures(features, layout), 0
    shifted = layout.copy()
    shifted["position"] -= layout["position"][features[0]]
    last = features[-1:]
    return OwnFeatures(features, shifted), int((shifted["position"][last] + stored_bins(layout, last))[0])
