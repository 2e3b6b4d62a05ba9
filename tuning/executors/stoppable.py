"""Units on workers that cannot be ended from outside: each in a thread of its own, which nobody has to wait for.

A thread of Python's cannot be killed. Whoever waits for a unit is let go at once when its search is stopped, so that
the worker's slot is free for somebody else; the thread of the unit is sent an exception, which reaches it at its next
step in Python: at the end of the kernel call it is in.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

Result = TypeVar("Result")

_MOST_SEARCHES_REMEMBERED = 256


class UnitStopped(BaseException):
    """Raised inside of a unit that nobody waits for any more."""


class _Unit(Generic[Result]):
    def __init__(self, function: Callable[[], Result]) -> None:
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.is_stopped = False
        self._function = function
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._is_inside = True
        # Of whoever waits: the Dask worker is found through it.
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="dmlgbm-unit", daemon=True)

    def wait(self) -> None:
        self._thread.start()
        self._left.wait()

    def stop(self) -> None:
        self.is_stopped = True
        self._left.set()
        with self._lock:  # a thread that has ended may have left its number to another one
            if self._is_inside and self._thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident), ctypes.py_object(UnitStopped)
                )

    def _run(self) -> None:
        try:
            try:
                self.result = self._function()
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
                self.error = error
            finally:
                with self._lock:
                    self._is_inside = False
                self._left.set()
        except UnitStopped:  # on the last steps; nobody waits
            pass


class StoppableUnits:
    """The units that run in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, set[_Unit[object]]] = {}
        self._stopped: OrderedDict[str, float] = OrderedDict()
        """Up to which round the units of a search are not wanted any more."""

    def run(self, search: str, round_number: int, function: Callable[[], Result]) -> Result | None:
        """The result of a unit; None if its search is stopped before it has one."""
        unit: _Unit[Result] = _Unit(function)
        with self._lock:
            if round_number <= self._stopped.get(search, -1):
                return None
            self._running.setdefault(search, set()).add(unit)  # type: ignore[arg-type]
        try:
            unit.wait()
        finally:
            with self._lock:
                self._running[search].discard(unit)
                if not self._running[search]:
                    del self._running[search]
        if unit.is_stopped:
            return None
        if unit.error is not None:
            raise unit.error
        return unit.result

    def stop(self, search: str, up_to_round: float) -> None:
        """End the units of a search, also those of these rounds that are still on their way here."""
        with self._lock:
            self._stopped[search] = max(up_to_round, self._stopped.pop(search, -1))
            while len(self._stopped) > _MOST_SEARCHES_REMEMBERED:
                self._stopped.popitem(last=False)
            running = list(self._running.get(search, ()))
        for unit in running:
            unit.stop()
