"""Splitting one leaf: partition, histogram of the smaller child, subtraction for the larger one, search in both.

All of it is done tile by tile, while the tile's bins are in the cache. What a leaf's best split is does not depend
on the order in which leaves are split.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, inlined, kernel
from dmlgbm.gbdt.kernels.elementwise_math import hash_counter
from dmlgbm.gbdt.kernels.histogram import build_tile, subtract_tile
from dmlgbm.gbdt.kernels.layout import SPARSE, BinStorage, Buffers, PackedGradients, RecordArray, TreeSpace
from dmlgbm.gbdt.kernels.leaf_sharing import share_histogram, share_partition
from dmlgbm.gbdt.kernels.output_bounds import enter_frames
from dmlgbm.gbdt.kernels.partition import fill_goes_left, partition_rows
from dmlgbm.gbdt.kernels.shared_state import EVERY_ROW, N_FEATURES
from dmlgbm.gbdt.kernels.split_search import (
    HOPELESS,
    begin_search,
    choose_features,
    end_search,
    inherit_groups,
    search_features,
)


@inlined
def may_split(rules: RecordArray, nodes: RecordArray, node: int) -> bool:
    """Whether a node is large and shallow enough to be worth a histogram."""
    deep = rules[0].max_depth > 0 and nodes[node].depth >= rules[0].max_depth
    return nodes[node].count >= max(2 * rules[0].min_rows, 2) and not deep


@inlined
def create_children(nodes: RecordArray, node: int, left: int) -> None:
    """Enter both children of a node's best split; their rows are in place, their histograms are not."""
    right = left + 1
    nodes[node].left = left
    nodes[left].start = nodes[node].start
    nodes[left].count = nodes[node].left_count
    nodes[left].gradient = nodes[node].left_gradient
    nodes[left].hessian = nodes[node].left_hessian
    nodes[right].start = nodes[node].start + nodes[node].left_count
    nodes[right].count = nodes[node].count - nodes[node].left_count
    nodes[right].gradient = nodes[node].gradient - nodes[node].left_gradient
    nodes[right].hessian = nodes[node].hessian - nodes[node].left_hessian
    for child in range(left, right + 1):
        nodes[child].depth = nodes[node].depth + 1
        nodes[child].left = -1
        nodes[child].gain = -1.0
        nodes[child].slot = -1
        nodes[child].path = hash_counter(nodes[node].path, np.uint64(child - left + 1))


@inlined
def sum_root(
    storage: BinStorage,
    gradients: PackedGradients,
    rows: npt.NDArray[np.uint32],
    every_row: bool,
    packed: bool,
    planes: npt.NDArray[np.int64],
    nodes: RecordArray,
) -> None:
    """Enter the sums of all rows: read off the first column's bins, or added up where no column is dense."""
    packing, words = gradients.packing, gradients.words
    gradient_shift, hessian_shift = packing[0].gradient_shift, packing[0].hessian_shift
    hessian_mask = packing[0].hessian_mask
    gradient, hessian = np.int64(0), np.int64(0)
    if storage.tiles[0].storage == SPARSE:
        last_word = packing[0].two_words
        for i in range(np.uint64(nodes[0].count)):
            row = i if every_row else np.uint64(rows[i])
            gradient += words[0, row] >> gradient_shift
            hessian += (words[last_word, row] >> hessian_shift) & hessian_mask
    else:
        first, end = np.int64(0), planes.shape[1]
        if storage.tiles[0].last_part > 0 and storage.tiles[0].first_joint == 0:
            first = storage.parts[0].position
            end = first + storage.parts[0].values
        elif storage.positions.size > 1:
            end = np.int64(storage.positions[1])
        for position in range(first, end):
            if packed:
                gradient += planes[0, position] >> gradient_shift
                hessian += (planes[0, position] >> hessian_shift) & hessian_mask
            else:
                gradient += planes[0, position]
                hessian += planes[1, position]
    nodes[0].gradient, nodes[0].hessian = gradient, hessian


@inlined
def split_rows(space: TreeSpace, buffers: Buffers, node: int) -> None:
    """Rearrange a node's rows as its best split says, with the help of others where there are many."""
    if share_partition(space, buffers.block, node):
        return
    nodes = space.tree.nodes
    by_default = fill_goes_left(space.table.layout, space.tree, node, buffers.directions.goes_left)
    start, stop = nodes[node].start, nodes[node].start + nodes[node].count
    every_row = space.instructions[EVERY_ROW] == 1 and node == 0
    partition_rows(
        space.table, nodes[node].feature, buffers.directions, by_default,
        space.rows, space.scratch, start, stop, every_row,
    )  # fmt: skip


