"""How many cores this process may use: those that it is allowed to run on, and no more than its quota of CPU time.

A container is often given a quota (`docker run --cpus=2`, a limit in Kubernetes) instead of cores of its own. More
threads than the quota feeds are stopped together for the rest of each tenth of a second.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path, PurePosixPath

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_share: ContextVar[int | None] = ContextVar("share of the cores", default=None)


def usable_cores() -> int:
    """Cores for the threads of this process; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _own_quota())))


def available_threads() -> int:
    """The cores this process may use, or the share of them that `limited_threads` leaves to the caller."""
    cores = usable_cores()
    share = _share.get()
    return cores if share is None else max(1, min(cores, share))


@contextlib.contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    """What runs inside, in this thread, takes `n_threads` for all cores: several fits share one machine."""
    token = _share.set(n_threads)
    try:
        yield
    finally:
        _share.reset(token)


@cache
def _own_quota() -> float:
    """Read once: a fit of a small table asks several times, and takes less time than the files do."""
    return cpu_quota(_CONTROL_GROUPS, _OWN_GROUPS)


def cpu_quota(control_groups: Path, own_groups: Path) -> float:
    """The CPU time that this process gets in each second: the least of its control group and those around it."""
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    return min((quota for line in lines for quota in _quotas(control_groups, line)), default=math.inf)


def _quotas(control_groups: Path, line: str) -> Iterator[float]:
    """What the group of one line of /proc/self/cgroup, number:controllers:path, and the groups around it allow."""
    _, controllers, path = line.split(":", 2)
    is_first_version = "cpu" in controllers.split(",")
    if controllers and not is_first_version:
        return
    root = control_groups / controllers
    # Inside a container the path may be that of the host, of which only the container's own end is to be seen.
    inside = PurePosixPath(path).relative_to("/")
    for group in (root / inside, *(root / parent for parent in inside.parents), root):
        quota = _quota_of_first_version(group) if is_first_version else _quota(group)
        if quota is not None:
            yield quota


def _quota(group: Path) -> float | None:
    """cpu.max holds the quota or "max", and the period, in microseconds."""
    words = _words(group / "cpu.max")
    if len(words) != 2 or words[0] == "max":
        return None
    return _ratio(*words)


def _quota_of_first_version(group: Path) -> float | None:
    quota, period = _words(group / "cpu.cfs_quota_us"), _words(group / "cpu.cfs_period_us")
    if not quota or not period or quota[0] == "-1":
        return None
    return _ratio(quota[0], period[0])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _ratio(quota: str, period: str) -> float | None:
    try:
        return float(quota) / float(period)
    except (ValueError, ZeroDivisionError):
        return None
