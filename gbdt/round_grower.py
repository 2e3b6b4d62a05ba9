"""Grows trees together with others, in rounds: keeps the tree and decides what each round does.

How the leaves of a round are split, and what the others have to be told about it, is the business of a
`LeafExpander`: one for each way to share the work. The tree is that of `TreeGrower`, bit for bit, unless the expander
leaves out splits on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gbdt.dataset import Dataset
from gbdt.grown_tree import GrownTree, label_leaves, leaves_of
from gbdt.kernels.layout import NODE, RecordArray
from gbdt.kernels.leaf_values import Labels
from gbdt.kernels.round_growth import (
    CANDIDATE_WORDS,
    CATEGORIES_PER_WORD,
    IS_LAST,
    N_CHOSEN,
    N_CLAIMED,
    N_COUNTERS,
    N_FREE,
    N_NODES,
    N_PICKED,
    hand_in_round,
    pick_leaves,
)
from gbdt.parameters import TrainParameters
from gbdt.quantisation import Quantised
from gbdt.sampling import chosen_features
from gbdt.split_rules import split_rules
from gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]


class GrowingTree:
    """The tree that is being grown, where the rows here are in it, and the leaves of the current round."""

    quantised: Quantised
    rules: RecordArray
    features: IntArray
    every_row: bool

    def __init__(self, n_rows: int, parameters: TrainParameters) -> None:
        # Rounds may expand leaves in vain, up to as many again as the tree has.
        self.max_splits = 2 * (parameters.num_leaves - 1)
        n_nodes = 2 * self.max_splits + 1
        self.nodes = np.zeros(n_nodes, NODE)
        self.categories = np.zeros((n_nodes, parameters.max_cat_threshold), np.int32)
        self.starts = np.zeros(n_nodes, np.int64)
        self.counts = np.zeros(n_nodes, np.int64)
        self.rows = np.empty(n_rows, np.uint32)
        self.scratch = np.empty(n_rows, np.uint32)
        self.picked = np.empty(self.max_splits + 1, np.int64)
        self.lefts = np.empty(self.max_splits + 1, np.int64)
        self.slots = np.empty(self.max_splits + 1, np.int64)
        self.counters = np.zeros(N_COUNTERS, np.int64)

    @property
    def n_slots(self) -> int:
        """Histograms that may be needed at once."""
        return self.max_splits + 2

    @property
    def n_picked(self) -> int:
        """Leaves of this round."""
        return int(self.counters[N_PICKED])

    @property
    def is_last(self) -> bool:
        """Whether nobody will ask for the splits of this round's children."""
        return bool(self.counters[IS_LAST])

    @property
    def n_children(self) -> int:
        """Places for candidates: two a leaf."""
        return 2 * self.n_picked

    def any_child_may_split(self) -> bool:
        """Whether any child of this round, whose leaves have been split, has been given a histogram."""
        slots = self.nodes["slot"]
        if self.picked[0] < 0:
            return bool(slots[0] >= 0)
        lefts = self.lefts[: self.n_picked]
        return bool((np.maximum(slots[lefts], slots[lefts + 1]) >= 0).any())


class LeafExpander(Protocol):
    """One way to share the work of a round."""

    def begin_tree(self, tree: GrowingTree) -> IntArray:
        """Gradient, hessian and rows of the root, over all ranks; `tree.counts[0]` are those here."""

    def expand(self, tree: GrowingTree) -> IntArray | None:
        """Split the picked leaves (the root, node -1, is only searched).

        Enters the children in the tree and returns the candidates [rank, child, word] for their best splits, child
        0 and 1 being those of the first leaf. None if no child may be split.
        """

    def end_tree(self) -> None:
        """The tree is complete."""

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""


@dataclass
class Rounds:
    """How much growing together took."""

    per_tree: list[int] = field(default_factory=list)
    splits_in_vain: int = 0


