"""Dask's settings belong to the whole process: what several fits set at once is taken back when the last one ends.

`dask.config.set` puts back what it found. Of fits in several threads that do not end in the order in which they began,
the last one would put back what another one had set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from threading import Lock
from typing import Any


class SharedSetting:
    """A setting of Dask that holds as long as anybody is inside."""

    def __init__(self, name: str, value: Any) -> None:
        self._setting = {name: value}
        self._lock = Lock()
        self._n_inside = 0
        self._undo: Any = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the setting."""
        from dask import config

        with self._lock:
            if self._n_inside == 0:
                self._undo = config.set(self._setting)
                self._undo.__enter__()
            self._n_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_inside -= 1
                if self._n_inside == 0:
                    self._undo.__exit__(None, None, None)


# `Client.as_current` sets it too, and puts back what it finds: this.
COMPUTING_ON_CLIENTS = SharedSetting("scheduler", "dask.distributed")
# Tuning joins partitions of few columns.
PARTITIONS_AS_THEY_ARE = SharedSetting("optimization.tune.active", False)
