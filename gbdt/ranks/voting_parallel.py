"""Rows are split over ranks, and only the histograms of elected features are added up (PV-Tree).

A round: every rank names, for both children of each picked leaf, the `top_k` features that split its own rows best.
The `2 * top_k` with most votes are elected; only their histograms travel, and the best split among them is chosen by
the sums of all rows, under the same rules as in every other mode. A feature that is best over all rows but nowhere
among the best of a rank is missed: the tree is not that of a local fit, but close (Meng et al., NeurIPS 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.feature_rules import single_rules
from dmlgbm.gbdt.growth.grown_tree import GrownTree
from dmlgbm.gbdt.growth.leaf_fitting import label_others
from dmlgbm.gbdt.growth.round_grower import GrowingTree, candidate_words, no_candidates
from dmlgbm.gbdt.kernels.layout import Buffers, RecordArray, TreeNodes
from dmlgbm.gbdt.kernels.voting_parallel import (
    LocalTree,
    VoteBuffers,
    build_and_vote,
    elect,
    encode_elected,
    search_elected,
)
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.ranks.exchange import RankExchange
from dmlgbm.gbdt.ranks.histogram_messages import HistogramMessages, most_bytes, stored_bins
from dmlgbm.gbdt.ranks.leaf_threads import LeafThreads
from dmlgbm.gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]


class VotingParallel:
    """Expands leaves by votes for features and sums over the elected ones."""

    def __init__(
        self, dataset: Dataset, parameters: TrainParameters, workers: Workers, exchange: RankExchange, top_k: int
    ) -> None:
        if top_k < 1:
            raise ValueError(f"top_k={top_k} is out of range: a rank must vote for at least 1 feature.")
        self._dataset = dataset
        self._exchange = exchange
        self._top_k = top_k
        layout, n_features = dataset.plan.layout, len(dataset.plan.features)
        example = GrowingTree(0, parameters)
        self._pool = np.empty((example.n_slots, 3, dataset.plan.n_positions), np.int64)
        self._local_tree = TreeNodes(
            np.zeros_like(example.tree.nodes),
            np.zeros_like(example.tree.categories),
            single_rules(parameters, dataset.plan.features),
        )
        self._threads = LeafThreads(dataset, parameters.num_leaves, workers)
        self._vote_buffers = [
            VoteBuffers(np.empty(n_features), np.empty(n_features, np.int64), planes) for planes in self._threads.planes
        ]
        most_searched = -(-min(2 * top_k, n_features) // exchange.n_ranks)
        widest = np.argsort(stored_bins(layout, np.arange(n_features)))[::-1][:most_searched]
        self._messages = HistogramMessages(exchange, most_bytes(layout, widest))
        self._candidate_words = candidate_words(layout, parameters.max_cat_threshold)

    def begin_trees(self, trees: Sequence[GrowingTree]) -> IntArray:
        """Build the root's histogram of the rows here; the root's sums over all ranks."""
        self._exchange.begin_trees()
        (tree,) = trees
        self._local = LocalTree(_for_a_share(tree.space.rules, self._exchange.n_ranks), self._local_tree)
        root, local_root = tree.root, self._local_tree.nodes[0]
        if len(tree.space.features):
            # The first slot that the grower hands out, to the root.
            self._pool[0] = self._threads.build_root(self._dataset.storage, tree)
        local_root["gradient"], local_root["hessian"] = root["gradient"], root["hessian"]
        sums = [root["gradient"], root["hessian"], tree.rows.counts[0]]
        return self._exchange.reduce_sum(np.array([sums], np.int64))

    def expand(self, trees: Sequence[GrowingTree]) -> Sequence[IntArray]:
        """Split the picked leaves and find the best splits of their children among elected features."""
        (tree,) = trees
        n_picked, n_children = tree.n_picked, tree.n_children
        ballots = np.empty((n_children, self._top_k), np.int64)
        self._threads.run(lambda thread, buffers: self._vote(tree, thread, buffers, ballots), n_picked)
        if not tree.any_child_may_split():
            return [no_candidates(tree)]
        all_ballots = self._exchange.all_gather(ballots.astype(np.int32))
        elected = np.empty((n_children, 2 * self._top_k), np.int64)
        elect(all_ballots, len(self._dataset.plan.features), elected)
        self._messages.make_room(n_children)
        self._threads.run(lambda thread, buffers: self._encode(tree, elected), n_children)
        messages = self._messages.swap(n_children)
        assert messages is not None
        candidates = np.empty((n_children, self._candidate_words), np.int64)

        def search(thread: int, buffers: Buffers) -> None:
            search_elected(
                self._dataset.plan.layout, tree.space, self._pool, elected, messages, self._exchange.rank,
                buffers, self._vote_buffers[thread], candidates, self._threads.taken,
            )  # fmt: skip

        self._threads.run(search, n_children)
        return [self._exchange.all_gather(candidates)]

    def end_trees(self, n_trees: int) -> None:
        """Close the count of what was sent for this tree."""
        self._exchange.end_trees(n_trees)

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Send the rows outside the bag down the tree."""
        label_others(grown, self._dataset, bag)

    def _vote(self, tree: GrowingTree, thread: int, buffers: Buffers, ballots: IntArray) -> None:
        build_and_vote(
            self._dataset.binned, tree.space, self._local, tree.every_row, self._pool,
            buffers, self._vote_buffers[thread], ballots, self._threads.taken,
        )  # fmt: skip

    def _encode(self, tree: GrowingTree, elected: IntArray) -> None:
        encode_elected(
            self._dataset.plan.layout, tree.space, self._pool, elected, self._exchange.rank,
            self._messages.parts, self._threads.taken,
        )  # fmt: skip


def _for_a_share(rules: RecordArray, n_ranks: int) -> RecordArray:
    """What a split must fulfil on one rank's share of the rows to be worth a vote; splits are made by all rows."""
    local = rules.copy()
    for name in ("min_rows", "min_hessian", "category_min_rows", "min_rows_per_group"):
        local[name] = np.maximum(1, rules[name] // n_ranks)
    local["min_gain"] = 0.0
    return local
