"""Several threads on one leaf: whoever finds no leaf of its own takes parts of one that another thread splits.

Near the root there are fewer leaves than threads, and they are the largest. One leaf at a time is shared, first its
partition, then the histogram of its smaller child; its owner takes parts like anybody else, so that nothing waits for
help that does not come. Parts are ranges of rows, put together in order: the result is the same as that of one thread.

    owner    offer_work    take_parts    withdraw_work (waits for those who came)
    helper                 help_with_shared_leaf
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import borrowed, exchange, fetch, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.histogram import add_planes, build_histogram
from dmlgbm.gbdt.kernels.layout import SPARSE, TreeSpace
from dmlgbm.gbdt.kernels.partition import fill_goes_left, separate_rows
from dmlgbm.gbdt.kernels.shared_state import (
    EVERY_ROW,
    FIRST_PART,
    HAS_SHARED_LEAF,
    IMPLICIT_GOES_LEFT,
    MAX_PARTS,
    N_HANDED_IN,
    N_SHARED_PARTS,
    N_SHARING,
    N_THREADS,
    ROWS_WORTH_SHARING,
    SHARED_NODE,
    SHARED_PARTS_DONE,
    SHARED_PARTS_TAKEN,
    SHARED_SLOT,
    SHARED_START,
    SHARED_STOP,
    SHARED_WORK,
    wait_for_change,
)

NOTHING, PARTITION, HISTOGRAM = 0, 1, 2

# A row's histogram takes about as long as its partition for every four of its columns.
_COLUMNS_PER_PARTITION = 4


@inlined
def offer_work(shared: npt.NDArray[np.int64], work: int, start: int, stop: int, n_parts: int) -> None:
    """Let others take parts; what else they must know has been written before."""
    shared[SHARED_START], shared[SHARED_STOP], shared[N_SHARED_PARTS] = start, stop, n_parts
    shared[SHARED_PARTS_TAKEN], shared[SHARED_PARTS_DONE] = 0, 0
    exchange(shared, SHARED_WORK, work)
    fetch_and_add(shared, N_HANDED_IN, 1)


@inlined
def withdraw_work(shared: npt.NDArray[np.int64]) -> None:
    """Come back when all parts are done and everybody who helped has left."""
    done = fetch(shared, SHARED_PARTS_DONE)
    while done < shared[N_SHARED_PARTS]:
        wait_for_change(shared, SHARED_PARTS_DONE, done)
        done = fetch(shared, SHARED_PARTS_DONE)
    exchange(shared, SHARED_WORK, NOTHING)
    n_sharing = fetch(shared, N_SHARING)
    while n_sharing > 0:
        wait_for_change(shared, N_SHARING, n_sharing)
        n_sharing = fetch(shared, N_SHARING)


@kernel
def take_parts(space: TreeSpace, block: npt.NDArray[np.int64]) -> None:
    """Do parts of the work on offer until all are taken."""
    space, block = borrowed((space, block))
    shared, pool, rows = space.shared, space.pool, space.rows
    start, n_rows = shared[SHARED_START], shared[SHARED_STOP] - shared[SHARED_START]
    node, n_parts = shared[SHARED_NODE], shared[N_SHARED_PARTS]
    while True:
        part = fetch_and_add(shared, SHARED_PARTS_TAKEN, 1)
        if part >= n_parts:
            return
        first, last = start + n_rows * part // n_parts, start + n_rows * (part + 1) // n_parts
        if shared[SHARED_WORK] == PARTITION:
            shared[FIRST_PART + part] = separate_rows(
                space.table, space.tree.nodes[node].feature, space.directions, shared[IMPLICIT_GOES_LEFT],
                rows, space.scratch, first, last, space.instructions[EVERY_ROW] == 1 and node == 0,
            )  # fmt: skip
        else:
            slot = shared[SHARED_SLOT] if part == 0 else pool.shape[0] - part
            build_histogram(
                space.table.storage, space.gradients, rows, first, last, np.bool_(0), block, np.bool_(0), pool[slot]
            )
        fetch_and_add(shared, SHARED_PARTS_DONE, 1)


@inlined
def help_with_shared_leaf(space: TreeSpace, block: npt.NDArray[np.int64]) -> None:
    """Take part in the work on offer, if there is any. (Who is counted before looking is waited for.)"""
    fetch_and_add(space.shared, N_SHARING, 1)
    if fetch(space.shared, SHARED_WORK) != NOTHING:
        take_parts(space, block)
    fetch_and_add(space.shared, N_SHARING, -1)


@inlined
def close_gaps(
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    start: int,
    stop: int,
    shared: npt.NDArray[np.int64],
) -> None:
    """Bring the left rows of all parts together, and the right ones behind them."""
    n_rows, n_parts = stop - start, shared[N_SHARED_PARTS]
    end = np.uint64(start)
    for part in range(n_parts):
        first = np.uint64(start + n_rows * part // n_parts)
        for i in range(np.uint64(shared[FIRST_PART + part])):
            rows[end + i] = rows[first + i]
        end += np.uint64(shared[FIRST_PART + part])
    for part in range(n_parts):
        first, last = start + n_rows * part // n_parts, start + n_rows * (part + 1) // n_parts
        n_right = np.uint64(last - first - shared[FIRST_PART + part])
        for i in range(n_right):
            rows[end + i] = scratch[np.uint64(first) + i]
        end += n_right


@kernel
def share_partition(space: TreeSpace, block: npt.NDArray[np.int64], node: int) -> bool:
    """Partition a large leaf's rows with whoever helps; False, and nothing done, where that is not worth it."""
    space, block = borrowed((space, block))
    nodes, shared, n_threads = space.tree.nodes, space.shared, space.instructions[N_THREADS]
    start, stop = nodes[node].start, nodes[node].start + nodes[node].count
    # Marks of rows belong to one thread, which needs no help with them.
    by_marks = space.table.layout[nodes[node].feature].storage == SPARSE and space.table.storage.entry_rows.size > 0
    few = stop - start < space.instructions[ROWS_WORTH_SHARING]
    if n_threads == 1 or few or by_marks or exchange(shared, HAS_SHARED_LEAF, 1) != 0:
        return False
    shared[SHARED_NODE] = node
    shared[IMPLICIT_GOES_LEFT] = fill_goes_left(space.table.layout, space.tree, node, space.directions.goes_left)
    offer_work(shared, PARTITION, start, stop, min(2 * n_threads, MAX_PARTS))
    take_parts(space, block)
    withdraw_work(shared)
    close_gaps(space.rows, space.scratch, start, stop, shared)
    exchange(shared, HAS_SHARED_LEAF, 0)
    return True


@kernel
def share_histogram(space: TreeSpace, block: npt.NDArray[np.int64], node: int, slot: int) -> bool:
    """Fill a slot with a large node's histogram with whoever helps; False where that is not worth it."""
    space, block = borrowed((space, block))
    nodes, shared, pool, n_threads = space.tree.nodes, space.shared, space.pool, space.instructions[N_THREADS]
    storage = space.table.storage
    start, stop = nodes[node].start, nodes[node].start + nodes[node].count
    n_cells = nodes[node].count * (storage.narrow.shape[1] + storage.wide.shape[1])
    few = n_cells < _COLUMNS_PER_PARTITION * space.instructions[ROWS_WORTH_SHARING]
    packed = nodes[node].count <= space.gradients.packing[0].packed_rows
    if n_threads == 1 or packed or few or exchange(shared, HAS_SHARED_LEAF, 1) != 0:
        return False
    shared[SHARED_NODE], shared[SHARED_SLOT] = node, slot
    offer_work(shared, HISTOGRAM, start, stop, n_threads)
    take_parts(space, block)
    withdraw_work(shared)
    for part in range(1, n_threads):
        add_planes(pool[slot], pool[pool.shape[0] - part])
    exchange(shared, HAS_SHARED_LEAF, 0)
    return True
