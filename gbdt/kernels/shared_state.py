"""What threads growing one tree share besides the nodes: a few counters, a lock, and what the turn is about.

Waiting threads look again at once for a while, then sleep between looks: a core that somebody else needs is not
kept busy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.compiler import exchange, fetch, inlined, relax, sleep_microseconds

# Positions in the array of instructions. Turns are counted; NO_MORE_TURNS comes after the last.
TURN, N_FINISHED, N_ROWS, EVERY_ROW, N_FEATURES, MAX_LEAVES, LEVEL_WISE, N_THREADS = range(8)
TASK, OUTPUT, FIRST_ROW_NUMBER, TO_PACK, ROW_PARTS_TAKEN, ROWS_WORTH_SHARING, N_INSTRUCTIONS = range(8, 15)
NO_MORE_TURNS = -1
# What a turn is about: the derivatives of all rows, what a tree adds to their scores, a tree, or several of these. The
# turns from GROW on grow one.
DERIVE, ADD, ADD_AND_DERIVE, GROW, GROW_ADD_AND_DERIVE = range(5)

# Positions in the shared array, which is cleared before each tree. The lock guards all counters except those of parts
# and of the shared leaf.
LOCK, PARTS_TAKEN, PARTS_BUILT, ROOT_TAKEN, N_HANDED_IN, N_IN_FLIGHT, N_NODES, N_CLAIMED, N_FREE, N_CHOSEN = range(10)
HAS_SHARED_LEAF, SHARED_WORK, SHARED_NODE, SHARED_START, SHARED_STOP, SHARED_SLOT, N_SHARED_PARTS = range(10, 17)
SHARED_PARTS_TAKEN, SHARED_PARTS_DONE, N_SHARING, IMPLICIT_GOES_LEFT = range(17, 21)
N_THROUGH, LEAVES_LISTED, LABELS_TAKEN, LABELS_DONE, SUMS_TAKEN, SUMS_DONE = range(21, 27)
STEPS_TAKEN, STEPS_WRITTEN, FIRST_PART = range(27, 30)
MAX_PARTS = 64
N_SHARED_WORDS = FIRST_PART + MAX_PARTS

# A look takes 20 to 40 ns, nearly all in `relax`. Most waits take some microseconds, and that for the next small
# tree 200 to 300: who has gone to sleep comes too late for it.
_LOOKS_BEFORE_SLEEP = 8_000
_FIRST_PAUSE, _LONGEST_PAUSE = 30, 1_000  # microseconds


@inlined
def wait_for_change(shared: npt.NDArray[np.int64], position: int, seen: int) -> None:
    """Return once the counter is no longer what it was seen to be; pauses last an eighth of the wait so far."""
    looks, pause = 0, _FIRST_PAUSE
    while fetch(shared, position) == seen:
        looks += 1
        if looks < _LOOKS_BEFORE_SLEEP:
            relax()
        else:
            sleep_microseconds(np.uint32(pause))
            pause = min(pause + (pause >> 3), _LONGEST_PAUSE)


@inlined
def acquire(shared: npt.NDArray[np.int64], position: int) -> None:
    """Take the lock at a position of the array."""
    while exchange(shared, position, 1) != 0:
        wait_for_change(shared, position, np.int64(1))


@inlined
def release(shared: npt.NDArray[np.int64], position: int) -> None:
    """Give the lock back."""
    exchange(shared, position, 0)
