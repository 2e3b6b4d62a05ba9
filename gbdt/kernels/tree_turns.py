"""Tree after tree with the same threads: the followers stay inside a kernel, where the next tree finds them at once.

Waking a thread up from Python takes as long as a small tree needs to grow. What changes from one tree to the next is in
arrays that all threads have from the start: the leader fills them, then begins the turn.

    leader     lead_tree                 lead_tree                 end_turns
    follower   follow_trees  ...........................................
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.kernels.compiler import exchange, fetch, fetch_and_add, kernel
from gbdt.kernels.layout import BinStorage, Buffers, RecordArray
from gbdt.kernels.shared_state import wait_for_change
from gbdt.kernels.tree_growth import grow_tree

# Places in the array of turns. The turns are counted; NO_MORE is after the last.
TURN, N_FINISHED, N_ROWS, EVERY_ROW, N_PARTS, N_FEATURES, N_TURN_PLACES = range(7)
NO_MORE = -1


@kernel
def lead_tree(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    max_leaves: int,
    level_wise: bool,
    n_threads: int,
    goes_left: npt.NDArray[np.uint8],
    free_slots: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.int64],
    shared: npt.NDArray[np.int64],
    turns: npt.NDArray[np.int64],
) -> None:
    """Grow one tree together with all followers; come back when the last of them has left it."""
    turns[N_FINISHED] = 0
    fetch_and_add(turns, TURN, 1)
    grow_tree(
        storage, layout, packing, rules, features[: turns[N_FEATURES]], rows, scratch, turns[N_ROWS],
        turns[EVERY_ROW] == 1, words, pool, buffers, nodes, categories, max_leaves, level_wise, turns[N_PARTS],
        n_threads, goes_left, free_slots, chosen, shared,
    )  # fmt: skip
    finished = fetch(turns, N_FINISHED)
    while finished < n_threads - 1:
        wait_for_change(turns, N_FINISHED, finished)
        finished = fetch(turns, N_FINISHED)


@kernel
def follow_trees(
    storage: BinStorage,
    layout: RecordArray,
    packing: RecordArray,
    rules: RecordArray,
    features: npt.NDArray[np.int64],
    rows: npt.NDArray[np.uint32],
    scratch: npt.NDArray[np.uint32],
    words: npt.NDArray[np.int64],
    pool: npt.NDArray[np.int64],
    buffers: Buffers,
    nodes: RecordArray,
    categories: npt.NDArray[np.int32],
    max_leaves: int,
    level_wise: bool,
    n_threads: int,
    goes_left: npt.NDArray[np.uint8],
    free_slots: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.int64],
    shared: npt.NDArray[np.int64],
    turns: npt.NDArray[np.int64],
) -> None:
    """Help to grow every tree from the first turn on, until there are no more turns."""
    turn = np.int64(0)
    while True:
        wait_for_change(turns, TURN, turn)
        turn = fetch(turns, TURN)
        if turn == NO_MORE:
            return
        grow_tree(
            storage, layout, packing, rules, features[: turns[N_FEATURES]], rows, scratch, turns[N_ROWS],
            turns[EVERY_ROW] == 1, words, pool, buffers, nodes, categories, max_leaves, level_wise, turns[N_PARTS],
            n_threads, goes_left, free_slots, chosen, shared,
        )  # fmt: skip
        fetch_and_add(turns, N_FINISHED, 1)


@kernel
def end_turns(turns: npt.NDArray[np.int64]) -> None:
    """Let the followers go."""
    exchange(turns, TURN, NO_MORE)
