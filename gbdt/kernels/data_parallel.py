"""A round of data-parallel growth: histograms of the rows here, encoded for the ranks that own their features.

    build_and_encode    rows of every picked leaf rearranged, histogram of its smaller child, words for every rank
    (all_to_all)
    merge_and_search    own features' histograms summed over ranks, subtracted from the parents', searched

Threads take leaves in turn. A rank's pool of histograms holds its own features only, at positions counted from its
first feature on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.histogram import add_planes, build_histogram, subtract_tile
from dmlgbm.gbdt.kernels.histogram_codec import add_encoded_feature, encode_feature, stored_bins
from dmlgbm.gbdt.kernels.layout import BinStorage, Buffers, RecordArray
from dmlgbm.gbdt.kernels.leaf_expansion import may_split, sum_root
from dmlgbm.gbdt.kernels.part_messages import class_of, part_of_leaf
from dmlgbm.gbdt.kernels.round_growth import (
    enter_children,
    search_children,
    smaller_and_larger,
    split_rows,
)
from dmlgbm.gbdt.kernels.split_scores import unpacked

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@kernel
def build_share(
    storage: BinStorage,
    packing: RecordArray,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    words: npt.NDArray[np.int64],
    block: npt.NDArray[np.int64],
    packed: bool,
    planes: npt.NDArray[np.int64],
) -> None:
    """The histogram of some of the root's rows; the threads' shares are added up afterwards."""
    storage, packing, rows, words, block, planes = borrowed((storage, packing, rows, words, block, planes))
    build_histogram(storage, packing, rows, start, stop, every_row, words, block, packed, planes)


@inlined
def keep_own_part(
    packing: RecordArray,
    planes: npt.NDArray[np.int64],
    packed: bool,
    first: int,
    own: npt.NDArray[np.int64],
    own_packed: bool,
) -> None:
    """Copy the part of a histogram that belongs to this rank into its slot, in the form that all rows together need."""
    for i in range(own.shape[1]):
        if own_packed:
            own[0, i] = planes[0, first + i]
        elif packed:
            own[0, i], own[1, i], own[2, i] = unpacked(packing, planes[0, first + i])
        else:
            own[0, i], own[1, i], own[2, i] = planes[0, first + i], planes[1, first + i], planes[2, first + i]


@kernel
def build_and_encode(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    every_row: bool,
    words: npt.NDArray[np.int64],
    planes: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    starts: IntArray,
    counts: IntArray,
    picked: IntArray,
    lefts: IntArray,
    slots: IntArray,
    n_picked: int,
    is_last: bool,
    pool: npt.NDArray[np.int64],
    features: IntArray,
    blocks: IntArray,
    rank: int,
    staging: Bytes,
    lengths: IntArray,
    classes: IntArray,
    taken: IntArray,
) -> None:
    """Split picked leaves and write the histogram of each one's smaller child to the pool and the staging area.

    Rank r owns features[blocks[r] : blocks[r + 1]]. What is for rank r of leaf k ends up in staging[k, r], its length
    in lengths[k, r], and the class of that child in classes[k]. The root's histogram is in `planes` already.
    """
    storage, layout, packing, rules, words = borrowed((storage, layout, packing, rules, words))
    rows, scratch, planes, buffers, nodes = borrowed((rows, scratch, planes, buffers, nodes))
    categories, starts, counts, pool = borrowed((categories, starts, counts, pool))
    picked, lefts, slots, features, blocks = borrowed((picked, lefts, slots, features, blocks))
    staging, lengths, classes, taken = borrowed((staging, lengths, classes, taken))
    own_first = layout[features[blocks[rank]]].position if blocks[rank] < blocks[rank + 1] else 0
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= n_picked:
            return
        node, left = picked[k], lefts[k]
        needed = True
        if node >= 0:
            split_rows(
                storage, layout, nodes, categories, buffers.goes_left,
                rows, scratch, every_row, starts, counts, node, left,
            )  # fmt: skip
            needed = enter_children(nodes, rules, node, left, slots[k], is_last)
        else:
            nodes[0].slot = slots[k] if may_split(rules, nodes, 0) else -1
            needed = nodes[0].slot >= 0
        for other in range(lengths.shape[1]):
            lengths[k, other] = 0
        classes[k] = 0
        if not needed:
            continue
        smaller, _ = smaller_and_larger(nodes, node, left)
        classes[k] = class_of(nodes[smaller].count)
        packed = counts[smaller] <= packing[0].packed_rows
        if node >= 0:
            first, last = starts[smaller], starts[smaller] + counts[smaller]
            build_histogram(storage, packing, rows, first, last, np.bool_(0), words, buffers.block, packed, planes)
        keep_own_part(
            packing, planes, packed, own_first, pool[slots[k]], nodes[smaller].count <= packing[0].packed_rows
        )
        for other in range(lengths.shape[1]):
            if other == rank:
                continue
            end = np.int64(0)
            for place in range(blocks[other], blocks[other + 1]):
                position = layout[features[place]].position
                beyond = position + stored_bins(layout, features[place])
                end = encode_feature(packing, planes, packed, position, beyond, staging[k, other], end)
            lengths[k, other] = end


@kernel
def merge_and_search(
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    tree_features: IntArray,
    own_features: IntArray,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    picked: IntArray,
    lefts: IntArray,
    slots: IntArray,
    n_picked: int,
    pool: npt.NDArray[np.int64],
    messages: Bytes,
    first_part: int,
    n_parts: int,
    rank: int,
    buffers: Buffers,
    candidates: IntArray,
    taken: IntArray,
) -> None:
    """Complete the histograms of own features and find the best split of both children of each picked leaf.

    The leaves are those of parts `first_part` and following of the `n_parts` that each message has.
    """
    layout, packing, rules, nodes, categories = borrowed((layout, packing, rules, nodes, categories))
    tree_features, own_features, picked, lefts = borrowed((tree_features, own_features, picked, lefts))
    slots, pool, messages, buffers, candidates = borrowed((slots, pool, messages, buffers, candidates))
    packed_rows = packing[0].packed_rows
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= n_picked:
            return
        node, left = picked[k], lefts[k]
        smaller, larger = smaller_and_larger(nodes, node, left)
        candidates[2 * k, 1], candidates[2 * k + 1, 1] = -1, -1
        if nodes[larger].slot < 0:
            continue
        own = pool[slots[k]]
        smaller_packed = nodes[smaller].count <= packed_rows
        for other in range(messages.shape[0]):
            if other == rank:
                continue
            cursor, length = part_of_leaf(messages[other], first_part + k, n_parts)
            end = cursor + length
            for place in range(own_features.size):
                if cursor >= end:
                    break
                position = layout[own_features[place]].position
                beyond = position + stored_bins(layout, own_features[place])
                cursor = add_encoded_feature(packing, own, smaller_packed, position, beyond, messages[other], cursor)
        if node >= 0:
            subtract_tile(
                packing, pool[nodes[node].slot], nodes[node].count <= packed_rows, own, smaller_packed,
                nodes[larger].count <= packed_rows, 0, own.shape[1],
            )  # fmt: skip
        search_children(
            layout, packing, rules, tree_features, own_features, pool, buffers,
            nodes, categories, node, left, candidates[2 * k :],
        )  # fmt: skip


@kernel
def join_shares(
    storage: BinStorage,
    packing: RecordArray,
    rows: npt.NDArray[np.uint32],
    every_row: bool,
    words: npt.NDArray[np.int64],
    packed: bool,
    planes: npt.NDArray[np.int64],
    n_shares: int,
    nodes: RecordArray,
) -> None:
    """Add up the threads' shares of the root's histogram, [thread, plane, position], and sum the rows that are here."""
    for share in range(1, n_shares):
        add_planes(planes[0], planes[share])
    sum_root(storage, packing, rows, every_row, words, packed, planes[0], nodes)
