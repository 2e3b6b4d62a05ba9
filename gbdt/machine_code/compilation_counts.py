"""How much has been compiled in this process, and how much was found on disk."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgbm.gbdt.machine_code import cache_folders, loader


@dataclass(frozen=True)
class CompilationCounts:
    """Kernels (each once for every combination of argument types) in this process, and where new ones are kept."""

    compiled: int
    from_disk: int
    folder: str | None


def compilation_counts() -> CompilationCounts:
    """Count over all kernels of the engine."""
    folder = cache_folders.folder_to_write()
    return CompilationCounts(loader.counts.compiled, loader.counts.from_disk, None if folder is None else str(folder))
