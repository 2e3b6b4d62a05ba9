"""What a test must not leave behind: threads, descriptors, processes, Unix sockets."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_PATIENCE_SECONDS = 5.0


def _found() -> dict[str, set[str]]:
    descriptors = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            descriptors.add(f"{path.name} -> {path.readlink()}")
    return {
        "threads": {f"{thread.name} {thread.ident}" for thread in threading.enumerate()},
        "descriptors": descriptors,
        "processes": {str(process.pid) for process in multiprocessing.active_children()},
        "sockets": {str(path) for path in Path(tempfile.gettempdir()).glob("dmlgbm-*.sock")},
    }


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fail if the block leaves more behind than was there before it."""
    before = _found()
    yield
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        gc.collect()
        left = {kind: found - before[kind] for kind, found in _found().items() if found - before[kind]}
        if not left or time.monotonic() > until:
            break
        time.sleep(0.05)
    assert not left, f"left behind: {left}"
