"""What a collective is asked to do: the call all ranks must agree on, what this rank gives, where its result goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlgbm.collectives.arrays import check_counts, flat, output, separate
from dmlgbm.collectives.call_work import Call
from dmlgbm.collectives.frames import Operation
from dmlgbm.collectives.reducers import Array, Reducer, find_reducer


class Request(NamedTuple):
    """One rank's part in a collective; `source` is flat, `result` has the shape that the caller gets."""

    call: Call
    source: Array
    result: Array


def all_reduce(array: Array, op: str | Reducer, algorithm: str | None, out: Array | None) -> Request:
    reducer, values = find_reducer(op), flat(array)
    result = output(out, np.shape(array), values.dtype)
    call = Call(Operation.ALL_REDUCE, values.dtype, (len(values),), 0, reducer, algorithm)
    return Request(call, separate(values, out), result)


def all_gather(world_size: int, array: Array, algorithm: str | None, out: Array | None) -> Request:
    values = flat(array)
    result = output(out, (world_size, *np.shape(array)), values.dtype)
    call = Call(Operation.ALL_GATHER, values.dtype, (len(values),) * world_size, algorithm=algorithm)
    return Request(call, separate(values, out), result)


def reduce_scatter(
    rank: int,
    world_size: int,
    array: Array,
    op: str | Reducer,
    counts: Sequence[int] | None,
    algorithm: str | None,
) -> Request:
    reducer, values, own = find_reducer(op), flat(array), np.asarray(array)
    if own.ndim == 0 or (counts is None and own.shape[0] % world_size):
        raise ValueError(f"array of shape {own.shape} has no {world_size} equal parts; give counts")
    equal = [own.shape[0] // world_size] * world_size
    rows = check_counts(equal if counts is None else counts, world_size, own.shape[0], "counts")
    width = int(np.prod(own.shape[1:], dtype=np.int64))
    result = np.empty((rows[rank], *own.shape[1:]), values.dtype)
    sizes = tuple(count * width for count in rows)
    return Request(Call(Operation.REDUCE_SCATTER, values.dtype, sizes, 0, reducer, algorithm), values, result)