class RoundGrower:
    """Grows trees over the rows of all ranks, one at a time, in buffers that are allocated once."""

    def __init__(self, dataset: Dataset, parameters: TrainParameters, workers: Workers, expander: LeafExpander) -> None:
        self._dataset = dataset
        self._parameters = parameters
        self._workers = workers
        self._expander = expander
        self.tree = GrowingTree(dataset.n_rows, parameters)
        self.words = np.empty((2, dataset.n_rows), np.int64)
        self.rounds = Rounds()
        self._labels: Labels = np.empty(dataset.n_rows, np.uint8 if parameters.num_leaves <= 255 else np.uint32)
        self._frontier = np.empty(parameters.num_leaves + 1, np.int64)
        self._chosen = np.empty(parameters.num_leaves, np.int64)
        self._free_slots = np.empty(self.tree.n_slots, np.int64)

    def grow(self, quantised: Quantised, bag: npt.NDArray[np.uint32] | None, tree: int) -> GrownTree:
        """Grow one tree over all rows, or over those in `bag`."""
        self._begin(quantised, bag, tree)
        n_rounds = 0
        while self.tree.n_picked:
            self._expand_picked()
            n_rounds += 1
            self._pick()
        self._expander.end_tree()
        growing = self.tree
        splits = self._chosen[: growing.counters[N_CHOSEN]].copy()
        self.rounds.per_tree.append(n_rounds)
        self.rounds.splits_in_vain += int(growing.counters[N_CLAIMED]) - len(splits)
        leaves = leaves_of(growing.nodes, splits)
        grown = GrownTree(
            growing.nodes, growing.categories, splits, leaves, growing.rows, growing.starts, growing.counts,
            self._labels, self._parameters.num_leaves,
        )  # fmt: skip
        label_leaves(grown, int(growing.counts[0]), growing.every_row, self._workers)
        return grown

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""
        self._expander.label_others(grown, bag)

    def _begin(self, quantised: Quantised, bag: npt.NDArray[np.uint32] | None, number: int) -> None:
        """Enter the root and make it the only leaf of the first round."""
        parameters, tree = self._parameters, self.tree
        n_features = len(self._dataset.plan.features)
        tree.quantised = quantised
        tree.features = chosen_features(n_features, parameters.colsample_bytree, parameters.seed, number)
        tree.rules = split_rules(parameters, quantised, number, len(tree.features))
        tree.every_row = bag is None
        n_rows = self._dataset.n_rows if bag is None else len(bag)
        if bag is not None:
            tree.rows[:n_rows] = bag
        tree.nodes["state"] = 0
        root = tree.nodes[0]
        for name, value in (("start", 0), ("depth", 0), ("left", -1), ("gain", -1.0), ("slot", -1), ("path", 0)):
            root[name] = value
        root["count"] = n_rows
        tree.starts[0], tree.counts[0] = 0, n_rows
        root["gradient"], root["hessian"], root["count"] = self._expander.begin_tree(tree)
        self._free_slots[:] = np.arange(tree.n_slots)[::-1]
        tree.counters[:] = 0
        tree.counters[N_NODES], tree.counters[N_FREE] = 1, tree.n_slots - 1
        tree.counters[N_PICKED] = 1 if n_features else 0
        tree.picked[0], tree.lefts[0], tree.slots[0] = -1, 0, 0

    def _expand_picked(self) -> None:
        tree = self.tree
        candidates = self._expander.expand(tree)
        if candidates is None:
            candidates = np.empty((0, tree.n_children, CANDIDATE_WORDS), np.int64)
        hand_in_round(
            tree.rules, tree.nodes, tree.categories, tree.picked, tree.lefts, tree.slots,
            tree.n_picked, candidates, self._free_slots, tree.counters,
        )  # fmt: skip

    def _pick(self) -> None:
        tree, parameters = self.tree, self._parameters
        pick_leaves(
            tree.nodes, parameters.num_leaves, parameters.grow_policy == "depthwise",
            self._frontier, self._chosen, self._free_slots, tree.counters, tree.picked, tree.lefts, tree.slots,
        )  # fmt: skip


def candidate_words(layout: RecordArray, max_cat_threshold: int) -> int:
    """Words of a candidate: room for categories only where there are categorical features."""
    if not layout["categorical"].any():
        return CANDIDATE_WORDS
    return CANDIDATE_WORDS - (-max_cat_threshold // CATEGORIES_PER_WORD)
