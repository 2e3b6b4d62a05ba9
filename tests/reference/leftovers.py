"""What a test must not leave behind: threads, descriptors, processes, Unix sockets, shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 5.0


def _found() -> dict[str, set[str]]:
    descriptors = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(path.readlink())
            # The listing itself has a descriptor, and so has that of another thread.
            if not target.endswith("/fd"):
                descriptors.add(f"{path.name} -> {target}")
    areas = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:dmlgbm" in line]
    return {
        "threads": {f"{thread.name} {thread.ident}" for thread in threading.enumerate()},
        "descriptors": descriptors,
        "processes": {path.name for path in Path("/proc").iterdir() if _parent(path) == os.getpid()},
        "sockets": {str(path) for path in Path(tempfile.gettempdir()).glob(f"dmlgbm-{os.getpid()}-*.sock")},
        "shared memory": set(areas),
    }


def _parent(process: Path) -> int:
    """The process that started this one, or -1 if the path is none of a process that runs."""
    with contextlib.suppress(OSError):
        if process.name.isdecimal():
            return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return -1


def soon_equals(measure: Callable[[], Any], wanted: Any) -> bool:
    """Whether something becomes what is wanted: an error may be heard of before the last thread has ended."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while (found := measure()) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    return bool(found == wanted)


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fail if the block leaves more behind than was there before it."""
    before = _found()
    yield
    until = time.monotonic() + _PATIENCE_SECONDS
    while left := {kind: found - before[kind] for kind, found in _found().items() if found - before[kind]}:
        assert time.monotonic() < until, f"left behind: {left}"
        gc.collect()
        time.sleep(0.02)
