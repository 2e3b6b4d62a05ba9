"""How many kernels this process has compiled, and how many it found on disk."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgbm.gbdt.machine_code import cache_folders


@dataclass
class KernelCounts:
    """Kernels are counted once for each combination of argument types."""

    compiled: int = 0
    from_disk: int = 0


counts = KernelCounts()


@dataclass(frozen=True)
class CompilationCounts:
    """The counts at one moment, and the folder in which new machine code is kept, if there is one."""

    compiled: int
    from_disk: int
    folder: str | None


def compilation_counts() -> CompilationCounts:
    """What this process has compiled and found so far."""
    folder = cache_folders.folder_to_write()
    return CompilationCounts(counts.compiled, counts.from_disk, None if folder is None else str(folder))
