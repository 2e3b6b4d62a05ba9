"""Kernels of a caller that run prepared collectives; in a module of their own, for the processes that compile them."""

from __future__ import annotations

from typing import Any

from dmlgbm.collectives.kernels.compiler import kernel
from dmlgbm.collectives.kernels.layout import DONE
from dmlgbm.collectives.kernels.program_loop import run_again_over_rings, run_again_over_sockets
from dmlgbm.collectives.kernels.system_calls import monotonic_nanoseconds


@kernel
def rounds_over_sockets(sums: Any, totals: Any, part: Any, everybody: Any, n_rounds: Any, until: Any) -> int:
    """In every round: add up, take the own block as the next part, and gather the parts into the next values."""
    for _ in range(n_rounds):
        status = run_again_over_sockets(sums, until)
        if status != DONE:
            return status
        part[:] = totals % 1000
        status = run_again_over_sockets(everybody, until)
        if status != DONE:
            return status
    return DONE


@kernel
def rounds_over_rings(sums: Any, totals: Any, part: Any, everybody: Any, n_rounds: Any, until: Any) -> int:
    """The same over rings in memory."""
    for _ in range(n_rounds):
        status = run_again_over_rings(sums, until)
        if status != DONE:
            return status
        part[:] = totals % 1000
        status = run_again_over_rings(everybody, until)
        if status != DONE:
            return status
    return DONE


@kernel
def many_after(prepared: Any, start: Any, until: Any, scratch: Any) -> tuple[int, int]:
    """Wait for a moment, run 200 times; the status, and when that was done."""
    while monotonic_nanoseconds(scratch) < start:
        pass
    for _ in range(200):
        status = run_again_over_sockets(prepared, until)
        if status != DONE:
            return status, 0
    return DONE, monotonic_nanoseconds(scratch)
