"""A whole collective in one call without the GIL: phase by phase, first its messages, then its local rows."""

from __future__ import annotations

from typing import Any

from dmlgbm.collectives.kernels.combine import run_local_rows
from dmlgbm.collectives.kernels.compiler import inlined, kernel
from dmlgbm.collectives.kernels.layout import DONE, NEXT_ROW, NEXT_SEQUENCE, NOBODY_RUNS, PHASE, RUNNING, SEQUENCE_WORD
from dmlgbm.collectives.kernels.ring_loop import exchange_over_rings
from dmlgbm.collectives.kernels.socket_loop import exchange_over_sockets


@kernel
def end_of_phase(program: Any, first: Any) -> int:
    last = first + 1
    while last < len(program) and program[last, PHASE] == program[first, PHASE]:
        last += 1
    return last


@kernel
def get_ready(headers: Any, state: Any, addresses: Any, sequence: Any, source: Any, target: Any, scratch: Any) -> None:
    """What `Work.start` does, in one call: ranks that share cores pay for each other's microseconds of Python."""
    headers[:, SEQUENCE_WORD] = sequence
    state[:] = 0
    addresses[0] = source.ctypes.data
    addresses[1] = target.ctypes.data
    addresses[2] = scratch.ctypes.data


@kernel
def run_over_sockets(work: Any, addresses: Any, wires: Any, operation: Any, like: Any, until: Any, control: Any) -> int:
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
def run_again_over_sockets(prepared: Any, until: Any) -> int:
    """Run a prepared collective once more, as the next of its communicator; for kernels that stay away from Python.

    `prepared` is `PreparedCall.arguments`, `until` is in monotonic nanoseconds. A kernel that gets any status but DONE
    returns it to Python, for `KernelCalls.finish`.
    """
    work, addresses, wires, operation, like, control, turn, position = prepared
    begin_again(work, control, turn, position)
    status = run_over_sockets(work, addresses, wires, operation, like, until, control)
    if status == DONE:
        end_again(turn)
    return status


@inlined
def begin_again(work: Any, control: Any, turn: Any, position: Any) -> None:
    _, _, headers, _, moved_bytes = work
    headers[:, SEQUENCE_WORD] = turn[NEXT_SEQUENCE]
    moved_bytes[:] = 0
    control[:] = 0
    turn[RUNNING] = position


@inlined
def end_again(turn: Any) -> None:
    turn[NEXT_SEQUENCE] += 1
    turn[RUNNING] = NOBODY_RUNS


@kernel
def run_over_rings(work: Any, addresses: Any, wires: Any, operation: Any, like: Any, until: Any, control: Any) -> int:
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


@kernel
def run_again_over_rings(prepared: Any, until: Any) -> int:
    """The same as `run_again_over_sockets`, over rings in memory."""
    work, addresses, wires, operation, like, control, turn, position = prepared
    begin_again(work, control, turn, position)
    status = run_over_rings(work, addresses, wires, operation, like, until, control)
    if status == DONE:
        end_again(turn)
    return status
