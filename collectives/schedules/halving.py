"""Recursive halving and doubling: in each phase a rank deals with one partner, at distances 1, 2, 4, ...

With a world that is no power of two the ranks above the largest power of two hand their part to a partner below
and get the result back. Like rings, reductions of this family are used only where order does not matter.
"""

from __future__ import annotations

from dmlgbm.collectives.kernels.layout import SCRATCH, SOURCE, TARGET
from dmlgbm.collectives.schedules.program import Blocks, Program, ProgramBuilder


def largest_power_of_two(world_size: int) -> int:
    """The largest power of two that is at most `world_size`."""
    return 1 << (world_size.bit_length() - 1)


def _distances(core: int) -> list[int]:
    return [1 << power for power in range(core.bit_length() - 1)]


def halving_all_reduce(rank: int, world_size: int, count: int) -> Program:
    core = largest_power_of_two(world_size)
    builder = ProgramBuilder(scratch_count=count)
    builder.copy(SOURCE, 0, TARGET, 0, count)
    builder.next_phase()
    _fold_into_core(builder, rank, world_size, core, count)
    if rank < core:
        blocks = Blocks.even(count, core)
        _halve(builder, rank, core, blocks)
        _double(builder, rank, core, blocks)
    else:
        for _ in range(2 * len(_distances(core))):
            builder.next_phase()
    if rank >= core:
        builder.receive(rank - core, TARGET, 0, count)
    elif rank + core < world_size:
        builder.send(rank + core, TARGET, 0, count)
    return builder.build()


def _fold_into_core(builder: ProgramBuilder, rank: int, world_size: int, core: int, count: int) -> None:
    if rank >= core:
        builder.send(rank - core, TARGET, 0, count)
    elif rank + core < world_size:
        builder.receive(rank + core, SCRATCH, 0, count)
        builder.combine(SCRATCH, 0, TARGET, 0, count)
    builder.next_phase()


def _halve(builder: ProgramBuilder, rank: int, core: int, blocks: Blocks) -> None:
    """Keep half of the blocks in each phase, until only the own one is left, complete."""
    first, last = 0, core
    for distance in reversed(_distances(core)):
        middle, partner = first + distance, rank ^ distance
        kept, given = ((first, middle), (middle, last)) if rank < middle else ((middle, last), (first, middle))
        builder.send(partner, TARGET, *blocks.run(*given))
        offset, count = blocks.run(*kept)
        builder.receive(partner, SCRATCH, 0, count)
        builder.combine(SCRATCH, 0, TARGET, offset, count)
        builder.next_phase()
        first, last = kept


def _double(builder: ProgramBuilder, rank: int, core: int, blocks: Blocks) -> None:
    """Swap all complete blocks with the partner of each phase."""
    for distance in _distances(core):
        partner = rank ^ distance
        builder.send(partner, TARGET, *blocks.run(*_aligned(rank, distance)))
        builder.receive(partner, TARGET, *blocks.run(*_aligned(partner, distance)))
        builder.next_phase()


def _aligned(rank: int, size: int) -> tuple[int, int]:
    """The aligned run of `size` ranks that `rank` lies in."""
    first = rank // size * size
    return first, first + size


def doubling_all_gather(rank: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder()
    builder.copy(SOURCE, 0, TARGET, blocks.offsets[rank], blocks.counts[rank])
    builder.next_phase()
    add_doubling_all_gather(builder, rank, blocks)
    return builder.build()


def add_doubling_all_gather(builder: ProgramBuilder, rank: int, blocks: Blocks) -> None:
    """Spread the block each rank has in its part of TARGET.

    Every rank of the core carries the block of its partner above the core along with its own.
    """
    world_size = len(blocks.counts)
    core = largest_power_of_two(world_size)
    if rank >= core:
        builder.send(rank - core, TARGET, *blocks.run(rank, rank + 1))
    elif rank + core < world_size:
        builder.receive(rank + core, TARGET, *blocks.run(rank + core, rank + core + 1))
    builder.next_phase()
    for distance in _distances(core):
        for shift in (0, core):
            if rank < core:
                _swap_runs(builder, rank, rank ^ distance, distance, shift, blocks)
            builder.next_phase()
    if rank >= core:
        builder.receive(rank - core, TARGET, 0, blocks.total)
    elif rank + core < world_size:
        builder.send(rank + core, TARGET, 0, blocks.total)
    builder.next_phase()


def _swap_runs(builder: ProgramBuilder, rank: int, partner: int, size: int, shift: int, blocks: Blocks) -> None:
    world_size = len(blocks.counts)
    for owner, step in ((rank, builder.send), (partner, builder.receive)):
        first, last = (min(bound + shift, world_size) for bound in _aligned(owner, size))
        if first < last:
            step(partner, TARGET, *blocks.run(first, last))


def dissemination_barrier(rank: int, world_size: int) -> Program:
    """In each phase a signal goes 1, 2, 4, ... ranks further; after the last, everybody has heard of everybody."""
    builder = ProgramBuilder()
    distance = 1
    while distance < world_size:
        builder.send((rank + distance) % world_size, SOURCE, 0, 0)
        builder.receive((rank - distance) % world_size, TARGET, 0, 0)
        builder.next_phase()
        distance *= 2
    return builder.build()
