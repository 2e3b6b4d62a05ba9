"""Growing a tree in rounds: the leaves that are probably due are expanded together, and everybody meets once a round.

What a leaf's best split is does not depend on when it is expanded, so a round may expand leaves that strict order would
not have split; `replay_in_order` finds the tree of strict order in the end. Who takes part in a round knows the whole
tree with its global sums (`TreeNodes`) and where its own rows of each node are (`NodeRows`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import bits_from_float, borrowed, float_from_bits, inlined, kernel
from dmlgbm.gbdt.kernels.layout import (
    CLAIMED,
    LEAF,
    SPLIT,
    Buffers,
    PackedGradients,
    RecordArray,
    RoundLeaves,
    RoundSpace,
    TreeNodes,
)
from dmlgbm.gbdt.kernels.leaf_expansion import create_children, may_split
from dmlgbm.gbdt.kernels.output_bounds import enter_frames
from dmlgbm.gbdt.kernels.split_search import begin_search, choose_features, end_search, inherit_groups, search_features
from dmlgbm.gbdt.kernels.tree_growth import replay_in_order

# Positions in the array of counters that a tree grown in rounds has.
NODES_SO_FAR, SPLITS_SO_FAR, SLOTS_LEFT, SPLITS_IN_ORDER, LEAVES_PICKED, IS_LAST_ROUND = range(6)
N_ROUND_COUNTERS = 6

# Words of a candidate: score, feature, bin, missing_left, sums of the left side (3), number of categories; then
# four category bins a word.
CANDIDATE_WORDS = 8
CATEGORIES_PER_WORD = 4

IntArray = npt.NDArray[np.int64]


@kernel
def pick_leaves(
    nodes: RecordArray,
    leaves: RoundLeaves,
    free_slots: IntArray,
    frontier: IntArray,
    chosen: IntArray,
    max_leaves: int,
    level_wise: bool,
) -> None:
    """Choose the leaves of the next round, and claim children and a slot for each; none when the tree is complete.

    The first leaf that is due is certain to be split, and so are all of its depth in level-wise order. Otherwise the
    first third of the leaves that are due is taken. (Measured on three tables: 28 to 29 rounds and 1 to 2 % of splits
    in vain for 255 leaves, 15 to 16 and 4 to 10 % for 31; with half of them 24 and 14 %, 13 to 14 and 10 to 19 %.)
    """
    counters = leaves.counters
    n_chosen, n_due, _, _ = replay_in_order(nodes, max_leaves, level_wise, frontier, chosen)
    due = chosen[::-1]
    still_due = max_leaves - 1 - n_chosen
    # Splits made in vain must leave room for all those that are still due.
    room = (nodes.size - 1) // 2 - counters[SPLITS_SO_FAR]
    n_wanted = (n_due + 2) // 3
    if level_wise:
        while n_wanted < n_due and nodes[due[n_wanted]].depth == nodes[due[0]].depth:
            n_wanted += 1
        while n_wanted > 0 and nodes[due[n_wanted - 1]].depth != nodes[due[0]].depth:
            n_wanted -= 1
    n_wanted = min(n_wanted, max(1, room - still_due + 1), n_due)
    for k in range(n_wanted):
        leaves.picked[k], leaves.lefts[k] = due[k], counters[NODES_SO_FAR]
        nodes[due[k]].state = CLAIMED
        counters[NODES_SO_FAR] += 2
        counters[SLOTS_LEFT] -= 1
        leaves.slots[k] = free_slots[counters[SLOTS_LEFT]]
    counters[SPLITS_SO_FAR] += n_wanted
    counters[SPLITS_IN_ORDER], counters[LEAVES_PICKED] = n_chosen, n_wanted
    counters[IS_LAST_ROUND] = 1 if still_due == 1 else 0


@kernel
def any_child_has_slot(nodes: RecordArray, leaves: RoundLeaves) -> bool:
    """Whether any child of these leaves has been given a histogram; the root is the only child of node -1."""
    picked, lefts = leaves.picked, leaves.lefts
    highest = nodes[0].slot if picked[0] < 0 else np.int64(-1)
    for k in range(leaves.counters[LEAVES_PICKED] if picked[0] >= 0 else 0):
        highest = max(highest, nodes[lefts[k]].slot, nodes[lefts[k] + 1].slot)
    return highest >= 0


@inlined
def smaller_and_larger(nodes: RecordArray, node: int, left: int) -> tuple[int, int]:
    """The children of a node by their rows everywhere; the root is the only child of node -1."""
    if node < 0:
        return 0, 0
    smaller = left if nodes[left].count <= nodes[left + 1].count else left + 1
    return smaller, 2 * left + 1 - smaller


@inlined
def enter_children(space: RoundSpace, k: int) -> bool:
    """Enter the children of the leaf picked as number k with their slots; whether histograms are needed at all."""
    nodes, rules, node, left = space.tree.nodes, space.rules, space.leaves.picked[k], space.leaves.lefts[k]
    create_children(nodes, node, left)
    if rules[0].by_gain == 1:
        enter_frames(rules, space.tree, node, left)
    if space.tree.groups.shape[1] > 0:
        inherit_groups(space.tree, node, left)
    smaller, larger = smaller_and_larger(nodes, node, left)
    if not may_split(rules, nodes, larger) or space.leaves.counters[IS_LAST_ROUND] == 1:
        return False
    nodes[larger].slot = nodes[node].slot
    if may_split(rules, nodes, smaller):
        nodes[smaller].slot = space.leaves.slots[k]
    return True


@inlined
def enter_root(space: RoundSpace) -> bool:
    """Give the root, the only leaf of its round, its slot; whether its histogram is needed at all."""
    nodes = space.tree.nodes
    nodes[0].slot = space.leaves.slots[0] if may_split(space.rules, nodes, 0) else -1
    return nodes[0].slot >= 0


@inlined
def search_child(
    space: RoundSpace,
    layout: RecordArray,
    own_features: IntArray,
    planes: npt.NDArray[np.int64],
    buffers: Buffers,
    child: int,
) -> None:
    """Find the best split of a child among some features; the node's gain is a score until `adopt_best`."""
    nodes, packing, rules = space.tree.nodes, space.gradients.packing, space.rules
    begin_search(rules, nodes, child)
    choose_features(rules, space.features, space.tree, child, buffers, buffers.usable[0])
    search_features(
        layout, packing, rules, own_features, buffers.usable[0], planes,
        nodes[child].count <= packing[0].packed_rows, buffers, space.tree, child,
    )  # fmt: skip


