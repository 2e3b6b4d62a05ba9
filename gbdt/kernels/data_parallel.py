"""A round of data-parallel growth: histograms of the rows here, encoded for the ranks that own their features.

    build_and_encode    rows of every picked leaf rearranged, histogram of its smaller child, words for every rank
    (all_to_all)
    merge_and_search    own features' histograms summed over ranks, subtracted from the parents', searched

Threads take leaves in turn. A rank's pool of histograms holds its own features only, at positions counted from its
first feature on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.histogram import add_planes, build_histogram, subtract_tile
from dmlgbm.gbdt.kernels.histogram_codec import add_encoded_feature, encode_feature, stored_bins
from dmlgbm.gbdt.kernels.layout import (
    BinnedTable,
    BinStorage,
    Buffers,
    PackedGradients,
    RecordArray,
    RoundSpace,
)
from dmlgbm.gbdt.kernels.leaf_expansion import sum_root
from dmlgbm.gbdt.kernels.part_messages import StagedParts, class_of, part_of_leaf
from dmlgbm.gbdt.kernels.partition import split_node_rows
from dmlgbm.gbdt.kernels.round_growth import (
    LEAVES_PICKED,
    enter_children,
    enter_root,
    search_children,
    smaller_and_larger,
)
from dmlgbm.gbdt.kernels.split_scores import unpacked

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class FeatureShares(NamedTuple):
    """Who owns which features: rank r has features[blocks[r] : blocks[r + 1]]."""

    features: IntArray  # in the order of their position in a histogram
    blocks: IntArray


class OwnFeatures(NamedTuple):
    """The features of this rank; the layout has their positions in its own histograms."""

    features: IntArray
    layout: RecordArray


class ReceivedParts(NamedTuple):
    """The messages of all ranks, each of `n_parts` parts, of which a tree's begin with `first_part`."""

    messages: Bytes
    first_part: int
    n_parts: int


@kernel
def build_share(
    storage: BinStorage,
    gradients: PackedGradients,
    rows: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    every_row: bool,
    block: npt.NDArray[np.int64],
    packed: bool,
    planes: npt.NDArray[np.int64],
) -> None:
    """The histogram of some of the root's rows; the threads' shares are added up afterwards."""
    storage, gradients, rows, block, planes = borrowed((storage, gradients, rows, block, planes))
    build_histogram(storage, gradients, rows, start, stop, every_row, block, packed, planes)


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
    table: BinnedTable,
    space: RoundSpace,
    every_row: bool,
    planes: npt.NDArray[np.int64],
    buffers: Buffers,
    pool: npt.NDArray[np.int64],
    shares: FeatureShares,
    rank: int,
    parts: StagedParts,
    taken: IntArray,
) -> None:
    """Split picked leaves and write the histogram of each one's smaller child to the pool and the staged parts.

    What is for rank r of leaf k is part (k, r). The root's histogram is in `planes` already.
    """
    table, space, planes, buffers = borrowed((table, space, planes, buffers))
    pool, shares, parts = borrowed((pool, shares, parts))
    layout, gradients, packing = table.layout, space.gradients, space.gradients.packing
    nodes, rows, leaves = space.tree.nodes, space.rows, space.leaves
    features, blocks = shares.features, shares.blocks
    own_first = layout[features[blocks[rank]]].position if blocks[rank] < blocks[rank + 1] else 0
    n_ranks = parts.lengths.shape[1]
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= leaves.counters[LEAVES_PICKED]:
            return
        node, left = leaves.picked[k], leaves.lefts[k]
        needed = True
        if node >= 0:
            split_node_rows(table, space.tree, buffers.directions, rows, every_row and node == 0, node, left)
            needed = enter_children(space, k)
        else:
            needed = enter_root(space)
        for other in range(n_ranks):
            parts.lengths[k, other] = 0
        parts.classes[k] = 0
        if not needed:
            continue
        smaller, _ = smaller_and_larger(nodes, node, left)
        parts.classes[k] = class_of(nodes[smaller].count)
        packed = rows.counts[smaller] <= packing[0].packed_rows
        if node >= 0:
            first, last = rows.starts[smaller], rows.starts[smaller] + rows.counts[smaller]
            build_histogram(
                table.storage, gradients, rows.numbers, first, last, np.bool_(0), buffers.block, packed, planes
            )
        own_packed = nodes[smaller].count <= packing[0].packed_rows
        keep_own_part(packing, planes, packed, own_first, pool[leaves.slots[k]], own_packed)
        for other in range(n_ranks):
            if other == rank:
                continue
            end = np.int64(0)
            for index in range(blocks[other], blocks[other + 1]):
                position = layout[features[index]].position
                beyond = position + stored_bins(layout, features[index])
                end = encode_feature(packing, planes, packed, position, beyond, parts.bytes[k, other], end)
            parts.lengths[k, other] = end


@kernel
def merge_and_search(
    space: RoundSpace,
    own: OwnFeatures,
    pool: npt.NDArray[np.int64],
    received: ReceivedParts,
    rank: int,
    buffers: Buffers,
    candidates: IntArray,
    taken: IntArray,
) -> None:
    """Complete the histograms of own features and find the best split of both children of each picked leaf."""
    space, own, pool, buffers, candidates = borrowed((space, own, pool, buffers, candidates))
    messages = borrowed(received.messages)
    nodes, leaves, layout, packing = space.tree.nodes, space.leaves, own.layout, space.gradients.packing
    packed_rows = packing[0].packed_rows
    while True:
        k = fetch_and_add(taken, 0, 1)
        if k >= leaves.counters[LEAVES_PICKED]:
            return
        node = leaves.picked[k]
        smaller, larger = smaller_and_larger(nodes, node, leaves.lefts[k])
        candidates[2 * k, 1], candidates[2 * k + 1, 1] = -1, -1
        if nodes[larger].slot < 0:
            continue
        planes = pool[leaves.slots[k]]
        smaller_packed = nodes[smaller].count <= packed_rows
        for other in range(messages.shape[0]):
            if other == rank:
                continue
            cursor, length = part_of_leaf(messages[other], received.first_part + k, received.n_parts)
            end = cursor + length
            for index in range(own.features.size):
                if cursor >= end:
                    break
                position = layout[own.features[index]].position
                beyond = position + stored_bins(layout, own.features[index])
                cursor = add_encoded_feature(packing, planes, smaller_packed, position, beyond, messages[other], cursor)
        if node >= 0:
            subtract_tile(
                packing, pool[nodes[node].slot], nodes[node].count <= packed_rows, planes, smaller_packed,
                nodes[larger].count <= packed_rows, 0, planes.shape[1],
            )  # fmt: skip
        search_children(space, layout, own.features, pool, buffers, k, candidates)


@kernel
def join_shares(
    storage: BinStorage,
    gradients: PackedGradients,
    rows: npt.NDArray[np.uint32],
    every_row: bool,
    packed: bool,
    planes: npt.NDArray[np.int64],
    n_shares: int,
    nodes: RecordArray,
) -> None:
    """Add up the threads' shares of the root's histogram, [thread, plane, position], and sum the rows that are here."""
    for share in range(1, n_shares):
        add_planes(planes[0], planes[share])
    sum_root(storage, gradients, rows, every_row, packed, planes[0], nodes)
