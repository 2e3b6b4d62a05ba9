"""Tree after tree with the same threads: the followers stay inside a kernel, where the next tree finds them at once.

Waking a thread up from Python takes as long as a small tree needs to grow. What changes from one tree to the next is in
arrays that all threads have from the start: the leader fills them, then begins the turn.

    leader     lead_tree                 lead_tree                 end_turns
    follower   follow_trees  ...........................................
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import exchange, fetch, fetch_and_add, kernel
from dmlgbm.gbdt.kernels.layout import Buffers, TreeSpace
from dmlgbm.gbdt.kernels.shared_state import N_FINISHED, N_THREADS, NO_MORE_TURNS, TURN, wait_for_change
from dmlgbm.gbdt.kernels.tree_growth import grow_tree


@kernel
def lead_tree(space: TreeSpace, buffers: Buffers) -> None:
    """Grow one tree together with all followers; come back when the last of them has left it."""
    instructions = space.instructions
    instructions[N_FINISHED] = 0
    fetch_and_add(instructions, TURN, 1)
    grow_tree(space, buffers)
    finished = fetch(instructions, N_FINISHED)
    while finished < instructions[N_THREADS] - 1:
        wait_for_change(instructions, N_FINISHED, finished)
        finished = fetch(instructions, N_FINISHED)


@kernel
def follow_trees(space: TreeSpace, buffers: Buffers) -> None:
    """Help to grow every tree from the first turn on, until there are no more turns."""
    instructions, turn = space.instructions, np.int64(0)
    while True:
        wait_for_change(instructions, TURN, turn)
        turn = fetch(instructions, TURN)
        if turn == NO_MORE_TURNS:
            return
        grow_tree(space, buffers)
        fetch_and_add(instructions, N_FINISHED, 1)


@kernel
def end_turns(instructions: npt.NDArray[np.int64]) -> None:
    """Let the followers go."""
    exchange(instructions, TURN, NO_MORE_TURNS)