@inlined
def write_candidate(tree: TreeNodes, child: int, candidate: IntArray) -> None:
    """The best split of a child as words."""
    nodes = tree.nodes
    candidate[0] = bits_from_float(nodes[child].gain)
    candidate[1], candidate[2] = nodes[child].feature, nodes[child].bin
    candidate[3] = nodes[child].missing_left
    candidate[4], candidate[5] = nodes[child].left_gradient, nodes[child].left_hessian
    candidate[6] = nodes[child].left_count
    candidate[7] = 0
    if nodes[child].feature >= 0 and nodes[child].bin < 0:
        candidate[7] = nodes[child].n_categories
        for word in range(CANDIDATE_WORDS, candidate.size):
            candidate[word] = 0
        for k in range(nodes[child].n_categories):
            word = CANDIDATE_WORDS + k // CATEGORIES_PER_WORD
            candidate[word] |= np.int64(tree.categories[child, k]) << (16 * (k % CATEGORIES_PER_WORD))


@inlined
def search_children(
    space: RoundSpace,
    layout: RecordArray,
    own_features: IntArray,
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    k: int,
    candidates: IntArray,
) -> None:
    """The best splits of the children, of leaf number k, that have a histogram, as candidates [child, word]."""
    nodes, node = space.tree.nodes, space.leaves.picked[k]
    first = 0 if node < 0 else space.leaves.lefts[k]
    for child in range(first, first + (1 if node < 0 else 2)):
        if nodes[child].slot >= 0:
            search_child(space, layout, own_features, pool[nodes[child].slot], buffers, child)
            write_candidate(space.tree, child, candidates[2 * k + child - first])


