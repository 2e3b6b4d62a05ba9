"""How much has been compiled: numba counts what each kernel found on disk and what it had to compile."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numba.core.caching import FunctionCache

import gbdt.kernels


@dataclass(frozen=True)
class CompilationCounts:
    """Kernels (each once for every combination of argument types) in this process, and where they are kept."""

    compiled: int
    from_disk: int
    folder: str


def compilation_counts() -> CompilationCounts:
    """Count over all kernels of the engine."""
    statistics = [kernel.stats for kernel in _kernels()]
    return CompilationCounts(
        compiled=sum(sum(kernel.cache_misses.values()) for kernel in statistics),
        from_disk=sum(sum(kernel.cache_hits.values()) for kernel in statistics),
        folder=statistics[0].cache_path,
    )


def _kernels() -> Iterator[Any]:
    """The kernels that are kept on disk, each where it is defined."""
    for module_info in pkgutil.iter_modules(gbdt.kernels.__path__, "gbdt.kernels."):
        for value in vars(importlib.import_module(module_info.name)).values():
            if isinstance(getattr(value, "_cache", None), FunctionCache) and value.__module__ == module_info.name:
                yield value
