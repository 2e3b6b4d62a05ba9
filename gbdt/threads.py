"""Who runs kernels side by side, and on how many threads.

Kernels release the GIL, so plain Python threads suffice: any number of fits may run at once in one process,
and no threading layer keeps a core that somebody else needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from threading import Event
from types import TracebackType
from typing import Any, Self, TypeVar

logger = logging.getLogger("dmlgbm")

Item = TypeVar("Item")
Result = TypeVar("Result")

# Below this many rows a range is not worth handing to another thread (about 60 microseconds a hand-over).
ROWS_WORTH_A_THREAD = 65_536


def say_that_threads_are_missing(n_wanted: int, n_there: int) -> None:
    """A fit that goes on with fewer threads takes longer."""
    logger.warning("the system starts no more threads: %d do the work of %d", n_there, n_wanted)


def _started_pool(n_threads: int) -> tuple[ThreadPoolExecutor | None, int]:
    """As many threads as can be started, and their number."""
    n_left = n_threads
    while n_left > 0:
        pool = ThreadPoolExecutor(n_left, "dmlgbm")
        n_started = _start_all(pool, n_left)
        if n_started == n_left:
            return pool, n_left
        # A pool that is short of threads would try again with every task.
        pool.shutdown(wait=True, cancel_futures=True)
        say_that_threads_are_missing(n_left + 1, n_started + 1)
        n_left = n_started
    return None, 0


def _start_all(pool: ThreadPoolExecutor, n_threads: int) -> int:
    """Start the threads of a pool now, which by itself waits for tasks; how many could be started."""
    go_on = Event()
    n_started = 0
    try:
        while n_started < n_threads:
            pool.submit(go_on.wait)
            n_started += 1
    except RuntimeError:
        pass
    finally:
        go_on.set()
    return n_started


class Workers:
    """A fixed number of threads for the length of one job; with one thread everything runs in the caller.

    Where the system does not start so many (a limit of a user's processes, a container's of its threads), there are
    fewer: `n_threads` says how many. They start when somebody asks for that or has work for them: to predict a few
    rows takes less time than to start a thread.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_wanted = n_threads

    @cached_property
    def _started(self) -> tuple[ThreadPoolExecutor | None, int]:
        return _started_pool(self._n_wanted - 1)

    @property
    def n_threads(self) -> int:
        """How many threads there are, the caller's among them."""
        return self._started[1] + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pool = self._started[0] if "_started" in vars(self) else None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def run(self, tasks: Iterable[Callable[[], Any]]) -> list[Any]:
        """The results of all tasks, in order. The caller's thread works too."""
        waiting = list(tasks)
        pool = self._started[0] if len(waiting) > 1 else None
        if pool is None:
            return [task() for task in waiting]
        futures = [pool.submit(task) for task in waiting[1:]]
        try:
            first = waiting[0]()
        finally:
            # No task may outlive the arrays of its caller, even when another one failed.
            for future in futures:
                future.exception()
        return [first, *(future.result() for future in futures)]

    def run_ranges(self, task: Callable[[int, int], Any], n: int, smallest: int = ROWS_WORTH_A_THREAD) -> list[Any]:
        """The results of task(start, stop) over one range a thread, together covering 0..n."""
        n_ranges = n // smallest
        if n_ranges > 1:
            n_ranges = min(n_ranges, self.n_threads)
        if n_ranges <= 1:
            return [task(0, n)]
        bounds = [n * k // n_ranges for k in range(n_ranges + 1)]
        return self.run([partial(task, bounds[k], bounds[k + 1]) for k in range(n_ranges)])

    def run_each(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of task(item), in order; threads take items as they become free."""
        if len(items) <= 1 or self.n_threads == 1:
            return [task(item) for item in items]
        results: list[Any] = [None] * len(items)
        positions = iter(range(len(items)))

        def work() -> None:
            for position in positions:
                results[position] = task(items[position])

        self.run([work] * self.n_threads)
        return results
