"""Growing a tree: every thread takes the most useful leaf that nobody has, expands it, and comes back for the next.

Threads meet only when they take a leaf or hand in its children, for less than a microsecond, under one lock. They
may expand leaves that strict order would not have split; `replay_in_order` finds the tree of strict order among
all nodes, so that the result does not depend on the number of threads or on who was faster. One thread never
expands a leaf in vain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, fetch, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.histogram import add_planes, add_to, build_histogram
from dmlgbm.gbdt.kernels.layout import CLAIMED, LEAF, SPLIT, Buffers, RecordArray, TreeSpace
from dmlgbm.gbdt.kernels.leaf_expansion import expand_leaf
from dmlgbm.gbdt.kernels.leaf_sharing import help_with_shared_leaf
from dmlgbm.gbdt.kernels.quantise import pack_words
from dmlgbm.gbdt.kernels.shared_state import (
    EVERY_ROW,
    FIRST_ROW_NUMBER,
    LEVEL_WISE,
    LOCK,
    MAX_LEAVES,
    N_CHOSEN,
    N_CLAIMED,
    N_FREE,
    N_HANDED_IN,
    N_IN_FLIGHT,
    N_NODES,
    N_ROWS,
    N_THREADS,
    OUTPUT,
    PARTS_BUILT,
    PARTS_TAKEN,
    ROOT_TAKEN,
    TO_PACK,
    acquire,
    release,
    wait_for_change,
)

_WAIT, _DONE = -1, -2


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
    """The leaf to split next among those that nobody has taken, or -1."""
    best = np.int64(-1)
    for node in range(n_nodes):
        splittable = nodes[node].state == LEAF and nodes[node].gain > 0.0
        if splittable and (best < 0 or comes_before(nodes, node, best, level_wise)):
            best = node
    return best


@inlined
def replay_in_order(
    nodes: RecordArray,
    max_leaves: int,
    level_wise: bool,
    frontier: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Split by split what strict order does with the nodes so far.

    Writes the splits made to `chosen`, and to its end, from the last position down, the leaves that are due or probably
    due after them (as far as can be told without their children). Returns how many splits and leaves these are, how
    many splits are wanted with those below such leaves, and the first of the leaves that nobody has taken, or -1.
    """
    frontier[0] = 0
    n_frontier, n_chosen, n_due, n_wanted, untaken = 1, 0, 0, 0, np.int64(-1)
    while n_chosen + n_wanted < max_leaves - 1:
        position = -1
        for k in range(n_frontier):
            splittable = nodes[frontier[k]].gain > 0.0
            if splittable and (position < 0 or comes_before(nodes, frontier[k], frontier[position], level_wise)):
                position = k
        if position < 0:
            break
        node = frontier[position]
        n_frontier -= 1
        frontier[position] = frontier[n_frontier]
        if nodes[node].state == SPLIT and n_wanted == 0:
            chosen[n_chosen] = node
            n_chosen += 1
        if nodes[node].state == SPLIT:
            frontier[n_frontier] = nodes[node].left
            frontier[n_frontier + 1] = nodes[node].left + 1
            n_frontier += 2
            n_wanted += 1 if n_wanted > 0 else 0
        else:
            n_wanted += 1
            n_due += 1
            chosen[chosen.size - n_due] = node
            if untaken < 0 and nodes[node].state == LEAF:
                untaken = node
    return n_chosen, n_due, n_wanted, untaken


@inlined
def choose_leaf(
    nodes: RecordArray,
    max_leaves: int,
    level_wise: bool,
    frontier: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.int64],
    shared: npt.NDArray[np.int64],
) -> int:
    """The leaf that a thread should take now, or whether to wait for others or to stop."""
    if shared[N_CLAIMED] < max_leaves - 1:
        best = next_leaf(nodes, shared[N_NODES], level_wise)
        if best >= 0:
            return best
        if shared[N_IN_FLIGHT] > 0:
            return _WAIT
    n_chosen, _, n_wanted, untaken = replay_in_order(nodes, max_leaves, level_wise, frontier, chosen)
    shared[N_CHOSEN] = n_chosen
    if n_wanted == 0:
        return _DONE
    # Splits made in vain must leave room for all those that are still due.
    room = (nodes.size - 1) // 2 - shared[N_CLAIMED]
    if untaken >= 0 and (shared[N_IN_FLIGHT] == 0 or room > max_leaves - 1 - n_chosen):
        return untaken
    return _WAIT


@inlined
def hand_in(
    nodes: RecordArray,
    node: int,
    left: int,
    parent_slot: int,
    free_slot: int,
    free_slots: npt.NDArray[np.int64],
    shared: npt.NDArray[np.int64],
) -> None:
    """Make a split and its children known, and give back the slots of children that need none."""
    nodes[node].state = SPLIT
    for slot in (parent_slot, free_slot):
        kept = False
        for child in range(left, left + 2):
            kept = kept or (nodes[child].slot == slot and nodes[child].gain > 0.0)
        if not kept:
            free_slots[shared[N_FREE]] = slot
            shared[N_FREE] += 1
    for child in range(left, left + 2):
        nodes[child].state = LEAF
    shared[N_IN_FLIGHT] -= 1
    fetch_and_add(shared, N_HANDED_IN, 1)


