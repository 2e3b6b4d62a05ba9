"""A whole collective in one call without the GIL: phase by phase, first its messages, then its local rows."""

from __future__ import annotations

from typing import Any

from collectives.kernels.combine import run_local_rows
from collectives.kernels.compiler import kernel
from collectives.kernels.layout import DONE, NEXT_ROW, PHASE
from collectives.kernels.ring_loop import exchange_over_rings
from collectives.kernels.socket_loop import exchange_over_sockets


@kernel
def end_of_phase(program: Any, first: Any) -> Any:
    last = first + 1
    while last < len(program) and program[last, PHASE] == program[first, PHASE]:
        last += 1
    return last


@kernel
def run_over_sockets(work: Any, addresses: Any, wires: Any, operation: Any, like: Any, until: Any, control: Any) -> Any:
    """Run a program from control[NEXT_ROW] to its end, or say why that did not happen."""
    program, itemsize = work[0], work[1]
    first = control[NEXT_ROW]
    while first < len(program):
        last = end_of_phase(program, first)
        status = exchange_over_sockets(first, last, work, addresses, wires, until, control)
        if status != DONE:
            return status
        run_local_rows(first, last, program, itemsize, addresses, operation, like)
        first = last
        control[NEXT_ROW] = first
    return DONE


@kernel
def run_over_rings(work: Any, addresses: Any, wires: Any, operation: Any, like: Any, until: Any, control: Any) -> Any:
    """The same over rings in memory."""
    program, itemsize = work[0], work[1]
    first = control[NEXT_ROW]
    while first < len(program):
        last = end_of_phase(program, first)
        status = exchange_over_rings(first, last, work, addresses, wires, until, control)
        if status != DONE:
            return status
        run_local_rows(first, last, program, itemsize, addresses, operation, like)
        first = last
        control[NEXT_ROW] = first
    return DONE
