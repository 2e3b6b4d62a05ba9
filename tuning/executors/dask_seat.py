"""The seat of a task in the thread pool of its Dask worker, for another thread that does the work of the task.

A fit that starts tasks of its own (on Dask collections), `compute` and `worker_client` give the seat away while they
wait: a worker with one thread could not run these tasks otherwise. Dask knows the seat by the thread it belongs to.
Here the working thread is shown a `Seat` as its pool, which gives away and takes back that of the waiting one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from distributed.threadpoolexecutor import thread_state as of_pool
from distributed.threadpoolexecutor import threads_lock
from distributed.utils import thread_state as of_task  # type: ignore[attr-defined]


class Seat:
    """The seat of the thread that this is made in. Dask's `secede` and `rejoin` see it as the pool of their thread."""

    def __init__(self) -> None:
        self._pool: Any = getattr(of_pool, "executor", None)  # None in a pool of the user's own, which nobody can leave
        self._thread = threading.current_thread()
        self._task = dict(vars(of_task))
        self._coming_back: list[threading.Event] = []
        self._is_given_back = False
        self._threads = self._rejoin_list = self

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """In another thread: the task's seat is this thread's."""
        if self._pool is None:
            yield
            return
        of_pool.executor, of_pool.proceed = self, True
        vars(of_task).update(self._task)
        try:
            yield
        finally:
            vars(of_pool).clear()
            vars(of_task).clear()

    def give_back(self) -> None:
        """In the thread of the task: whoever works from now on has no seat, and this thread ends if it has none."""
        if self._pool is None:
            return
        with threads_lock, self._pool._rejoin_lock:
            self._is_given_back = True
            waiting = [entry for entry in self._pool._rejoin_list if entry[1] in self._coming_back]
            for entry in waiting:
                self._pool._rejoin_list.remove(entry)
                entry[1].set()
            of_pool.proceed = self._thread in self._pool._threads

    # What Dask calls, under the locks of the pool.

    def remove(self, thread: threading.Thread) -> None:
        """Leave the pool."""
        if self._is_given_back:
            raise KeyError("the task of this thread has ended")
        self._pool._threads.remove(self._thread)

    def append(self, entry: tuple[threading.Thread, threading.Event]) -> None:
        """Wait for a seat in the pool."""
        _, is_back = entry
        if self._is_given_back:
            is_back.set()
            return
        self._coming_back.append(is_back)
        self._pool._rejoin_list.append((self._thread, is_back))

    def __getattr__(self, name: str) -> Any:
        """Everything else of the pool."""
        return getattr(self._pool, name)
