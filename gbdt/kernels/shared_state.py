"""What threads growing one tree share besides the nodes: a few counters and a lock, in one array of int64.

Waiting threads look again at once for a while, then sleep between looks: a core that somebody else needs is not
kept busy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gbdt.kernels.compiler import inlined

# Places in the shared array. The lock guards all counters except those of parts.
LOCK, PARTS_TAKEN, PARTS_BUILT, ROOT_TAKEN, N_HANDED_IN, N_IN_FLIGHT, N_NODES, N_CLAIMED, N_FREE, N_CHOSEN = range(10)
N_PLACES = 10

# A look takes a few nanoseconds, most waits some microseconds.
_LOOKS_BEFORE_SLEEP = 20_000
_SLEEP_MICROSECONDS = np.uint32(30)

_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@intrinsic
def fetch_and_add(typing_context: Any, shared: Any, place: Any, amount: Any) -> Any:
    """Add to a counter in one step that no other thread can interrupt; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

    return types.int64(shared, types.int64, types.int64), generate


@intrinsic
def fetch(typing_context: Any, shared: Any, place: Any) -> Any:
    """A counter as other threads left it last."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(shared, types.int64), generate


@intrinsic
def exchange(typing_context: Any, shared: Any, place: Any, value: Any) -> Any:
    """Write a value and return what was there, in one step."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.atomic_rmw("xchg", pointer, arguments[2], "seq_cst")

    return types.int64(shared, types.int64, types.int64), generate


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return cgutils.gep(builder, array.data, arguments[1])


@inlined
def wait_for_change(shared: npt.NDArray[np.int64], place: int, seen: int) -> None:
    """Return once the counter is no longer what it was seen to be."""
    looks = 0
    while fetch(shared, place) == seen:
        looks += 1
        if looks >= _LOOKS_BEFORE_SLEEP:
            _sleep(_SLEEP_MICROSECONDS)


@inlined
def acquire(shared: npt.NDArray[np.int64], place: int) -> None:
    """Take the lock at a place of the array."""
    while exchange(shared, place, 1) != 0:
        wait_for_change(shared, place, np.int64(1))


@inlined
def release(shared: npt.NDArray[np.int64], place: int) -> None:
    """Give the lock back."""
    exchange(shared, place, 0)