@inlined
def read_candidate(tree: TreeNodes, child: int, candidate: IntArray) -> None:
    """Enter a split that another rank found."""
    nodes = tree.nodes
    nodes[child].gain = float_from_bits(candidate[0])
    nodes[child].feature, nodes[child].bin = candidate[1], candidate[2]
    nodes[child].missing_left = candidate[3]
    nodes[child].left_gradient, nodes[child].left_hessian = candidate[4], candidate[5]
    nodes[child].left_count = candidate[6]
    nodes[child].n_categories = candidate[7]
    for k in range(candidate[7]):
        word = candidate[CANDIDATE_WORDS + k // CATEGORIES_PER_WORD]
        tree.categories[child, k] = (word >> (16 * (k % CATEGORIES_PER_WORD))) & 0xFFFF


@inlined
def adopt_best(rules: RecordArray, tree: TreeNodes, child: int, candidates: IntArray) -> None:
    """Of the candidates [rank, word] of a child take the one with the highest score, then the lowest feature."""
    best = -1
    for rank in range(candidates.shape[0]):
        if candidates[rank, 1] < 0:
            continue
        # Scores are positive, and the bits of positive floats are in the order of the floats.
        ahead = best < 0 or candidates[rank, 0] > candidates[best, 0]
        tied = best >= 0 and candidates[rank, 0] == candidates[best, 0]
        if ahead or (tied and candidates[rank, 1] < candidates[best, 1]):
            best = rank
    if best < 0:
        tree.nodes[child].feature = -1
    else:
        read_candidate(tree, child, candidates[best])
    end_search(rules, tree.nodes, child)


@kernel
def hand_in_round(
    rules: RecordArray, tree: TreeNodes, leaves: RoundLeaves, free_slots: IntArray, candidates: IntArray
) -> None:
    """Enter the best splits of all children of a round from the candidates [rank, child, word] of all ranks."""
    rules, tree, candidates = borrowed((rules, tree, candidates))
    nodes, slots, counters = tree.nodes, leaves.slots, leaves.counters
    for k in range(counters[LEAVES_PICKED]):
        node, left = leaves.picked[k], leaves.lefts[k]
        first, last = (0, 0) if node < 0 else (left, left + 1)
        parent_slot = slots[k] if node < 0 else nodes[node].slot
        for child in range(first, last + 1):
            if nodes[child].slot >= 0:
                adopt_best(rules, tree, child, candidates[:, 2 * k + child - first])
            nodes[child].state = LEAF
        for position in range(1 if node < 0 else 2):
            slot = slots[k] if position == 0 else parent_slot
            kept = False
            for child in range(first, last + 1):
                kept = kept or (nodes[child].slot == slot and nodes[child].gain > 0.0)
            if not kept:
                free_slots[counters[SLOTS_LEFT]] = slot
                counters[SLOTS_LEFT] += 1
        if node >= 0:
            nodes[node].state = SPLIT
            nodes[node].slot = -1


@kernel
def close_round(
    rules: RecordArray,
    tree: TreeNodes,
    leaves: RoundLeaves,
    free_slots: IntArray,
    frontier: IntArray,
    chosen: IntArray,
    max_leaves: int,
    level_wise: bool,
    candidates: IntArray,
) -> None:
    """Enter what a round has found and choose the leaves of the next one."""
    hand_in_round(rules, tree, leaves, free_slots, candidates)
    pick_leaves(tree.nodes, leaves, free_slots, frontier, chosen, max_leaves, level_wise)


@kernel
def sum_rows(
    gradients: PackedGradients, rows: npt.NDArray[np.uint32], start: int, stop: int, every_row: bool
) -> tuple[int, int]:
    """Gradients and hessians of some rows, added up."""
    packing, words = gradients.packing, gradients.words
    gradient, hessian = np.int64(0), np.int64(0)
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    last_word, hessian_mask = packing[0].two_words, packing[0].hessian_mask
    for i in range(np.uint64(start), np.uint64(stop)):
        row = i if every_row else np.uint64(rows[i])
        gradient += words[0, row] >> gradient_shift
        hessian += (words[last_word, row] >> hessian_shift) & hessian_mask
    return gradient, hessian
