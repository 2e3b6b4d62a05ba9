"""From a call to work: the program, the headers of its messages, and the scratch space, kept for calls that repeat."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmlgbm.collectives.frames import Header, Kind, Operation, dtype_code
from dmlgbm.collectives.kernels.layout import ACTION, COUNT, HEADER_WORDS, PEER, PHASE, SEND
from dmlgbm.collectives.reducers import Array, Reducer
from dmlgbm.collectives.schedules.choice import ALGORITHMS, Shape, check_algorithm, choose, make_program
from dmlgbm.collectives.session import Session
from dmlgbm.collectives.transports.contract import Words, Work

# Calls kept: lengths that a tree learner uses come again, but there may be hundreds of them; a call has a row or two
# for each rank.
_KEPT_CALLS, _KEPT_RANKS = 512, 4096
_KEPT_VIEWS = 64
# Scratch space above this is given back after the call.
_KEPT_SCRATCH = 16 << 20


class Call(NamedTuple):
    """What decides the work of a collective call; a tuple, because it is made and looked up for every call."""

    operation: Operation
    dtype: np.dtype[Any]
    counts: tuple[int, ...]
    root: int = 0
    reducer: Reducer | None = None
    algorithm: str | None = None
    incoming: tuple[int, ...] = ()


@dataclass(frozen=True)
class CallWork:
    """Work that can be started, and how many elements of scratch space it needs."""

    work: Work
    scratch_count: int


class WorkMaker:
    """Makes the work of calls in one session and keeps the latest."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: OrderedDict[Call, CallWork] = OrderedDict()
        self._n_kept = max(16, min(_KEPT_CALLS, _KEPT_RANKS // session.world_size))
        self._scratch = np.empty(0, np.uint8)
        self._views: dict[tuple[int, np.dtype[Any]], Array] = {}

    def work_of(self, call: Call) -> CallWork:
        """The work of a collective call, made once while it is kept."""
        made = self._kept.get(call)
        if made is not None:
            return made
        made = self._kept[call] = self._make(call)
        if len(self._kept) > self._n_kept:
            self._kept.popitem(last=False)
        return made

    def _make(self, call: Call) -> CallWork:
        dtype, reducer = call.dtype, call.reducer
        if reducer is not None:
            reducer.check(dtype)
        order_free = reducer is not None and reducer.is_order_free(dtype)
        shape = Shape(
            call.operation,
            self._session.rank,
            self._session.world_size,
            call.counts,
            dtype.itemsize,
            call.root,
            order_free,
            call.incoming,
        )
        if call.algorithm is not None:
            check_algorithm(call.operation, call.algorithm)
        name = choose(shape) if call.algorithm is None else call.algorithm
        program = make_program(shape, name)
        header = Header(
            Kind.DATA,
            self._session.number,
            self._session.generation,
            self._session.rank,
            operation=shape.operation,
            reducer=0 if reducer is None else reducer.code,
            dtype=dtype_code(dtype),
            # What all_to_all sends differs from rank to rank; its messages are compared one by one.
            count=0 if shape.incoming else shape.total,
            root=shape.root,
            algorithm=ALGORITHMS[shape.operation].index(name),
        )
        work = Work(program.rows, header_table(header, program.rows, dtype.itemsize), dtype, reducer)
        return CallWork(work, program.scratch_count)

    def scratch(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Room for `count` elements, valid until the next call."""
        view = self._views.get((count, dtype))
        if view is not None:
            return view
        size = count * dtype.itemsize
        if size > _KEPT_SCRATCH:
            return np.empty(count, dtype)
        if size > len(self._scratch) or len(self._views) >= _KEPT_VIEWS:
            self._scratch = np.empty(max(size, len(self._scratch)), np.uint8)
            self._views.clear()
        view = self._views[count, dtype] = self._scratch[:size].view(dtype)
        return view


def header_table(header: Header, rows: Words, itemsize: int) -> Words:
    """The header of each sending row, and for each receiving row the one that must arrive."""
    table = np.empty((len(rows), HEADER_WORDS), np.int64)
    table[:] = np.frombuffer(header.encode(), np.int64)
    words = table.view(np.uint32).reshape(len(rows), 2 * HEADER_WORDS)
    words[:, 5] = np.where(rows[:, ACTION] == SEND, header.rank, rows[:, PEER])
    table[:, 6] = rows[:, COUNT] * itemsize
    words[:, 15] |= rows[:, PHASE].astype(np.uint32)
    return table
