"""The seat of a task in the thread pool of its Dask worker: given away while the task waits for others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def outside_of_a_task() -> Iterator[None]:
    """Where this runs inside a task, tasks that it starts may need its seat: they have it until the block ends."""
    from distributed import get_worker, rejoin, secede

    try:
        get_worker()
        secede()
    except (ValueError, KeyError, AttributeError):
        # Not in a task, in one that has left already (`worker_client`) and will come back itself, or in a thread of its
        # own that never had a seat.
        yield
        return
    try:
        yield
    finally:
        rejoin()
