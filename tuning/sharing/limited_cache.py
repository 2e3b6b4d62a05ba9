"""What a worker keeps of a search from one unit to the next, within a limit of memory.

Nothing here is ever needed: what was dropped, or lost with its worker, is made again to the same bits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from dmlgbm.tuning.calls import SearchData

# Prepared folds and the output of pipeline steps: some of each, for folds of a few million values.
ROWS_BYTES = 256 << 20
# Rows of folds as they were taken out of the table: to take them out again is quick.
SLICES_BYTES = 64 << 20
# Models, a few kilobytes a tree, and scores of their rows where there is room for them.
RUNS_BYTES = 48 << 20


class LimitedCache:
    """Values by key; those that nobody has asked for the longest go first when the limit is reached."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def n_bytes(self) -> int:
        return self._n_bytes

    def is_half_empty_with(self, n_bytes: int) -> bool:
        """Whether half of the limit would still be free with so many bytes more."""
        return self._n_bytes + n_bytes <= self._max_bytes // 2

    def get_or_make(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> tuple[Any, bool]:
        """The value and whether it was made now; `make` gives it with its size, and runs once at a time for a key."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._entries:
                    self._making.pop(key, None)
                    self._entries.move_to_end(key)
                    return self._entries[key][0], False
            try:
                value, n_bytes = make()
                self.put(key, value, n_bytes)
            finally:
                self._making.pop(key, None)
            return value, True

    def put(self, key: Hashable, value: Any, n_bytes: int) -> None:
        """Keep a value, at least until the next one comes."""
        with self._lock:
            self._remove(key)
            self._entries[key] = (value, n_bytes)
            self._n_bytes += n_bytes
            while self._n_bytes > self._max_bytes and len(self._entries) > 1:
                self._remove(next(iter(self._entries)))

    def take(self, key: Hashable) -> Any:
        """Remove a value and return it; None if it is not here."""
        with self._lock:
            return self._remove(key)

    def _remove(self, key: Hashable) -> Any:
        value, n_bytes = self._entries.pop(key, (None, 0))
        self._n_bytes -= n_bytes
        return value


def rows_cache(data: SearchData) -> LimitedCache:
    """Prepared folds and transformed ones."""
    cache: LimitedCache = data.memory.setdefault("shared rows", LimitedCache(ROWS_BYTES))
    return cache


def slices_cache(data: SearchData) -> LimitedCache:
    """Rows of folds."""
    cache: LimitedCache = data.memory.setdefault("rows of folds", LimitedCache(SLICES_BYTES))
    return cache


def runs_cache(data: SearchData) -> LimitedCache:
    """Models that may be taken further in a later round, some of them as bytes."""
    cache: LimitedCache = data.memory.setdefault("shared runs", LimitedCache(RUNS_BYTES))
    return cache