@inlined
def leave_out_hopeless(hopeless: npt.NDArray[np.uint8], usable: npt.NDArray[np.uint8]) -> None:
    """Do not search features again that were without an admissible split in the parent."""
    for feature in range(usable.size):
        if hopeless[feature] == 1:
            usable[feature] = HOPELESS


@inlined
def note_hopeless(usable: npt.NDArray[np.uint8], hopeless: npt.NDArray[np.uint8]) -> None:
    """Keep for the nodes below which features are without an admissible split."""
    for feature in range(usable.size):
        hopeless[feature] = 1 if usable[feature] == HOPELESS else 0


@kernel
def expand_leaf(space: TreeSpace, buffers: Buffers, node: int, left: int, free_slot: int, is_last: bool) -> None:
    """Split a leaf at its best split into nodes `left` and `left + 1`, and find their best splits.

    The larger child takes over the parent's slot of the histogram pool, the smaller one gets `free_slot`. The root
    is the only child of node -1: its histogram is in the slot already, and there is nothing to partition. Nobody will
    ask for the splits of the children of a tree's last split.
    """
    space, buffers = borrowed((space, buffers))
    storage, packing, rules = space.table.storage, space.gradients.packing, space.rules
    nodes, pool = space.tree.nodes, space.pool
    is_root = node < 0
    smaller, larger, parent_slot, parent_packed = np.int64(0), np.int64(0), free_slot, np.bool_(0)
    packed_rows = packing[0].packed_rows
    if not is_root:
        split_rows(space, buffers, node)
        create_children(nodes, node, left)
        if rules[0].by_gain == 1:
            enter_frames(rules, space.tree, node, left)
        if space.tree.groups.shape[1] > 0:
            inherit_groups(space.tree, node, left)
        smaller = left if nodes[left].count <= nodes[left + 1].count else left + 1
        larger = 2 * left + 1 - smaller
        parent_slot, parent_packed = nodes[node].slot, nodes[node].count <= packed_rows
        nodes[node].slot = -1
    if not may_split(rules, nodes, larger) or is_last:
        return
    nodes[larger].slot = parent_slot
    if may_split(rules, nodes, smaller):
        nodes[smaller].slot = free_slot
    start, stop = nodes[smaller].start, nodes[smaller].start + nodes[smaller].count
    smaller_packed, larger_packed = nodes[smaller].count <= packed_rows, nodes[larger].count <= packed_rows
    first_child = min(smaller, larger)
    features = space.features[: space.instructions[N_FEATURES]]
    built = is_root or share_histogram(space, buffers.block, smaller, free_slot)
    for tile in range(storage.tiles.size):
        if not built:
            build_tile(
                storage, space.gradients, tile, space.rows, start, stop, np.bool_(0),
                buffers.block, smaller_packed, pool[free_slot],
            )  # fmt: skip
        if not is_root:
            subtract_tile(
                packing, pool[parent_slot], parent_packed, pool[free_slot], smaller_packed, larger_packed,
                storage.tiles[tile].first_position, storage.tiles[tile].last_position,
            )  # fmt: skip
        elif tile == 0:
            every_row = space.instructions[EVERY_ROW] == 1
            sum_root(storage, space.gradients, space.rows, every_row, smaller_packed, pool[free_slot], nodes)
        own_features = storage.tile_features[storage.tiles[tile].first_feature : storage.tiles[tile].last_feature]
        for child in range(first_child, max(smaller, larger) + 1):
            if nodes[child].slot >= 0:
                usable = buffers.usable[child - first_child]
                if tile == 0:
                    begin_search(rules, nodes, child)
                    choose_features(rules, features, space.tree, child, buffers, usable)
                    if not is_root:
                        leave_out_hopeless(space.hopeless[parent_slot], usable)
                search_features(
                    space.table.layout, packing, rules, own_features, usable, pool[nodes[child].slot],
                    nodes[child].count <= packed_rows, buffers, space.tree, child,
                )  # fmt: skip
    for child in range(first_child, max(smaller, larger) + 1):
        if nodes[child].slot >= 0 and storage.tiles.size > 0:
            end_search(rules, nodes, child)
            note_hopeless(buffers.usable[child - first_child], space.hopeless[nodes[child].slot])
