"""A round of voting-parallel growth (PV-Tree): ranks vote for features, and only elected ones are added up.

    build_and_vote      histograms of the rows here for both children of every picked leaf; its best features by them
    (votes of all ranks)
    elect               the features with most votes, twice as many as a rank may vote for
    encode_elected      their histograms for the ranks that search them
    (all_to_all)
    search_elected      summed over ranks, searched with the sums of all rows

A rank's pool holds histograms of its own rows, so whether one is packed depends on the rows here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.histogram import build_histogram, subtract_tile
from dmlgbm.gbdt.kernels.histogram_codec import add_encoded_feature, add_to_bin, bin_sums, encode_feature, stored_bins
from dmlgbm.gbdt.kernels.layout import (
    BinnedTable,
    Buffers,
    RecordArray,
    RoundLeaves,
    RoundSpace,
    TreeNodes,
)
from dmlgbm.gbdt.kernels.part_messages import StagedParts, class_of, part_of_leaf
from dmlgbm.gbdt.kernels.partition import split_node_rows
from dmlgbm.gbdt.kernels.round_growth import (
    LEAVES_PICKED,
    enter_children,
    enter_root,
    search_child,
    smaller_and_larger,
    sum_rows,
    write_candidate,
)
from dmlgbm.gbdt.kernels.sorting import order_by_key
from dmlgbm.gbdt.kernels.split_search import begin_search, choose_features, search_features

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class LocalTree(NamedTuple):
    """The tree as the rows here see it: what the features of a node would gain for them alone."""

    rules: RecordArray  # one SPLIT_RULES, for a share of the rows
    tree: TreeNodes  # sums of the rows here


class VoteBuffers(NamedTuple):
    """Scratch space of one thread, besides that of every search."""

    scores: npt.NDArray[np.float64]  # [feature]
    features: IntArray  # those that would split the rows here, or that this rank searches
    planes: npt.NDArray[np.int64]  # [3, position]: histograms of elected features over all ranks


@inlined
def vote(
    layout: RecordArray,
    space: RoundSpace,
    local: LocalTree,
    planes: npt.NDArray[np.int64],
    packed: bool,
    buffers: Buffers,
    vote_buffers: VoteBuffers,
    child: int,
    ballot: IntArray,
) -> None:
    """Write the features that would split the rows here best, the best first; -1 when there are no more."""
    local_nodes, tree_features, found = local.tree.nodes, space.features, vote_buffers.features
    for k in range(ballot.size):
        ballot[k] = -1
    if local_nodes[child].count == 0:
        return
    choose_features(local.rules, tree_features, space.tree, child, buffers, buffers.usable[0])
    n_found = np.int64(0)
    for k in range(tree_features.size):
        feature = tree_features[k]
        begin_search(local.rules, local_nodes, child)
        search_features(
            layout, space.gradients.packing, local.rules, tree_features[k : k + 1], buffers.usable[0], planes, packed,
            buffers, local.tree, child,
        )  # fmt: skip
        if local_nodes[child].feature >= 0:
            vote_buffers.scores[feature] = -local_nodes[child].gain
            found[n_found] = feature
            n_found += 1
    order_by_key(vote_buffers.scores, found, n_found)
    for k in range(min(n_found, ballot.size)):
        ballot[k] = found[k]


@kernel
def build_and_vote(
    table: BinnedTable,
    space: RoundSpace,
    local: LocalTree,
    every_row: bool,
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    vote_buffers: VoteBuffers,
    ballots: IntArray,
    taken: IntArray,
) -> None:
    """Split picked leaves, build both children's histograms of the rows here, and vote for their features.

    The root's histogram is in its slot already, and its sums of the rows here are in the local tree.
    """
    table, space, local, pool = borrowed((table, space, local, pool))
    buffers, vote_buffers, ballots = borrowed((buffers, vote_buffers, ballots))
    nodes, local_nodes, rows, leaves = space.tree.nodes, local.tree.nodes, space.rows, space.leaves
    gradients, packing = space.gradients, space.gradients.packing
    packed_rows = packing[0].packed_rows
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= leaves.counters[LEAVES_PICKED]:
            return
        node, left = leaves.picked[k], leaves.lefts[k]
        for position in range(2 * k, 2 * k + 2):
            for j in range(ballots.shape[1]):
                ballots[position, j] = -1
        if node < 0:
            enter_root(space)
        else:
            split_node_rows(table, space.tree, buffers.directions, rows, every_row and node == 0, node, left)
            if not enter_children(space, k):
                continue
            smaller, larger = smaller_and_larger(nodes, node, left)
            first, last = rows.starts[smaller], rows.starts[smaller] + rows.counts[smaller]
            packed, planes = rows.counts[smaller] <= packed_rows, pool[leaves.slots[k]]
            build_histogram(
                table.storage, gradients, rows.numbers, first, last, np.bool_(0), buffers.block, packed, planes
            )
            subtract_tile(
                packing, pool[nodes[node].slot], rows.counts[node] <= packed_rows, planes, packed,
                rows.counts[larger] <= packed_rows, 0, pool.shape[2],
            )  # fmt: skip
            gradient, hessian = sum_rows(gradients, rows.numbers, first, last, np.bool_(0))
            local_nodes[smaller].gradient, local_nodes[smaller].hessian = gradient, hessian
            local_nodes[larger].gradient = local_nodes[node].gradient - gradient
            local_nodes[larger].hessian = local_nodes[node].hessian - hessian
        first_child = 0 if node < 0 else left
        for child in range(first_child, first_child + (1 if node < 0 else 2)):
            local_nodes[child].count = rows.counts[child]
            local_nodes[child].path, local_nodes[child].depth = nodes[child].path, nodes[child].depth
            local_nodes[child].lower, local_nodes[child].upper = nodes[child].lower, nodes[child].upper
            local_nodes[child].parent_output = nodes[child].parent_output
            if nodes[child].slot >= 0:
                vote(
                    table.layout, space, local, pool[nodes[child].slot], rows.counts[child] <= packed_rows,
                    buffers, vote_buffers, child, ballots[2 * k + child - first_child],
                )  # fmt: skip


@kernel
def elect(ballots: npt.NDArray[np.int32], n_features: int, elected: IntArray) -> None:
    """The features of each child with most votes, ascending; -1 behind the last. `ballots` is [rank, child, position].

    Of equally many votes, better positions win, then the lower feature.
    """
    n_positions = ballots.shape[2]
    keys, order = np.zeros(n_features, np.float64), np.empty(n_features, np.int64)
    # A vote counts more than all positions together.
    worth = n_positions * ballots.shape[0] + 1
    for child in range(ballots.shape[1]):
        for feature in range(n_features):
            keys[feature] = 0.0
        for rank in range(ballots.shape[0]):
            for position in range(n_positions):
                if ballots[rank, child, position] >= 0:
                    keys[ballots[rank, child, position]] -= worth + n_positions - position
        n_found = 0
        for feature in range(n_features):
            if keys[feature] < 0.0:
                order[n_found] = feature
                n_found += 1
        order_by_key(keys, order, n_found)
        n_elected = min(n_found, elected.shape[1])
        for k in range(elected.shape[1]):
            elected[child, k] = order[k] if k < n_elected else -1
        for k in range(1, n_elected):
            feature, hole = elected[child, k], k
            while hole > 0 and elected[child, hole - 1] > feature:
                elected[child, hole] = elected[child, hole - 1]
                hole -= 1
            elected[child, hole] = feature


@inlined
def searched_by(child: int, position: int, n_ranks: int) -> int:
    """The rank that searches an elected feature of a child."""
    return (child + position) % n_ranks


@inlined
def child_of(leaves: RoundLeaves, position: int) -> int:
    """The node that is child number `position` of a round, or -1."""
    if leaves.picked[position // 2] < 0:
        return 0 if position % 2 == 0 else -1
    return leaves.lefts[position // 2] + position % 2


@kernel
def encode_elected(
    layout: RecordArray,
    space: RoundSpace,
    pool: npt.NDArray[np.int64],
    elected: IntArray,
    rank: int,
    parts: StagedParts,
    taken: IntArray,
) -> None:
    """Write the elected histograms of the rows here for the ranks that search them: part (child, rank)."""
    layout, space, pool, parts = borrowed((layout, space, pool, parts))
    nodes, packing, lengths = space.tree.nodes, space.gradients.packing, parts.lengths
    n_ranks = lengths.shape[1]
    while True:
        position = fetch_and_add(taken, 0, 1)
        if position >= 2 * space.leaves.counters[LEAVES_PICKED]:
            return
        child = child_of(space.leaves, position)
        for other in range(n_ranks):
            lengths[position, other] = 0
        parts.classes[position] = 0
        if child < 0 or nodes[child].slot < 0:
            continue
        parts.classes[position] = class_of(nodes[child].count)
        planes, packed = pool[nodes[child].slot], space.rows.counts[child] <= packing[0].packed_rows
        for k in range(elected.shape[1]):
            feature, other = elected[position, k], searched_by(position, k, n_ranks)
            if feature >= 0 and other != rank:
                first = layout[feature].position
                last = first + stored_bins(layout, feature)
                lengths[position, other] = encode_feature(
                    packing, planes, packed, first, last, parts.bytes[position, other], lengths[position, other]
                )


@kernel
def search_elected(
    layout: RecordArray,
    space: RoundSpace,
    pool: npt.NDArray[np.int64],
    elected: IntArray,
    messages: Bytes,
    rank: int,
    buffers: Buffers,
    vote_buffers: VoteBuffers,
    candidates: IntArray,
    taken: IntArray,
) -> None:
    """Add up the elected histograms that this rank searches, and find each child's best split among them."""
    layout, space, pool, messages = borrowed((layout, space, pool, messages))
    buffers, vote_buffers, candidates = borrowed((buffers, vote_buffers, candidates))
    nodes, packing = space.tree.nodes, space.gradients.packing
    own, planes = vote_buffers.features, vote_buffers.planes
    n_ranks, n_children = messages.shape[0], 2 * space.leaves.counters[LEAVES_PICKED]
    while True:
        position = fetch_and_add(taken, 0, 1)
        if position >= n_children:
            return
        child = child_of(space.leaves, position)
        candidates[position, 1] = -1
        if child < 0 or nodes[child].slot < 0:
            continue
        packed = nodes[child].count <= packing[0].packed_rows
        local, local_packed = pool[nodes[child].slot], space.rows.counts[child] <= packing[0].packed_rows
        n_own = 0
        for k in range(elected.shape[1]):
            feature = elected[position, k]
            if feature < 0 or searched_by(position, k, n_ranks) != rank:
                continue
            own[n_own] = feature
            n_own += 1
            first = layout[feature].position
            for i in range(first, first + stored_bins(layout, feature)):
                gradient, hessian, count = bin_sums(packing, local, local_packed, i)
                planes[0, i], planes[1, i], planes[2, i] = 0, 0, 0
                add_to_bin(packing, planes, packed, i, gradient, hessian, count)
        for other in range(n_ranks):
            if other == rank:
                continue
            cursor, _ = part_of_leaf(messages[other], position, n_children)
            for k in range(n_own):
                first = layout[own[k]].position
                last = first + stored_bins(layout, own[k])
                cursor = add_encoded_feature(packing, planes, packed, first, last, messages[other], cursor)
        if n_own > 0:
            search_child(space, layout, own[:n_own], planes, buffers, child)
            write_candidate(space.tree, child, candidates[position])
