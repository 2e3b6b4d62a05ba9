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

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.histogram import build_histogram, subtract_tile
from dmlgbm.gbdt.kernels.histogram_codec import add_encoded_feature, add_to_bin, bin_sums, encode_feature, stored_bins
from dmlgbm.gbdt.kernels.layout import BinStorage, Buffers, RecordArray
from dmlgbm.gbdt.kernels.leaf_expansion import may_split
from dmlgbm.gbdt.kernels.part_messages import class_of, part_of_leaf
from dmlgbm.gbdt.kernels.round_growth import (
    enter_children,
    search_child,
    smaller_and_larger,
    split_rows,
    sum_rows,
    write_candidate,
)
from dmlgbm.gbdt.kernels.sorting import order_by_key
from dmlgbm.gbdt.kernels.split_search import begin_search, choose_features, search_features

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@inlined
def vote(
    layout: RecordArray,
    packing: RecordArray,
    local_rules: RecordArray,
    tree_features: IntArray,
    planes: npt.NDArray[np.int64],
    packed: bool,
    buffers: Buffers,
    nodes: RecordArray,
    local_nodes: RecordArray,
    local_categories: npt.NDArray[np.int32],
    child: int,
    scores: npt.NDArray[np.float64],
    order: IntArray,
    ballot: IntArray,
) -> None:
    """Write the features that would split the rows here best, the best first; -1 when there are no more."""
    for k in range(ballot.size):
        ballot[k] = -1
    if local_nodes[child].count == 0:
        return
    choose_features(local_rules, tree_features, nodes[child].path, buffers, buffers.usable[0])
    n_found = np.int64(0)
    for k in range(tree_features.size):
        feature = tree_features[k]
        begin_search(local_rules, local_nodes, child)
        search_features(
            layout, packing, local_rules, tree_features[k : k + 1], buffers.usable[0], planes, packed,
            buffers, local_nodes, local_categories, child,
        )  # fmt: skip
        if local_nodes[child].feature >= 0:
            scores[feature] = -local_nodes[child].gain
            order[n_found] = feature
            n_found += 1
    order_by_key(scores, order, n_found)
    for k in range(min(n_found, ballot.size)):
        ballot[k] = order[k]


@kernel
def build_and_vote(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    local_rules: RecordArray,
    tree_features: IntArray,
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    every_row: bool,
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    local_nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    local_categories: npt.NDArray[np.int32],
    starts: IntArray,
    counts: IntArray,
    picked: IntArray,
    lefts: IntArray,
    slots: IntArray,
    n_picked: int,
    is_last: bool,
    scores: npt.NDArray[np.float64],
    order: IntArray,
    ballots: IntArray,
    taken: IntArray,
) -> None:
    """Split picked leaves, build both children's histograms of the rows here, and vote for their features.

    The root's histogram is in its slot already, and its sums of the rows here in local_nodes[0].
    """
    storage, layout, packing, rules, local_rules = borrowed((storage, layout, packing, rules, local_rules))
    tree_features, rows, scratch, words, pool = borrowed((tree_features, rows, scratch, words, pool))
    buffers, nodes, local_nodes, categories = borrowed((buffers, nodes, local_nodes, categories))
    local_categories, starts, counts, ballots = borrowed((local_categories, starts, counts, ballots))
    packed_rows = packing[0].packed_rows
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= n_picked:
            return
        node, left = picked[k], lefts[k]
        for place in range(2 * k, 2 * k + 2):
            for j in range(ballots.shape[1]):
                ballots[place, j] = -1
        if node < 0:
            nodes[0].slot = slots[k] if may_split(rules, nodes, 0) else -1
        else:
            split_rows(
                storage, layout, nodes, categories, buffers.goes_left,
                rows, scratch, every_row, starts, counts, node, left,
            )  # fmt: skip
            if not enter_children(nodes, rules, node, left, slots[k], is_last):
                continue
            smaller, larger = smaller_and_larger(nodes, node, left)
            first, last = starts[smaller], starts[smaller] + counts[smaller]
            packed = counts[smaller] <= packed_rows
            build_histogram(
                storage, packing, rows, first, last, np.bool_(0), words, buffers.block, packed, pool[slots[k]]
            )
            subtract_tile(
                packing, pool[nodes[node].slot], counts[node] <= packed_rows, pool[slots[k]], packed,
                counts[larger] <= packed_rows, 0, pool.shape[2],
            )  # fmt: skip
            gradient, hessian = sum_rows(packing, words, rows, first, last, np.bool_(0))
            local_nodes[smaller].gradient, local_nodes[smaller].hessian = gradient, hessian
            local_nodes[larger].gradient = local_nodes[node].gradient - gradient
            local_nodes[larger].hessian = local_nodes[node].hessian - hessian
        first_child = 0 if node < 0 else left
        for child in range(first_child, first_child + (1 if node < 0 else 2)):
            local_nodes[child].count = counts[child]
            if nodes[child].slot >= 0:
                vote(
                    layout, packing, local_rules, tree_features, pool[nodes[child].slot],
                    counts[child] <= packed_rows, buffers, nodes, local_nodes, local_categories, child,
                    scores, order, ballots[2 * k + child - first_child],
                )  # fmt: skip


