"""Rings: blocks travel from each rank to its successor, world_size - 1 phases with one message each way.

A reduction around a ring adds the contributions to each block in another order, starting at another rank. It is
therefore used only where order does not matter (`reducers.is_order_free`).
"""

from __future__ import annotations

from dmlgbm.collectives.kernels.layout import SCRATCH, SOURCE, TARGET
from dmlgbm.collectives.schedules.program import Blocks, Program, ProgramBuilder


def add_ring_all_gather(builder: ProgramBuilder, rank: int, blocks: Blocks) -> None:
    """Spread the block each rank has in its part of TARGET."""
    world_size = len(blocks.counts)
    for step in range(world_size - 1):
        sent, received = (rank - step) % world_size, (rank - step - 1) % world_size
        builder.send((rank + 1) % world_size, TARGET, blocks.offsets[sent], blocks.counts[sent])
        builder.receive((rank - 1) % world_size, TARGET, blocks.offsets[received], blocks.counts[received])
        builder.next_phase()


def add_ring_reduce_scatter(builder: ProgramBuilder, rank: int, blocks: Blocks, sums: int, arrivals: int) -> None:
    """Add up in the buffer `sums`, which starts as a copy of SOURCE; SCRATCH[arrivals] takes what comes in.

    In the end this rank's part of `sums` is complete; its other parts hold partial results.
    """
    world_size = len(blocks.counts)
    for step in range(world_size - 1):
        sent, received = (rank - step - 1) % world_size, (rank - step - 2) % world_size
        builder.send((rank + 1) % world_size, sums, blocks.offsets[sent], blocks.counts[sent])
        builder.receive((rank - 1) % world_size, SCRATCH, arrivals, blocks.counts[received])
        builder.combine(SCRATCH, arrivals, sums, blocks.offsets[received], blocks.counts[received])
        builder.next_phase()


def ring_all_reduce(rank: int, world_size: int, count: int) -> Program:
    blocks = Blocks.even(count, world_size)
    builder = ProgramBuilder(scratch_count=max(blocks.counts))
    builder.copy(SOURCE, 0, TARGET, 0, count)
    builder.next_phase()
    add_ring_reduce_scatter(builder, rank, blocks, TARGET, 0)
    add_ring_all_gather(builder, rank, blocks)
    return builder.build()


def ring_reduce_scatter(rank: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder(scratch_count=blocks.total + max(blocks.counts))
    builder.copy(SOURCE, 0, SCRATCH, 0, blocks.total)
    builder.next_phase()
    add_ring_reduce_scatter(builder, rank, blocks, SCRATCH, blocks.total)
    builder.copy(SCRATCH, blocks.offsets[rank], TARGET, 0, blocks.counts[rank])
    return builder.build()


def ring_all_gather(rank: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder()
    builder.copy(SOURCE, 0, TARGET, blocks.offsets[rank], blocks.counts[rank])
    builder.next_phase()
    add_ring_all_gather(builder, rank, blocks)
    return builder.build()
