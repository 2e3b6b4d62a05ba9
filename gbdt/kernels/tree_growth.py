"""Growing a tree: split a leaf into two, over and over, the most useful leaf first.

`expand_leaf` does all the work of one split: partition, histogram of the smaller child, subtraction for the
larger one, search in both. `grow_tree` repeats it without returning to Python. What a leaf's best split is
does not depend on the order in which leaves are split.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import borrowed, inlined, kernel
from gbdt.kernels.elementwise_math import hash_counter
from gbdt.kernels.histogram import build_tile, subtract_tile
from gbdt.kernels.layout import SPARSE, BinStorage, Buffers, RecordArray
from gbdt.kernels.partition import fill_goes_left, partition_rows
from gbdt.kernels.split_search import begin_search, choose_features, end_search, search_features


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
    packing: RecordArray,
    rows: npt.NDArray[np.uint32],
    every_row: bool,
    words: npt.NDArray[np.int64],
    packed: bool,
    planes: npt.NDArray[np.int64],
    nodes: RecordArray,
) -> None:
    """Enter the sums of all rows: read off the first column's bins, or added up where no column is dense."""
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
        end = np.int64(storage.positions[1]) if storage.positions.size > 1 else planes.shape[1]
        for position in range(end):
            if packed:
                gradient += planes[0, position] >> gradient_shift
                hessian += (planes[0, position] >> hessian_shift) & hessian_mask
            else:
                gradient += planes[0, position]
                hessian += planes[1, position]
    nodes[0].gradient, nodes[0].hessian = gradient, hessian


@inlined
def expand_leaf(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    every_row: bool,
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    node: int,
    left: int,
    free_slot: int,
    built: bool,
) -> None:
    """Split a leaf at its best split into nodes `left` and `left + 1`, and find their best splits.

    The larger child takes over the parent's slot of the histogram pool, the smaller one gets `free_slot`. All is
    done tile by tile, while the tile's bins are in the cache. The root is the only child of node -1: it has no
    parent to be partitioned and subtracted from, and its histogram may be `built` already.
    """
    is_root = node < 0
    smaller, larger, parent_slot, parent_packed = np.int64(0), np.int64(0), free_slot, np.bool_(0)
    packed_rows = packing[0].packed_rows
    if not is_root:
        feature, start = nodes[node].feature, nodes[node].start
        by_default = fill_goes_left(layout, nodes, categories, node, buffers.goes_left)
        partition_rows(
            storage, layout, feature, buffers.goes_left, by_default,
            rows, scratch, start, start + nodes[node].count, every_row and node == 0,
        )  # fmt: skip
        create_children(nodes, node, left)
        smaller = left if nodes[left].count <= nodes[left + 1].count else left + 1
        larger = 2 * left + 1 - smaller
        parent_slot, parent_packed = nodes[node].slot, nodes[node].count <= packed_rows
        nodes[node].slot = -1
    if may_split(rules, nodes, larger):
        nodes[larger].slot = parent_slot
        if may_split(rules, nodes, smaller):
            nodes[smaller].slot = free_slot
        start, stop = nodes[smaller].start, nodes[smaller].start + nodes[smaller].count
        smaller_packed, larger_packed = nodes[smaller].count <= packed_rows, nodes[larger].count <= packed_rows
        first_child = min(smaller, larger)
        for tile in range(storage.tiles.size):
            if not built:
                build_tile(
                    storage, packing, tile, rows, start, stop, every_row and is_root, words,
                    buffers.block, smaller_packed, pool[free_slot],
                )  # fmt: skip
            if not is_root:
                subtract_tile(
                    packing, pool[parent_slot], parent_packed, pool[free_slot], smaller_packed, larger_packed,
                    storage.tiles[tile].first_position, storage.tiles[tile].last_position,
                )  # fmt: skip
            elif tile == 0:
                sum_root(storage, packing, rows, every_row, words, smaller_packed, pool[free_slot], nodes)
            own_features = storage.tile_features[storage.tiles[tile].first_feature : storage.tiles[tile].last_feature]
            for child in range(first_child, max(smaller, larger) + 1):
                if nodes[child].slot >= 0:
                    usable = buffers.usable[child - first_child]
                    if tile == 0:
                        begin_search(rules, nodes, child)
                        choose_features(rules, features, nodes[child].path, usable)
                    search_features(
                        layout, packing, rules, own_features, usable, pool[nodes[child].slot],
                        nodes[child].count <= packed_rows, buffers, nodes, categories, child,
                    )  # fmt: skip
        for child in range(first_child, max(smaller, larger) + 1):
            if nodes[child].slot >= 0 and storage.tiles.size > 0:
                end_search(rules, nodes, child)


