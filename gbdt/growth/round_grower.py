"""Grows trees together with others, in rounds: keeps the tree and decides what each round does.

How the leaves of a round are split, and what the others have to be told about it, is the business of a
`LeafExpander`: one for each way to share the work. The tree is that of `TreeGrower`, bit for bit, unless the expander
leaves out splits on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.dataset import Dataset
from dmlgbm.gbdt.growth.feature_rules import rules_of_features
from dmlgbm.gbdt.growth.grown_tree import GrownTree, label_leaves, leaves_of
from dmlgbm.gbdt.growth.leaf_fitting import add_to_scores
from dmlgbm.gbdt.growth.sampling import chosen_features
from dmlgbm.gbdt.growth.split_rules import split_rules
from dmlgbm.gbdt.growth.tree_request import TreeRequest
from dmlgbm.gbdt.kernels.compiler import for_types_of
from dmlgbm.gbdt.kernels.layout import (
    NODE,
    NodeRows,
    RecordArray,
    RoundLeaves,
    RoundSpace,
    TreeNodes,
)
from dmlgbm.gbdt.kernels.leaf_values import Labels
from dmlgbm.gbdt.kernels.round_growth import (
    CANDIDATE_WORDS,
    CATEGORIES_PER_WORD,
    LEAVES_PICKED,
    N_ROUND_COUNTERS,
    NODES_SO_FAR,
    SLOTS_LEFT,
    SPLITS_IN_ORDER,
    SPLITS_SO_FAR,
    any_child_has_slot,
    close_round,
)
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class GrowingTree:
    """A tree that is being grown, where the rows here are in it, and its leaves of the current round."""

    space: RoundSpace
    every_row: bool
    n_rounds: int

    def __init__(
        self,
        n_rows: int,
        parameters: TrainParameters,
        scratch: npt.NDArray[np.uint32] | None = None,
        index: int = 0,
        features: IntArray | None = None,
    ) -> None:
        self.index = index  # among the trees that are grown together
        # Rounds may expand leaves in vain, up to as many again as the tree has.
        self.max_splits = 2 * (parameters.num_leaves - 1)
        n_nodes = 2 * self.max_splits + 1
        categories = np.zeros((n_nodes, parameters.max_cat_threshold), np.int32)
        # Who asks only how much room a tree takes knows no features.
        rules = () if features is None else rules_of_features(parameters, features, n_nodes)
        self.tree = TreeNodes(np.zeros(n_nodes, NODE), categories, *rules)
        self.words = np.empty((2, n_rows), np.int64)
        self.rows = NodeRows(
            numbers=np.empty(n_rows, np.uint32),
            # Trees that are expanded one after the other may share it.
            scratch=np.empty(n_rows, np.uint32) if scratch is None else scratch,
            starts=np.zeros(n_nodes, np.int64),
            counts=np.zeros(n_nodes, np.int64),
        )
        self.labels: Labels = np.empty(n_rows, np.uint8 if parameters.num_leaves <= 255 else np.uint32)
        self.leaves = RoundLeaves(
            picked=np.empty(self.max_splits + 1, np.int64),
            lefts=np.empty(self.max_splits + 1, np.int64),
            slots=np.empty(self.max_splits + 1, np.int64),
            counters=np.zeros(N_ROUND_COUNTERS, np.int64),
        )
        self.chosen = np.empty(parameters.num_leaves, np.int64)
        self.free_slots = np.empty(self.n_slots, np.int64)
        # Looked up once: the arrays stay the same.
        self._any_child_has_slot = for_types_of(any_child_has_slot, self.tree.nodes, self.leaves)
        self._picked_from = (
            self.free_slots, np.empty(parameters.num_leaves + 1, np.int64), self.chosen,
            parameters.num_leaves, parameters.grow_policy == "depthwise",
        )  # fmt: skip
        self._close_round: Callable[..., None] | None = None

    @property
    def n_slots(self) -> int:
        """Histograms that may be needed at once."""
        return self.max_splits + 2

    @property
    def n_picked(self) -> int:
        """Leaves of this round."""
        return int(self.leaves.counters[LEAVES_PICKED])

    @property
    def root(self) -> np.void:
        """The NODE of the root."""
        return cast(np.void, self.tree.nodes[0])

    @property
    def at_root(self) -> bool:
        """Whether this round is that of the root."""
        return bool(self.leaves.picked[0] < 0)

    @property
    def n_children(self) -> int:
        """Room for candidates: two a leaf."""
        return 2 * self.n_picked

    def any_child_may_split(self) -> bool:
        """Whether any child of this round, whose leaves have been split, has been given a histogram."""
        return self._any_child_has_slot(self.tree.nodes, self.leaves)

    def close_round(self, candidates: IntArray) -> None:
        """Enter what a round has found, and choose the leaves of the next one: none when the tree is complete."""
        candidates = np.ascontiguousarray(candidates)
        arguments = (self.space.rules, self.tree, self.leaves, *self._picked_from, candidates)
        if self._close_round is None:
            self._close_round = for_types_of(close_round, *arguments)
        self._close_round(*arguments)
        self.n_rounds += 1


class LeafExpander(Protocol):
    """One way to share the work of a round."""

    def begin_trees(self, trees: Sequence[GrowingTree]) -> IntArray:
        """Gradient, hessian and rows of each root, over all ranks; `tree.rows.counts[0]` are those here."""

    def expand(self, trees: Sequence[GrowingTree]) -> Sequence[IntArray]:
        """Split the picked leaves of each tree (a root, which is node -1, is only searched).

        Enters the children in the tree and returns the candidates [rank, child, word] for their best splits, child
        0 and 1 being those of the first leaf; no rank's, if no child may be split.
        """

    def end_trees(self, n_trees: int) -> None:
        """The trees are complete."""

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""


@dataclass
class Rounds:
    """How much growing together took."""

    per_tree: list[int] = field(default_factory=list)
    splits_in_vain: int = 0


class RoundGrower:
    """Grows trees over the rows of all ranks, some at a time, in buffers that are allocated once."""

    packs = False

    def __init__(
        self,
        dataset: Dataset,
        parameters: TrainParameters,
        workers: Workers,
        expander: LeafExpander,
        n_at_once: int = 1,
    ) -> None:
        self._dataset = dataset
        self._parameters = parameters
        self._workers = workers
        self._expander = expander
        scratch = np.empty(dataset.n_rows, np.uint32)
        features = dataset.plan.features
        self._trees = [GrowingTree(dataset.n_rows, parameters, scratch, index, features) for index in range(n_at_once)]
        self.rounds = Rounds()

    @property
    def words(self) -> list[npt.NDArray[np.int64]]:
        """Where the packed gradients of each of the trees are written that are grown at once."""
        return [tree.words for tree in self._trees]

    def grow_together(self, requests: Sequence[TreeRequest], bag: npt.NDArray[np.uint32] | None) -> list[GrownTree]:
        """Grow trees over all rows, or over those in `bag`, round by round together."""
        trees = self._trees[: len(requests)]
        for tree, request in zip(trees, requests, strict=True):
            self._begin(tree, request, bag)
        totals = self._expander.begin_trees(trees)
        for tree, (gradient, hessian, count) in zip(trees, totals.tolist(), strict=True):
            root = tree.root
            root["gradient"], root["hessian"], root["count"] = gradient, hessian, count
        while unfinished := [tree for tree in trees if tree.n_picked]:
            for tree, candidates in zip(unfinished, self._expander.expand(unfinished), strict=True):
                tree.close_round(candidates)
        self._expander.end_trees(len(trees))
        return [self._finished(tree) for tree in trees]

    def derive(self) -> None:
        """Derivatives are the business of whoever calls."""

    def add_to_scores(self, grown: GrownTree, output: int, values: FloatArray, scores: FloatArray) -> None:
        """Add a tree to the scores of all rows."""
        add_to_scores(grown, values, scores, self._workers)

    def label_others(self, grown: GrownTree, bag: npt.NDArray[np.uint32]) -> None:
        """Write the leaf of every row outside the bag to the tree's labels."""
        self._expander.label_others(grown, bag)

    def _begin(self, tree: GrowingTree, request: TreeRequest, bag: npt.NDArray[np.uint32] | None) -> None:
        """Enter the root, without its sums, and make it the only leaf of the first round."""
        parameters, quantised, number = self._parameters, request.quantised, request.number
        n_features = len(self._dataset.plan.features)
        features = chosen_features(n_features, parameters.colsample_bytree, parameters.seed, number)
        rules = split_rules(parameters, quantised, number, len(features))
        tree.space = RoundSpace(quantised.packed, rules, features, tree.tree, tree.rows, tree.leaves)
        tree.every_row = bag is None
        tree.n_rounds = 0
        n_rows = self._dataset.n_rows if bag is None else len(bag)
        if bag is not None:
            tree.rows.numbers[:n_rows] = bag
        tree.tree.nodes["state"] = 0
        root = tree.root
        for name, value in (("start", 0), ("depth", 0), ("left", -1), ("gain", -1.0), ("slot", -1), ("path", 0)):
            root[name] = value
        root["gradient"], root["hessian"], root["count"] = 0, 0, n_rows
        root["lower"], root["upper"], root["parent_output"] = -np.inf, np.inf, 0.0
        tree.rows.starts[0], tree.rows.counts[0] = 0, n_rows
        tree.free_slots[:] = np.arange(tree.n_slots)[::-1]
        leaves = tree.leaves
        leaves.counters[:] = 0
        leaves.counters[NODES_SO_FAR], leaves.counters[SLOTS_LEFT] = 1, tree.n_slots - 1
        leaves.counters[LEAVES_PICKED] = 1 if n_features else 0
        leaves.picked[0], leaves.lefts[0], leaves.slots[0] = -1, 0, 0

    def _finished(self, tree: GrowingTree) -> GrownTree:
        counters, rows = tree.leaves.counters, tree.rows
        splits = tree.chosen[: counters[SPLITS_IN_ORDER]].copy()
        self.rounds.per_tree.append(tree.n_rounds)
        self.rounds.splits_in_vain += int(counters[SPLITS_SO_FAR]) - len(splits)
        leaves = leaves_of(tree.tree.nodes, splits)
        grown = GrownTree(
            tree.tree, splits, leaves, rows.numbers, rows.starts, rows.counts, tree.labels, self._parameters.num_leaves
        )
        label_leaves(grown, int(rows.counts[0]), tree.every_row, self._workers)
        return grown


def no_candidates(tree: GrowingTree) -> IntArray:
    """What comes of a round in which no child may be split."""
    return np.empty((0, tree.n_children, CANDIDATE_WORDS), np.int64)


def candidate_words(layout: RecordArray, max_cat_threshold: int) -> int:
    """Words of a candidate: room for categories only where there are categorical features."""
    if not layout["categorical"].any():
        return CANDIDATE_WORDS
    return CANDIDATE_WORDS - (-max_cat_threshold // CATEGORIES_PER_WORD)
