"""Which worker gets which share of the rows: where the data is, unless one worker would have to do much more."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

# A worker may keep what lies on it up to this many times its fair part: moving rows costs less than waiting for it.
_TOLERATED = 1.15


def place_shares(
    n_rows: Sequence[int],
    holders: Sequence[str | None],
    threads: Mapping[str, int],
    already: Mapping[str, int] | None = None,
) -> list[str]:
    """A worker for each share. `already` are rows that workers have from before; threads count as capacity."""
    load = {worker: (already or {}).get(worker, 0) for worker in threads}
    fair = (sum(n_rows) + sum(load.values())) / sum(threads.values())
    placed: list[str | None] = [None] * len(n_rows)
    largest_first = sorted(range(len(n_rows)), key=lambda share: -n_rows[share])
    for share in largest_first:
        holder = holders[share]
        if holder in load and load[holder] + n_rows[share] <= _TOLERATED * fair * threads[holder]:
            placed[share] = holder
            load[holder] += n_rows[share]
    # Everything else to the worker that would then be done first; equal ones in the order of their addresses.
    queue = [(load[worker] / threads[worker], worker) for worker in threads]
    heapq.heapify(queue)
    for share in largest_first:
        if placed[share] is None:
            _, worker = heapq.heappop(queue)
            placed[share] = worker
            load[worker] += n_rows[share]
            heapq.heappush(queue, (load[worker] / threads[worker], worker))
    return [worker for worker in placed if worker is not None]