@inlined
def create_root(nodes: RecordArray, n_rows: int) -> None:
    """Enter the root, without its sums."""
    nodes[0].start, nodes[0].count, nodes[0].depth = 0, n_rows, 0
    nodes[0].left, nodes[0].gain, nodes[0].slot, nodes[0].path = -1, -1.0, -1, np.uint64(0)
    nodes[0].gradient, nodes[0].hessian = 0, 0


@kernel
def grow_tree(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    n_rows: int,
    every_row: bool,
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    max_leaves: int,
    level_wise: bool,
) -> int:
    """Grow a tree of at most `max_leaves` leaves; return the number of nodes."""
    storage, layout, packing, rules, features = borrowed((storage, layout, packing, rules, features))
    rows, scratch, words, pool, buffers = borrowed((rows, scratch, words, pool, buffers))
    nodes, categories = borrowed((nodes, categories))
    create_root(nodes, n_rows)
    n_nodes, best = np.int64(0), np.int64(-1)
    n_free = pool.shape[0]
    free_slots = np.empty(n_free, np.int64)
    for slot in range(n_free):
        free_slots[slot] = n_free - 1 - slot
    for _ in range(max_leaves):
        parent_slot, free_slot = nodes[best].slot if best >= 0 else -1, free_slots[n_free - 1]
        expand_leaf(
            storage, layout, packing, rules, features, rows, scratch, every_row, words,
            pool, buffers, nodes, categories, best, n_nodes, free_slot, np.bool_(0),
        )  # fmt: skip
        n_free -= 1
        n_children = 2 if best >= 0 else 1
        for slot in (parent_slot, free_slot):
            kept = slot < 0
            for child in range(n_nodes, n_nodes + n_children):
                kept = kept or (nodes[child].slot == slot and nodes[child].gain > 0.0)
            if not kept:
                free_slots[n_free] = slot
                n_free += 1
        n_nodes += n_children
        best = next_leaf(nodes, n_nodes, level_wise)
        if best < 0:
            break
    return n_nodes


@kernel
def expand_leaves(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    n_rows: int,
    every_row: bool,
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    expansions: npt.NDArray[np.int64],
) -> None:
    """One thread's share of a round: expansions[k] = (leaf, left child, free slot, slot of the leaf).

    Leaf -1 stands for the search of the root, whose histogram is in the free slot.
    """
    storage, layout, packing, rules, features = borrowed((storage, layout, packing, rules, features))
    rows, scratch, words, pool, buffers = borrowed((rows, scratch, words, pool, buffers))
    nodes, categories = borrowed((nodes, categories))
    for k in range(expansions.shape[0]):
        if expansions[k, 0] < 0:
            create_root(nodes, n_rows)
        expand_leaf(
            storage, layout, packing, rules, features, rows, scratch, every_row, words,
            pool, buffers, nodes, categories, expansions[k, 0], expansions[k, 1], expansions[k, 2],
            expansions[k, 0] < 0,
        )  # fmt: skip


@inlined
def comes_before(nodes: RecordArray, a: int, b: int, level_wise: bool) -> bool:
    """The order of splitting: (shallower leaves first if level-wise,) larger gain, then the lower path hash."""
    if level_wise and nodes[a].depth != nodes[b].depth:
        return nodes[a].depth < nodes[b].depth
    if nodes[a].gain != nodes[b].gain:
        return nodes[a].gain > nodes[b].gain
    return nodes[a].path < nodes[b].path


