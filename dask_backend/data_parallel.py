"""Rows are split over ranks, every rank has all columns: ranks add up histograms, each for a share of the features.

A round: every rank builds the histogram of the smaller child of each picked leaf from its own rows and sends each rank
that one's features, encoded (`gbdt.kernels.histogram_codec`). The owner adds up, subtracts from the parent, searches,
and tells everybody its best splits. The tree is that of a fit on one machine, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from dask_backend.exchange import RankExchange
from gbdt.dataset import Dataset
from gbdt.grower import search_buffers
from gbdt.grown_tree import GrownTree
from gbdt.kernels.histogram_codec import HEADER_BYTES, MOST_BYTES_PER_BIN, SLACK
from gbdt.kernels.histogram_exchange import (
    build_and_encode,
    build_share,
    join_shares,
    merge_and_search,
    total_lengths,
    write_messages,
)
from gbdt.kernels.layout import Buffers, RecordArray
from gbdt.leaf_fitting import label_others
from gbdt.parameters import TrainParameters
from gbdt.round_grower import GrowingTree, candidate_words
from gbdt.threads import ROWS_WORTH_A_THREAD, Workers

IntArray = npt.NDArray[np.int64]

# Messages of a round have one agreed length, of which there are few: the communicator keeps plans for those it knows.
_LENGTHS_PER_OCTAVE_BITS = 4
_SHORTEST = 512


class DataParallel:
    """Expands leaves by reduce-scatter of histograms."""

    def __init__(
        self, dataset: Dataset, parameters: TrainParameters, workers: Workers, exchange: RankExchange
    ) -> None:
        self._dataset = dataset
        self._workers = workers
        self._exchange = exchange
        layout, n_ranks = dataset.plan.layout, exchange.n_ranks
        self._features, self._blocks = feature_blocks(layout, n_ranks)
        own = slice(self._blocks[exchange.rank], self._blocks[exchange.rank + 1])
        self._own_features = self._features[own]
        self._own_layout, width = own_positions(layout, self._own_features)
        n_slots = GrowingTree(0, parameters).n_slots
        # Untouched slots cost no memory: the operating system hands out pages on first use.
        self._pool = np.empty((n_slots, 3, width), np.int64)
        self._buffers = [search_buffers(dataset.plan, parameters.num_leaves) for _ in range(workers.n_threads)]
        self._planes = np.empty((workers.n_threads, 3, dataset.plan.n_positions), np.int64)
        sizes = [_most_bytes(layout, self._features[a:b]) for a, b in zip(self._blocks, self._blocks[1:], strict=False)]
        self._staging = np.empty((1, n_ranks, max(sizes)), np.uint8)
        self._lengths = np.zeros((1, n_ranks), np.int64)
        self._outgoing = self._incoming = np.empty(0, np.uint8)
        self._candidate_words = candidate_words(layout, parameters.max_cat_threshold)
        self._taken = np.zeros(1, np.int64)

    def begin_tree(self, tree: GrowingTree) -> IntArray:
        """Build the root's histogram of the rows here; the root's sums over all ranks."""
        self._exchange.begin_tree()
        packing, words, n_rows = tree.quantised.packing, tree.quantised.words, int(tree.counts[0])
        storage = self._dataset.storage
        packed = n_rows <= int(packing["packed_rows"][0])
        n_shares = 1 if packed else min(len(self._buffers), 1 + n_rows // ROWS_WORTH_A_THREAD)
        bounds = [n_rows * k // n_shares for k in range(n_shares + 1)]

        def build(share: int) -> None:
            build_share(
                storage, packing, tree.rows, bounds[share], bounds[share + 1], tree.every_row, words,
                self._buffers[share].block, packed, self._planes[share],
            )  # fmt: skip

        if len(self._features):
            self._workers.run([partial(build, share) for share in range(n_shares)])
            join_shares(
                storage, packing, tree.rows, tree.every_row, words, packed, self._planes, n_shares, tree.nodes
            )
        root = tree.nodes[0]
        return self._exchange.sum(np.array([root["gradient"], root["hessian"], n_rows], np.int64))

    def expand(self, tree: GrowingTree) -> IntArray | None:
        """Split the picked leaves and find the best splits of their children over all ranks."""
        n_picked = tree.n_picked
        self._make_room(n_picked)
        self._run_threads(lambda thread, buffers: self._build(tree, thread, buffers), n_picked)
        if not _any_child_may_split(tree):
            return None
        messages = self._exchange_histograms(n_picked)
        candidates = np.empty((2 * n_picked, self._candidate_words), np.int64)
        self._run_threads(lambda thread, buffers: self._search(tree, buffers, messages, candidates), n_picked)
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
            tree.rows, tree.scratch, tree.every_row, tree.quantised.words, self._planes[thread], buffers,
            tree.nodes, tree.categories, tree.starts, tree.counts,
            tree.picked, tree.lefts, tree.slots, tree.n_picked, tree.is_last,
            self._pool, self._features, self._blocks, self._exchange.rank, self._staging, self._lengths, self._taken,
        )  # fmt: skip

    def _search(
        self, tree: GrowingTree, buffers: Buffers, messages: npt.NDArray[np.uint8], candidates: IntArray
    ) -> None:
        merge_and_search(
            self._own_layout, tree.quantised.packing, tree.rules, tree.features, self._own_features,
            tree.nodes, tree.categories, tree.picked, tree.lefts, tree.slots, tree.n_picked,
            self._pool, messages, self._exchange.rank, buffers, candidates, self._taken,
        )  # fmt: skip

    def _exchange_histograms(self, n_picked: int) -> npt.NDArray[np.uint8]:
        """What every rank sent of this rank's features, [rank, byte]."""
        n_ranks = self._exchange.n_ranks
        longest = self._exchange.maximum(np.array([total_lengths(self._lengths, n_picked)], np.int64))
        size = _agreed_length(int(longest[0]))
        if n_ranks * size > len(self._outgoing):
            self._outgoing, self._incoming = (np.empty(n_ranks * size * 5 // 4, np.uint8) for _ in range(2))
        outgoing = self._outgoing[: n_ranks * size].reshape(n_ranks, size)
        write_messages(self._staging, self._lengths, n_picked, outgoing)
        return self._exchange.all_to_all(outgoing, self._incoming[: n_ranks * size].reshape(n_ranks, size))

    def _make_room(self, n_picked: int) -> None:
        if n_picked > len(self._staging):
            n_leaves = max(n_picked, 2 * len(self._staging))
            self._staging = np.empty((n_leaves, *self._staging.shape[1:]), np.uint8)
            self._lengths = np.zeros((n_leaves, self._exchange.n_ranks), np.int64)

    def _run_threads(self, work: Callable[[int, Buffers], None], n_picked: int) -> None:
        """Let threads take leaves until there are none left."""
        self._taken[0] = 0
        threads = list(enumerate(self._buffers[:n_picked]))
        self._workers.run([partial(work, thread, buffers) for thread, buffers in threads])


def feature_blocks(layout: RecordArray, n_ranks: int) -> tuple[IntArray, IntArray]:
    """All features in the order of their place in a histogram, and where each rank's share begins and the last ends."""
    features = np.argsort(layout["position"], kind="stable").astype(np.int64)
    ends = np.cumsum(_stored(layout, features))
    total = int(ends[-1]) if len(ends) else 0
    targets = [total * rank // n_ranks for rank in range(1, n_ranks)]
    return features, np.array([0, *np.searchsorted(ends, targets), len(features)], np.int64)


def own_positions(layout: RecordArray, own_features: IntArray) -> tuple[RecordArray, int]:
    """The layout with positions counted from the first of some neighbouring features on, and how many they have."""
    if len(own_features) == 0:
        return layout, 0
    shifted = layout.copy()
    first = int(layout["position"][own_features[0]])
    shifted["position"] -= first
    last = own_features[-1]
    return shifted, int(shifted["position"][last] + _stored(layout, own_features[-1:])[0])


def _stored(layout: RecordArray, features: IntArray) -> IntArray:
    """The bins of each feature that a histogram holds."""
    chosen = layout[features]
    return chosen["bins"].astype(np.int64) - (chosen["implicit_bin"] >= 0)


def _most_bytes(layout: RecordArray, features: IntArray) -> int:
    """The most bytes that a histogram of these features is ever encoded in."""
    return HEADER_BYTES * len(features) + MOST_BYTES_PER_BIN * int(_stored(layout, features).sum()) + SLACK


def _agreed_length(longest: int) -> int:
    """The next length up of those in use, with slack behind it."""
    longest = max(longest + SLACK, _SHORTEST)
    step = 1 << max(longest.bit_length() - 1 - _LENGTHS_PER_OCTAVE_BITS, 0)
    return -(-longest // step) * step


def _any_child_may_split(tree: GrowingTree) -> bool:
    n_picked = tree.n_picked
    if tree.picked[0] < 0:
        return bool(tree.nodes["slot"][0] >= 0)
    lefts = tree.lefts[:n_picked]
    slots = tree.nodes["slot"]
    return bool((np.maximum(slots[lefts], slots[lefts + 1]) >= 0).any())