@kernel
def elect(ballots: npt.NDArray[np.int32], n_features: int, elected: IntArray) -> None:
    """The features of each child with most votes, ascending; -1 behind the last. `ballots` is [rank, child, place].

    Of equally many votes, better places win, then the lower feature.
    """
    n_places = ballots.shape[2]
    keys, order = np.zeros(n_features, np.float64), np.empty(n_features, np.int64)
    # A vote counts more than all places together.
    worth = n_places * ballots.shape[0] + 1
    for child in range(ballots.shape[1]):
        for feature in range(n_features):
            keys[feature] = 0.0
        for rank in range(ballots.shape[0]):
            for place in range(n_places):
                if ballots[rank, child, place] >= 0:
                    keys[ballots[rank, child, place]] -= worth + n_places - place
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
def searched_by(child: int, place: int, n_ranks: int) -> int:
    """The rank that searches an elected feature of a child."""
    return (child + place) % n_ranks


@inlined
def child_of(picked: IntArray, lefts: IntArray, place: int) -> int:
    """The node that is child number `place` of a round, or -1."""
    if picked[place // 2] < 0:
        return 0 if place % 2 == 0 else -1
    return lefts[place // 2] + place % 2


@kernel
def encode_elected(
    layout: RecordArray,
    packing: RecordArray,
    nodes: RecordArray,
    counts: IntArray,
    picked: IntArray,
    lefts: IntArray,
    n_picked: int,
    pool: npt.NDArray[np.int64],
    elected: IntArray,
    rank: int,
    staging: Bytes,
    lengths: IntArray,
    classes: IntArray,
    taken: IntArray,
) -> None:
    """Write the elected histograms of the rows here for the ranks that search them: staging[child, rank]."""
    layout, packing, nodes, pool, staging = borrowed((layout, packing, nodes, pool, staging))
    n_ranks = lengths.shape[1]
    while True:
        place = fetch_and_add(taken, 0, 1)
        if place >= 2 * n_picked:
            return
        child = child_of(picked, lefts, place)
        for other in range(n_ranks):
            lengths[place, other] = 0
        classes[place] = 0
        if child < 0 or nodes[child].slot < 0:
            continue
        classes[place] = class_of(nodes[child].count)
        planes, packed = pool[nodes[child].slot], counts[child] <= packing[0].packed_rows
        for k in range(elected.shape[1]):
            feature, other = elected[place, k], searched_by(place, k, n_ranks)
            if feature >= 0 and other != rank:
                first = layout[feature].position
                last = first + stored_bins(layout, feature)
                lengths[place, other] = encode_feature(
                    packing, planes, packed, first, last, staging[place, other], lengths[place, other]
                )


@kernel
def search_elected(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    tree_features: IntArray,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    counts: IntArray,
    picked: IntArray,
    lefts: IntArray,
    n_picked: int,
    pool: npt.NDArray[np.int64],
    planes: npt.NDArray[np.int64],
    elected: IntArray,
    messages: Bytes,
    rank: int,
    buffers: Buffers,
    own: IntArray,
    candidates: IntArray,
    taken: IntArray,
) -> None:
    """Add up the elected histograms that this rank searches, and find each child's best split among them."""
    layout, packing, rules, nodes, categories = borrowed((layout, packing, rules, nodes, categories))
    pool, planes, messages, buffers, candidates = borrowed((pool, planes, messages, buffers, candidates))
    n_ranks = messages.shape[0]
    while True:
        place = fetch_and_add(taken, 0, 1)
        if place >= 2 * n_picked:
            return
        child = child_of(picked, lefts, place)
        candidates[place, 1] = -1
        if child < 0 or nodes[child].slot < 0:
            continue
        packed, local_packed = nodes[child].count <= packing[0].packed_rows, counts[child] <= packing[0].packed_rows
        local = pool[nodes[child].slot]
        n_own = 0
        for k in range(elected.shape[1]):
            feature = elected[place, k]
            if feature < 0 or searched_by(place, k, n_ranks) != rank:
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
            cursor, _ = part_of_leaf(messages[other], place, 2 * n_picked)
            for k in range(n_own):
                first = layout[own[k]].position
                last = first + stored_bins(layout, own[k])
                cursor = add_encoded_feature(packing, planes, packed, first, last, messages[other], cursor)
        if n_own > 0:
            search_child(layout, packing, rules, tree_features, own[:n_own], planes, buffers, nodes, categories, child)
            write_candidate(nodes, categories, child, candidates[place])