@inlined
def build_root_parts(space: TreeSpace, block: npt.NDArray[np.int64]) -> None:
    """Sum parts of the rows, each into its own slot, until every part is taken."""
    instructions, passes = space.instructions, space.passes
    n_rows, n_parts, every_row = instructions[N_ROWS], instructions[N_THREADS], instructions[EVERY_ROW] == 1
    output = instructions[OUTPUT]
    packed = n_rows <= space.gradients.packing[0].packed_rows
    while True:
        part = fetch_and_add(space.shared, PARTS_TAKEN, 1)
        if part >= n_parts:
            return
        start, stop = n_rows * part // n_parts, n_rows * (part + 1) // n_parts
        if instructions[TO_PACK] == 1:  # only where every row is in the tree
            pack_words(
                passes.gradients[output], passes.hessians[output], start, stop, instructions[FIRST_ROW_NUMBER],
                passes.rounding, space.gradients,
            )  # fmt: skip
        build_histogram(
            space.table.storage, space.gradients, space.rows, start, stop, every_row, block, packed, space.pool[part]
        )
        fetch_and_add(space.shared, PARTS_BUILT, 1)


@inlined
def clear_tree(space: TreeSpace) -> None:
    """Forget the last tree."""
    nodes, shared, n_free = space.tree.nodes, space.shared, space.free_slots.size - 1
    for node in range(nodes.size):
        nodes[node].state = 0
    for k in range(n_free):
        space.free_slots[k] = n_free - k
    for k in range(shared.size):
        shared[k] = 0
    shared[N_IN_FLIGHT], shared[N_FREE] = 1, n_free


@inlined
def create_root(nodes: RecordArray, n_rows: int) -> None:
    """Enter the root, without its sums."""
    nodes[0].start, nodes[0].count, nodes[0].depth = 0, n_rows, 0
    nodes[0].left, nodes[0].gain, nodes[0].slot, nodes[0].path = -1, -1.0, -1, np.uint64(0)
    nodes[0].gradient, nodes[0].hessian = 0, 0
    nodes[0].lower, nodes[0].upper, nodes[0].parent_output = -np.inf, np.inf, 0.0


@inlined
def finish_root(space: TreeSpace) -> None:
    """Wait for all parts of the root's histogram, add them up and enter the node."""
    n_rows, n_parts = space.instructions[N_ROWS], space.instructions[N_THREADS]
    built = fetch(space.shared, PARTS_BUILT)
    while built < n_parts:
        wait_for_change(space.shared, PARTS_BUILT, built)
        built = fetch(space.shared, PARTS_BUILT)
    for part in range(1, n_parts):
        if n_rows <= space.gradients.packing[0].packed_rows:
            add_to(space.pool[0, 0], space.pool[part, 0])
        else:
            add_planes(space.pool[0], space.pool[part])
    create_root(space.tree.nodes, n_rows)


@kernel
def grow_tree(space: TreeSpace, buffers: Buffers) -> None:
    """What each thread does to grow a tree; the splits made are in `chosen`."""
    space, buffers = borrowed((space, buffers))
    nodes, shared, instructions = space.tree.nodes, space.shared, space.instructions
    max_leaves, level_wise, n_threads = instructions[MAX_LEAVES], instructions[LEVEL_WISE] == 1, instructions[N_THREADS]
    build_root_parts(space, buffers.block)
    leaf, left, parent_slot, free_slot = np.int64(_WAIT), np.int64(0), np.int64(0), np.int64(0)
    is_root, is_last = fetch_and_add(shared, ROOT_TAKEN, 1) == 0, np.bool_(0)
    if is_root:
        finish_root(space)
    while True:
        if is_root or leaf >= 0:
            expand_leaf(space, buffers, leaf, left, free_slot, is_last)
        acquire(shared, LOCK)
        if is_root:
            nodes[0].state = LEAF
            shared[N_NODES] = 1
            shared[N_IN_FLIGHT] = 0
            fetch_and_add(shared, N_HANDED_IN, 1)
            is_root = False
        elif leaf >= 0:
            hand_in(nodes, leaf, left, parent_slot, free_slot, space.free_slots, shared)
        handed_in = fetch(shared, N_HANDED_IN)
        leaf = choose_leaf(nodes, max_leaves, level_wise, buffers.order, space.chosen, shared)
        if leaf >= 0:
            nodes[leaf].state = CLAIMED
            shared[N_CLAIMED] += 1
            shared[N_IN_FLIGHT] += 1
            # Several threads may find later that another leaf was due.
            is_last = n_threads == 1 and shared[N_CLAIMED] == max_leaves - 1
            left = shared[N_NODES]
            shared[N_NODES] += 2
            shared[N_FREE] -= 1
            parent_slot, free_slot = nodes[leaf].slot, space.free_slots[shared[N_FREE]]
        release(shared, LOCK)
        if leaf == _DONE:
            return
        if leaf == _WAIT:
            help_with_shared_leaf(space, buffers.block)
            wait_for_change(shared, N_HANDED_IN, handed_in)
