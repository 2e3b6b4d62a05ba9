"""What has been compiled: every kernel that is kept on disk, and how often this process had to compile one.

numba counts, for each kernel, the argument types that it found on disk and those that it compiled.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gbdt.kernels
from gbdt.kernels import compiler


@dataclass(frozen=True)
class CompilationCounts:
    """Kernels by what happened to them in this process, and the folder of their machine code."""

    compiled: int
    from_disk: int
    unused: tuple[str, ...]
    folder: str


def compilation_counts() -> CompilationCounts:
    """Count over all kernels of the engine."""
    statistics = {name: kernel.stats for name, kernel in _kernels()}
    compiled = {name: sum(stats.cache_misses.values()) for name, stats in statistics.items()}
    from_disk = {name: sum(stats.cache_hits.values()) for name, stats in statistics.items()}
    return CompilationCounts(
        sum(compiled.values()),
        sum(from_disk.values()),
        tuple(name for name in statistics if compiled[name] + from_disk[name] == 0),
        next(iter(statistics.values())).cache_path,
    )


def _kernels() -> Iterator[tuple[str, Any]]:
    """The kernels that are kept on disk, each where it is defined."""
    for module_info in pkgutil.iter_modules(gbdt.kernels.__path__, "gbdt.kernels."):
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if compiler.is_kernel(value) and value.__module__ == module_info.name:
                yield f"{module_info.name.rpartition('.')[2]}.{name}", value
