"""Turn after turn with the same threads: the followers stay inside a kernel, where the next turn finds them at once.

Waking a thread up from Python takes as long as a small tree needs to grow. A turn is a tree or a pass over all rows.
What changes from one turn to the next is in arrays that all threads have from the start: the leader fills them first.

    leader     lead_turn                 lead_turn                 end_turns
    follower   follow_turns  ...........................................
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import exchange, fetch, fetch_and_add, inlined, kernel
from dmlgbm.gbdt.kernels.layout import Buffers, TreeSpace
from dmlgbm.gbdt.kernels.row_passes import add_tree, pass_over_rows, settle_rows
from dmlgbm.gbdt.kernels.shared_state import (
    ADD,
    DERIVE,
    GROW,
    GROW_ADD_AND_DERIVE,
    N_FINISHED,
    N_THREADS,
    NO_MORE_TURNS,
    ROW_PARTS_TAKEN,
    TASK,
    TURN,
    wait_for_change,
)
from dmlgbm.gbdt.kernels.tree_growth import clear_tree, grow_tree


@inlined
def take_turn(space: TreeSpace, buffers: Buffers) -> None:
    """What each thread does in a turn."""
    task = space.instructions[TASK]
    if task >= GROW:
        grow_tree(space, buffers)
        settle_rows(space)
        if task == GROW_ADD_AND_DERIVE:
            add_tree(space)
    else:
        pass_over_rows(space, task != DERIVE, task != ADD)


@kernel
def lead_turn(space: TreeSpace, buffers: Buffers) -> None:
    """Do what the instructions say together with all followers; come back when the last of them has finished."""
    instructions = space.instructions
    if instructions[TASK] >= GROW:
        clear_tree(space)
    instructions[N_FINISHED], instructions[ROW_PARTS_TAKEN] = 0, 0
    if instructions[N_THREADS] > 1:  # or the leader is alone, and followers, if there are any, do not hear of the turn
        fetch_and_add(instructions, TURN, 1)
    take_turn(space, buffers)
    finished = fetch(instructions, N_FINISHED)
    while finished < instructions[N_THREADS] - 1:
        wait_for_change(instructions, N_FINISHED, finished)
        finished = fetch(instructions, N_FINISHED)


@kernel
def follow_turns(space: TreeSpace, buffers: Buffers) -> None:
    """Take part in every turn from the first one on, until there are no more."""
    instructions, turn = space.instructions, np.int64(0)
    while True:
        wait_for_change(instructions, TURN, turn)
        turn = fetch(instructions, TURN)
        if turn == NO_MORE_TURNS:
            return
        take_turn(space, buffers)
        fetch_and_add(instructions, N_FINISHED, 1)


@kernel
def follow_turn(space: TreeSpace, buffers: Buffers, turn: int) -> None:
    """Take part in the turn after this one."""
    wait_for_change(space.instructions, TURN, turn)
    take_turn(space, buffers)
    fetch_and_add(space.instructions, N_FINISHED, 1)


@kernel
def end_turns(instructions: npt.NDArray[np.int64]) -> None:
    """Let the followers go."""
    exchange(instructions, TURN, NO_MORE_TURNS)
