"""The kernel that times collectives; in a module of its own, for the processes that compile it."""

from __future__ import annotations

from typing import Any

from dmlgbm.collectives.kernels.compiler import kernel
from dmlgbm.collectives.kernels.layout import DONE
from dmlgbm.collectives.kernels.program_loop import run_again_over_sockets
from dmlgbm.collectives.kernels.system_calls import monotonic_nanoseconds


@kernel
def time_again(prepared: Any, times: Any, first: Any, until: Any, scratch: Any) -> tuple[int, int]:
    """Fill times[first:] with the nanoseconds of one run each, never taking the GIL; where it stopped, and why."""
    for position in range(first, len(times)):
        began = monotonic_nanoseconds(scratch)
        status = run_again_over_sockets(prepared, until)
        times[position] = monotonic_nanoseconds(scratch) - began
        if status != DONE:
            return position, status
    return len(times), DONE
