"""Direct exchange: every message goes straight from who has it to who needs it, in one phase.

Sums are folded by one owner over the contributions in rank order, so floating-point results do not depend on who
was fast. This is the only family that reduces operations whose order matters.
"""

from __future__ import annotations

from dmlgbm.collectives.kernels.layout import SCRATCH, SOURCE, TARGET
from dmlgbm.collectives.schedules.program import Blocks, Program, ProgramBuilder, others


def fold_in_rank_order(builder: ProgramBuilder, rank: int, world_size: int, own: int, target: int, count: int) -> None:
    """Combine `count` elements of all ranks into TARGET[target]; those of peers lie one after another in SCRATCH."""
    for contributor in range(world_size):
        source = (SOURCE, own) if contributor == rank else (SCRATCH, contributor * count)
        step = builder.copy if contributor == 0 else builder.combine
        step(*source, TARGET, target, count)


def add_reduce_scatter(builder: ProgramBuilder, rank: int, blocks: Blocks, target: int) -> None:
    """One phase after which TARGET[target] holds this rank's block of the reduction."""
    world_size, count = len(blocks.counts), blocks.counts[rank]
    builder.scratch_count = max(builder.scratch_count, world_size * count)
    for peer in others(rank, world_size):
        builder.send(peer, SOURCE, blocks.offsets[peer], blocks.counts[peer])
        builder.receive(peer, SCRATCH, peer * count, count)
    fold_in_rank_order(builder, rank, world_size, blocks.offsets[rank], target, count)
    builder.next_phase()


def add_all_gather(builder: ProgramBuilder, rank: int, blocks: Blocks) -> None:
    """One phase that spreads the block each rank has in its part of TARGET."""
    for peer in others(rank, len(blocks.counts)):
        builder.send(peer, TARGET, blocks.offsets[rank], blocks.counts[rank])
        builder.receive(peer, TARGET, blocks.offsets[peer], blocks.counts[peer])
    builder.next_phase()


def exchange_all_reduce(rank: int, world_size: int, count: int) -> Program:
    """Everybody sends everything to everybody and folds it alone: one phase, for small arrays."""
    builder = ProgramBuilder(scratch_count=world_size * count)
    for peer in others(rank, world_size):
        builder.send(peer, SOURCE, 0, count)
        builder.receive(peer, SCRATCH, peer * count, count)
    fold_in_rank_order(builder, rank, world_size, 0, 0, count)
    return builder.build()


def direct_all_reduce(rank: int, world_size: int, count: int) -> Program:
    """Every rank owns one block: contributions go to the owner, its result goes to everybody."""
    builder, blocks = ProgramBuilder(), Blocks.even(count, world_size)
    add_reduce_scatter(builder, rank, blocks, blocks.offsets[rank])
    add_all_gather(builder, rank, blocks)
    return builder.build()


def direct_reduce_scatter(rank: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder()
    add_reduce_scatter(builder, rank, blocks, 0)
    return builder.build()


def direct_all_gather(rank: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder()
    builder.copy(SOURCE, 0, TARGET, blocks.offsets[rank], blocks.counts[rank])
    for peer in others(rank, len(blocks.counts)):
        builder.send(peer, SOURCE, 0, blocks.counts[rank])
        builder.receive(peer, TARGET, blocks.offsets[peer], blocks.counts[peer])
    return builder.build()


def direct_broadcast(rank: int, world_size: int, root: int, count: int) -> Program:
    builder = ProgramBuilder()
    if rank == root:
        for peer in others(rank, world_size):
            builder.send(peer, TARGET, 0, count)
    else:
        builder.receive(root, TARGET, 0, count)
    return builder.build()


def direct_reduce(rank: int, world_size: int, root: int, count: int) -> Program:
    """Every rank owns one block, as in `direct_all_reduce`; the owners send their results to the root alone."""
    builder, blocks = ProgramBuilder(), Blocks.even(count, world_size)
    add_reduce_scatter(builder, rank, blocks, blocks.offsets[rank])
    if rank != root:
        builder.send(root, TARGET, blocks.offsets[rank], blocks.counts[rank])
    else:
        for peer in others(rank, world_size):
            builder.receive(peer, TARGET, blocks.offsets[peer], blocks.counts[peer])
    return builder.build()


def exchange_reduce(rank: int, world_size: int, root: int, count: int) -> Program:
    """Everybody sends everything to the root, which folds it: one phase, for small arrays."""
    builder = ProgramBuilder(scratch_count=world_size * count if rank == root else 0)
    if rank != root:
        builder.send(root, SOURCE, 0, count)
        return builder.build()
    for peer in others(rank, world_size):
        builder.receive(peer, SCRATCH, peer * count, count)
    fold_in_rank_order(builder, rank, world_size, 0, 0, count)
    return builder.build()


def direct_gather(rank: int, root: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder()
    if rank != root:
        builder.send(root, SOURCE, 0, blocks.counts[rank])
        return builder.build()
    builder.copy(SOURCE, 0, TARGET, blocks.offsets[rank], blocks.counts[rank])
    for peer in others(rank, len(blocks.counts)):
        builder.receive(peer, TARGET, blocks.offsets[peer], blocks.counts[peer])
    return builder.build()


def direct_scatter(rank: int, root: int, blocks: Blocks) -> Program:
    builder = ProgramBuilder()
    if rank != root:
        builder.receive(root, TARGET, 0, blocks.counts[rank])
        return builder.build()
    builder.copy(SOURCE, blocks.offsets[rank], TARGET, 0, blocks.counts[rank])
    for peer in others(rank, len(blocks.counts)):
        builder.send(peer, SOURCE, blocks.offsets[peer], blocks.counts[peer])
    return builder.build()


def direct_all_to_all(rank: int, outgoing: Blocks, incoming: Blocks) -> Program:
    """Block p of SOURCE goes to rank p; what rank p sends here becomes block p of TARGET."""
    builder = ProgramBuilder()
    builder.copy(SOURCE, outgoing.offsets[rank], TARGET, incoming.offsets[rank], outgoing.counts[rank])
    for peer in others(rank, len(outgoing.counts)):
        builder.send(peer, SOURCE, outgoing.offsets[peer], outgoing.counts[peer])
        builder.receive(peer, TARGET, incoming.offsets[peer], incoming.counts[peer])
    return builder.build()
