"""Which algorithm runs a call, and the program that follows from it.

Thresholds are from `benchmarks/bench_collectives.py` on loopback. Every rank comes to the same choice because it
depends only on what all ranks share. An algorithm that reduces in another order than that of the ranks is replaced,
for operations where order matters, by direct exchange to the owners followed by the same way of spreading results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dmlgbm.collectives.frames import Operation
from dmlgbm.collectives.schedules import direct, halving, ring, tree
from dmlgbm.collectives.schedules.program import Blocks, Program, ProgramBuilder

# Up to this many bytes one phase in which everybody sends everything beats two phases with a part each.
EXCHANGE_BYTES = 16 << 10
# From this many ranks on, every rank dealing with every other costs more than a few phases.
MANY_RANKS = 16
# A ring keeps one stream for each pair of neighbours; worth its many phases only for large blocks among many ranks.
RING_BYTES = 1 << 20
# A root that sends everything itself is slower than a tree when its messages are large.
TREE_BYTES = 32 << 10

ALGORITHMS: dict[Operation, tuple[str, ...]] = {
    Operation.ALL_REDUCE: ("exchange", "direct", "ring", "halving"),
    Operation.REDUCE: ("exchange", "direct", "tree"),
    Operation.BROADCAST: ("direct", "tree"),
    Operation.ALL_GATHER: ("direct", "ring", "halving"),
    Operation.REDUCE_SCATTER: ("direct", "ring"),
    Operation.BARRIER: ("direct", "halving"),
    Operation.GATHER: ("direct",),
    Operation.SCATTER: ("direct",),
    Operation.ALL_TO_ALL: ("direct",),
}


@dataclass(frozen=True)
class Shape:
    """The sizes of a call in elements: one count, or one for each rank (for all_to_all also the incoming ones)."""

    operation: Operation
    rank: int
    world_size: int
    counts: tuple[int, ...]
    itemsize: int
    root: int = 0
    order_free: bool = False
    incoming: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.counts)


def choose(shape: Shape) -> str:
    """The algorithm for a call that does not name one."""
    size, many = shape.total * shape.itemsize, shape.world_size >= MANY_RANKS
    operation = shape.operation
    if operation == Operation.ALL_REDUCE:
        return _choose_all_reduce(size, many, shape.order_free)
    if operation == Operation.REDUCE:
        return "exchange" if size <= EXCHANGE_BYTES else "direct"
    if operation == Operation.BROADCAST:
        return "tree" if many or (size > TREE_BYTES and shape.world_size > 2) else "direct"
    if operation == Operation.ALL_GATHER:
        return "direct" if not many else "ring" if size > RING_BYTES else "halving"
    if operation == Operation.BARRIER:
        return "halving" if many else "direct"
    return "direct"


def _choose_all_reduce(size: int, many: bool, order_free: bool) -> str:
    if not many:
        return "exchange" if size <= EXCHANGE_BYTES else "direct"
    if size > RING_BYTES:
        return "ring"
    return "halving" if order_free else "direct"


def all_reduce_bytes(size: int, world_size: int) -> int:
    """What a rank sends in an all_reduce of `size` bytes whose order does not matter, give or take an element.

    Everybody sends everything to everybody, or first and last a part; ring and halving send as much as the latter.
    """
    if world_size < MANY_RANKS and size <= EXCHANGE_BYTES:
        return size * (world_size - 1)
    return 2 * size * (world_size - 1) // world_size


def check_algorithm(operation: Operation, algorithm: str) -> None:
    if algorithm not in ALGORITHMS[operation]:
        raise ValueError(
            f"algorithm for {operation.name.lower()} must be one of {', '.join(ALGORITHMS[operation])}, "
            f"got {algorithm!r}"
        )


def make_program(shape: Shape, algorithm: str) -> Program:
    """What this rank does in the call."""
    return _MAKERS[shape.operation](shape, algorithm)


def _all_reduce(shape: Shape, algorithm: str) -> Program:
    rank, world_size, count = shape.rank, shape.world_size, shape.total
    if algorithm == "exchange":
        return direct.exchange_all_reduce(rank, world_size, count)
    if algorithm == "direct":
        return direct.direct_all_reduce(rank, world_size, count)
    if shape.order_free:
        make = ring.ring_all_reduce if algorithm == "ring" else halving.halving_all_reduce
        return make(rank, world_size, count)
    builder, blocks = ProgramBuilder(), Blocks.even(count, world_size)
    direct.add_reduce_scatter(builder, rank, blocks, blocks.offsets[rank])
    spread = ring.add_ring_all_gather if algorithm == "ring" else halving.add_doubling_all_gather
    spread(builder, rank, blocks)
    return builder.build()


def _reduce(shape: Shape, algorithm: str) -> Program:
    # A tree adds up by subtrees, so where order matters the owners fold and send to the root.
    if algorithm == "tree" and shape.order_free:
        make = tree.tree_reduce
    else:
        make = direct.exchange_reduce if algorithm == "exchange" else direct.direct_reduce
    return make(shape.rank, shape.world_size, shape.root, shape.total)


def _broadcast(shape: Shape, algorithm: str) -> Program:
    make = tree.tree_broadcast if algorithm == "tree" else direct.direct_broadcast
    return make(shape.rank, shape.world_size, shape.root, shape.total)


def _all_gather(shape: Shape, algorithm: str) -> Program:
    make = {
        "direct": direct.direct_all_gather,
        "ring": ring.ring_all_gather,
        "halving": halving.doubling_all_gather,
    }[algorithm]
    return make(shape.rank, Blocks.of(shape.counts))


def _reduce_scatter(shape: Shape, algorithm: str) -> Program:
    make = ring.ring_reduce_scatter if algorithm == "ring" and shape.order_free else direct.direct_reduce_scatter
    return make(shape.rank, Blocks.of(shape.counts))


def _barrier(shape: Shape, algorithm: str) -> Program:
    if algorithm == "halving":
        return halving.dissemination_barrier(shape.rank, shape.world_size)
    return direct.exchange_all_reduce(shape.rank, shape.world_size, 0)


_MAKERS: dict[Operation, Callable[[Shape, str], Program]] = {
    Operation.ALL_REDUCE: _all_reduce,
    Operation.REDUCE: _reduce,
    Operation.BROADCAST: _broadcast,
    Operation.ALL_GATHER: _all_gather,
    Operation.REDUCE_SCATTER: _reduce_scatter,
    Operation.BARRIER: _barrier,
    Operation.GATHER: lambda shape, _: direct.direct_gather(shape.rank, shape.root, Blocks.of(shape.counts)),
    Operation.SCATTER: lambda shape, _: direct.direct_scatter(shape.rank, shape.root, Blocks.of(shape.counts)),
    Operation.ALL_TO_ALL: lambda shape, _: direct.direct_all_to_all(
        shape.rank, Blocks.of(shape.counts), Blocks.of(shape.incoming)
    ),
}
