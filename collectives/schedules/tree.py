"""Binomial trees: from a root to everybody, or from everybody to a root, in log2(world_size) phases.

Ranks are counted from the root. In the phase of distance d the ranks below d deal with those d further on. Sums up
a tree are grouped by subtree, so `tree_reduce` is used only where order does not matter.
"""

from __future__ import annotations

from dmlgbm.collectives.kernels.layout import SCRATCH, SOURCE, TARGET
from dmlgbm.collectives.schedules.program import Program, ProgramBuilder


def _distances(world_size: int) -> list[int]:
    return [1 << power for power in range((world_size - 1).bit_length())]


def tree_broadcast(rank: int, world_size: int, root: int, count: int) -> Program:
    builder = ProgramBuilder()
    position = (rank - root) % world_size
    for distance in _distances(world_size):
        if position < distance and position + distance < world_size:
            builder.send((rank + distance) % world_size, TARGET, 0, count)
        elif distance <= position < 2 * distance:
            builder.receive((rank - distance) % world_size, TARGET, 0, count)
        builder.next_phase()
    return builder.build()


def tree_reduce(rank: int, world_size: int, root: int, count: int) -> Program:
    """Partial results move towards the root; only the root's TARGET is complete in the end."""
    builder = ProgramBuilder(scratch_count=count)
    builder.copy(SOURCE, 0, TARGET, 0, count)
    builder.next_phase()
    position = (rank - root) % world_size
    for distance in reversed(_distances(world_size)):
        if position < distance and position + distance < world_size:
            builder.receive((rank + distance) % world_size, SCRATCH, 0, count)
            builder.combine(SCRATCH, 0, TARGET, 0, count)
        elif distance <= position < 2 * distance:
            builder.send((rank - distance) % world_size, TARGET, 0, count)
        builder.next_phase()
    return builder.build()
