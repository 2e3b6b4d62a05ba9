"""Schedules, run by a simulation without any transport: everybody ends with the right data, in rank order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives.frames import Operation
from dmlgbm.collectives.kernels.layout import (
    ACTION,
    COPY,
    COUNT,
    FROM_BUFFER,
    FROM_OFFSET,
    PEER,
    PHASE,
    RECEIVE,
    SEND,
    SOURCE,
    TARGET,
    TO_BUFFER,
    TO_OFFSET,
)
from dmlgbm.collectives.schedules.choice import ALGORITHMS, MANY_RANKS, Shape, choose, make_program

WORLDS = [*range(1, 10), 13, 16, 17]


def part(row: Any, buffers: list[Any], buffer: int, offset: int) -> Any:
    return buffers[row[buffer]][row[offset] : row[offset] + row[COUNT]]


def simulate(shapes: list[Shape], algorithm: str, sources: list[Any], target_counts: list[int]) -> list[Any]:
    """The TARGET of every rank after all programs ran; elements are texts, and combining joins them."""
    programs = [make_program(shape, algorithm) for shape in shapes]
    memory = [
        [source.copy(), np.full(count, "?", object), np.full(program.scratch_count, "?", object)]
        for source, count, program in zip(sources, target_counts, programs, strict=True)
    ]
    last = max((program.rows[-1, PHASE] for program in programs if len(program.rows)), default=-1)
    for phase in range(last + 1):
        rows = [program.rows[program.rows[:, PHASE] == phase] for program in programs]
        mail = {}
        for rank, of_rank in enumerate(rows):
            for row in of_rank[of_rank[:, ACTION] == SEND]:
                assert (rank, row[PEER]) not in mail, "two messages to one peer in one phase"
                mail[rank, int(row[PEER])] = part(row, memory[rank], FROM_BUFFER, FROM_OFFSET).copy()
        for rank, of_rank in enumerate(rows):
            for row in of_rank[of_rank[:, ACTION] == RECEIVE]:
                part(row, memory[rank], TO_BUFFER, TO_OFFSET)[:] = mail.pop((int(row[PEER]), rank))
        assert not mail, "a message that nobody receives"
        for rank, of_rank in enumerate(rows):
            for row in of_rank[of_rank[:, ACTION] >= COPY]:
                source = part(row, memory[rank], FROM_BUFFER, FROM_OFFSET)
                target = part(row, memory[rank], TO_BUFFER, TO_OFFSET)
                target[:] = source if row[ACTION] == COPY else target + source
    for before, after in zip(sources, memory, strict=True):
        assert (before == after[SOURCE]).all(), "the input was written to"
    return [buffers[TARGET] for buffers in memory]


def letters(rank: int, count: int) -> Any:
    return np.array([f"{rank:x}{i}." for i in range(count)], object)


def shapes_of(operation: Operation, counts: list[int], order_free: bool = False, root: int = 0) -> list[Shape]:
    world_size = max(len(counts), 1)
    return [Shape(operation, rank, world_size, tuple(counts), 8, root, order_free) for rank in range(world_size)]


def sorted_pieces(text: str) -> list[str]:
    return sorted(text.split("."))


@pytest.mark.parametrize("order_free", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS[Operation.ALL_REDUCE])
@pytest.mark.parametrize("world_size", WORLDS)
def test_all_reduce_combines_every_rank_once_and_in_rank_order_where_that_matters(
    world_size: int, algorithm: str, order_free: bool
) -> None:
    for count in (0, 1, world_size - 1, world_size, 3 * world_size + 1):
        shapes = [
            Shape(Operation.ALL_REDUCE, rank, world_size, (count,), 8, order_free=order_free)
            for rank in range(world_size)
        ]
        sources = [letters(rank, count) for rank in range(world_size)]
        expected = sum(sources[1:], sources[0])
        for target in simulate(shapes, algorithm, sources, [count] * world_size):
            if order_free:
                assert list(map(sorted_pieces, target)) == list(map(sorted_pieces, expected))
            else:
                assert (target == expected).all()


@pytest.mark.parametrize("order_free", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS[Operation.REDUCE])
@pytest.mark.parametrize("world_size", WORLDS)
def test_reduce_reaches_any_root(world_size: int, algorithm: str, order_free: bool) -> None:
    count = 2 * world_size + 1
    sources = [letters(rank, count) for rank in range(world_size)]
    expected = sum(sources[1:], sources[0])
    for root in {0, world_size // 2, world_size - 1}:
        shapes = [
            Shape(Operation.REDUCE, rank, world_size, (count,), 8, root, order_free) for rank in range(world_size)
        ]
        target = simulate(shapes, algorithm, sources, [count] * world_size)[root]
        if order_free:
            assert list(map(sorted_pieces, target)) == list(map(sorted_pieces, expected))
        else:
            assert (target == expected).all()


@pytest.mark.parametrize("order_free", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS[Operation.REDUCE_SCATTER])
@pytest.mark.parametrize("world_size", WORLDS)
def test_reduce_scatter_gives_each_rank_its_block(world_size: int, algorithm: str, order_free: bool) -> None:
    counts = [(3 * rank) % 5 for rank in range(world_size)]
    sources = [letters(rank, sum(counts)) for rank in range(world_size)]
    expected = np.split(sum(sources[1:], sources[0]), np.cumsum(counts)[:-1])
    targets = simulate(shapes_of(Operation.REDUCE_SCATTER, counts, order_free), algorithm, sources, counts)
    for target, block in zip(targets, expected, strict=True):
        assert list(map(sorted_pieces, target)) == list(map(sorted_pieces, block))
        assert order_free or (target == block).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS[Operation.ALL_GATHER])
@pytest.mark.parametrize("world_size", WORLDS)
def test_all_gather_brings_unequal_blocks_to_everybody(world_size: int, algorithm: str) -> None:
    counts = [(5 * rank + 1) % 4 for rank in range(world_size)]
    sources = [letters(rank, count) for rank, count in enumerate(counts)]
    expected = np.concatenate(sources)
    targets = simulate(shapes_of(Operation.ALL_GATHER, counts), algorithm, sources, [sum(counts)] * world_size)
    assert all((target == expected).all() for target in targets)


@pytest.mark.parametrize("world_size", WORLDS)
def test_gather_and_scatter_are_inverse(world_size: int) -> None:
    counts = [(7 * rank + 2) % 4 for rank in range(world_size)]
    sources = [letters(rank, count) for rank, count in enumerate(counts)]
    for root in {0, world_size - 1}:
        totals = [sum(counts) if rank == root else 0 for rank in range(world_size)]
        gathered = simulate(shapes_of(Operation.GATHER, counts, root=root), "direct", sources, totals)
        assert (gathered[root] == np.concatenate(sources)).all()
        scattered = simulate(shapes_of(Operation.SCATTER, counts, root=root), "direct", gathered, counts)
        assert all((found == source).all() for found, source in zip(scattered, sources, strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS[Operation.BARRIER])
@pytest.mark.parametrize("world_size", WORLDS)
def test_nobody_leaves_a_barrier_before_everybody_has_come(world_size: int, algorithm: str) -> None:
    programs = [
        make_program(Shape(Operation.BARRIER, rank, world_size, (0,), 1), algorithm) for rank in range(world_size)
    ]
    heard = [{rank} for rank in range(world_size)]
    for phase in range(world_size):
        before = [set(each) for each in heard]
        for rank, program in enumerate(programs):
            for row in program.rows[(program.rows[:, PHASE] == phase) & (program.rows[:, ACTION] == RECEIVE)]:
                heard[rank] |= before[row[PEER]]
    assert all(each == set(range(world_size)) for each in heard)


def test_the_choice_is_among_the_algorithms_of_the_call() -> None:
    for operation, world_size, count, order_free in itertools.product(
        ALGORITHMS, (1, 2, 4, MANY_RANKS, 64), (0, 1, 1 << 12, 1 << 20), (False, True)
    ):
        assert choose(Shape(operation, 0, world_size, (count,), 8, order_free=order_free)) in ALGORITHMS[operation]