@inlined
def next_leaf(nodes: RecordArray, n_nodes: int, level_wise: bool) -> int:
    """The leaf to split next, or -1 when no leaf has a split."""
    best = -1
    for node in range(n_nodes):
        splittable = nodes[node].left < 0 and nodes[node].gain > 0.0
        if splittable and (best < 0 or comes_before(nodes, node, best, level_wise)):
            best = node
    return best


@kernel
def replay_in_order(
    nodes: RecordArray,
    max_leaves: int,
    level_wise: bool,
    chosen: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Split by split what strict order does with the nodes expanded so far.

    Writes the splits taken to `chosen`, and to `wanted` the leaves that are due (the first) or probably due
    (the others, as far as can be told without their children) but not expanded yet. Nothing wanted: the tree
    is complete, whatever else was expanded on the way.
    """
    frontier = np.empty(max_leaves + 1, np.int64)
    frontier[0] = 0
    n_frontier, n_chosen, n_wanted = 1, 0, 0
    while n_chosen + n_wanted < max_leaves - 1 and n_wanted < wanted.size:
        place = -1
        for k in range(n_frontier):
            splittable = nodes[frontier[k]].gain > 0.0
            if splittable and (place < 0 or comes_before(nodes, frontier[k], frontier[place], level_wise)):
                place = k
        if place < 0:
            break
        node = frontier[place]
        n_frontier -= 1
        frontier[place] = frontier[n_frontier]
        if nodes[node].left < 0:
            wanted[n_wanted] = node
            n_wanted += 1
        else:
            chosen[n_chosen] = node
            n_chosen += 1
            frontier[n_frontier] = nodes[node].left
            frontier[n_frontier + 1] = nodes[node].left + 1
            n_frontier += 2
    return n_chosen, n_wanted


@kernel
def plan_round(
    nodes: RecordArray,
    n_nodes: int,
    max_leaves: int,
    level_wise: bool,
    wanted: npt.NDArray[np.int64],
    free_slots: npt.NDArray[np.int64],
    n_free: int,
    shares: npt.NDArray[np.int64],
    share_sizes: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Take back the slots of the last round and deal out the leaves of the next one; return (leaves, free slots).

    shares[thread, k] = (leaf, left child, free slot, slot of the leaf). The largest leaf goes first, each to the
    thread with the fewest rows so far.
    """
    n_threads = shares.shape[0]
    for thread in range(n_threads):
        for k in range(share_sizes[thread]):
            left = shares[thread, k, 1]
            for slot in (shares[thread, k, 2], shares[thread, k, 3]):
                kept = False
                for child in range(left, left + 2):
                    kept = kept or (nodes[child].slot == slot and nodes[child].gain > 0.0)
                if not kept:
                    free_slots[n_free] = slot
                    n_free += 1
        share_sizes[thread] = 0
    chosen = np.empty(max_leaves, np.int64)
    _, n_wanted = replay_in_order(nodes, max_leaves, level_wise, chosen, wanted)
    load = np.zeros(n_threads, np.int64)
    for dealt in range(n_wanted):
        largest, idlest = dealt, 0
        for k in range(dealt + 1, n_wanted):
            if nodes[wanted[k]].count > nodes[wanted[largest]].count:
                largest = k
        for thread in range(1, n_threads):
            if load[thread] < load[idlest]:
                idlest = thread
        leaf = wanted[largest]
        wanted[largest] = wanted[dealt]
        n_free -= 1
        place = share_sizes[idlest]
        shares[idlest, place, 0] = leaf
        shares[idlest, place, 1] = n_nodes + 2 * dealt
        shares[idlest, place, 2] = free_slots[n_free]
        shares[idlest, place, 3] = nodes[leaf].slot
        share_sizes[idlest] += 1
        load[idlest] += nodes[leaf].count
    return n_wanted, n_free
