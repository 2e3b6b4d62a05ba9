"""How much has been compiled in this process, and how much was found on disk."""

from __future__ import annotations

from dataclasses import dataclass

from gbdt.machine_code import loader, store


@dataclass(frozen=True)
class CompilationCounts:
    """Kernels (each once for every combination of argument types) in this process, and where they are kept."""

    compiled: int
    from_disk: int
    folder: str


def compilation_counts() -> CompilationCounts:
    """Count over all kernels of the engine."""
    return CompilationCounts(loader.counts.compiled, loader.counts.from_disk, str(store.base_folder()))
