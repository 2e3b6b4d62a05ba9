"""Calls that go on while their caller does something else, in the order in which they were started."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Handle(Generic[Result]):
    """A call that was started. Its arrays must not be changed before it is over."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._over = threading.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether `wait` would return or raise at once."""
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> Result:
        """What the call returned, or its error. The call itself has a deadline; `timeout` only ends the waiting."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the call is still under way after {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def run(self) -> None:
        """Make the call; for the thread that owns the queue."""
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - kept for whoever waits
            self._error = error
        finally:
            self._over.set()


class InOrder:
    """One thread that makes the started calls one after another; it exists only once something was started."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Handle[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None  # None again once it has been told to end
        self._thread_number: int | None = None
        self._last: Handle[Any] | None = None
        self._lock = threading.Lock()

    def start(self, call: Callable[[], Result]) -> Handle[Result]:
        handle = Handle(call)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._last = handle
            self._calls.put(handle)
        return handle

    def wait_for_started(self) -> None:
        """Let every started call end before another one begins; does nothing inside such a call."""
        if self._last is not None and threading.get_ident() != self._thread_number:
            self._last._over.wait()

    def close(self) -> None:
        """End the thread after the calls that were started."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._calls.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        self._thread_number = threading.get_ident()
        while (handle := self._calls.get()) is not None:
            handle.run()
