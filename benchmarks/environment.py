"""Where the numbers were measured: processor, memory, versions, and how busy other processes kept the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
from pathlib import Path
from time import perf_counter

from benchmarks.records import Record

PACKAGES = ("dmlgbm", "numba", "numpy", "pandas", "scikit-learn", "lightgbm", "xgboost", "catboost")


def describe_environment() -> Record:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_bytes": pages * page_bytes,
        "platform": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class ForeignLoad:
    """How many cores other processes took, on average, between making this object and asking it.

    OpenMP barriers collapse on a shared machine (an XGBoost fit took 36 s instead of 0.4 beside one busy core), which
    would flatter whoever does without: a disturbed repetition does not count towards the targets.
    """

    def __init__(self) -> None:
        self._started = perf_counter()
        self._busy_seconds = _machine_busy_seconds()
        self._child_seconds = _child_cpu_seconds()

    def cores(self) -> float:
        """To be asked after the measured child process has ended."""
        busy = _machine_busy_seconds() - self._busy_seconds
        own = _child_cpu_seconds() - self._child_seconds
        return max(0.0, round((busy - own) / (perf_counter() - self._started), 2))


def _machine_busy_seconds() -> float:
    """User, nice, system, interrupt and stolen time of all cores; idle and waiting left out."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _waiting, interrupt, soft_interrupt, stolen = fields
    return (user + nice + system + interrupt + soft_interrupt + stolen) / os.sysconf("SC_CLK_TCK")


def _child_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
