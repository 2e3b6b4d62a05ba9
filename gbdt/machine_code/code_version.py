"""What machine code is good for: a digest of it names the folder, so that no version ever reads the files of another.

Code that was compiled on this machine is good for one version of everything that took part: the sources, numba, LLVM,
numpy, Python and the kind of processor.

*Ready-made* code, which a wheel brings, is made elsewhere and must fit many machines. It is good for what it needs
when it runs: the same sources, Python's binary interface, and a level of the processor's instructions. Object files
refer to nothing of numpy and LLVM. Of numba they need a dozen functions by name, the layout of an array's description
and the way in which kernels call each other; these are the same in a range of versions (`numba_parts.SAME_RUNTIME`),
and with another one ready-made code is left alone.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dmlgbm.gbdt.machine_code.numba_parts import SAME_RUNTIME
from dmlgbm.gbdt.machine_code.processor_level import chosen_processor, kind_of_processor, level_to_use

_COMPILER_SOURCES = Path(__file__).parent


@dataclass(frozen=True)
class CodeVersion:
    """Everything that machine code depends on besides a kernel's types, as a digest."""

    digest: str

    @property
    def folder(self) -> str:
        """The name of the folder for code of this version."""
        return f"machine_code-{self.digest[:16]}"


@cache
def own_version(sources: frozenset[Path]) -> CodeVersion:
    """Of code that is compiled on this machine, of kernels whose files are in some folders."""
    versions = [_installed(package) for package in ("numba", "llvmlite", "numpy")]
    processor = [kind_of_processor(), *chosen_processor()]
    return _version(sources, (sys.version, platform.machine(), versions, processor))


@cache
def ready_made_version(sources: frozenset[Path]) -> CodeVersion | None:
    """Of ready-made code for this machine; None where there can be none."""
    level = level_to_use()
    return None if level is None or not _has_the_same_runtime() else version_for_level(sources, level)


def version_for_level(sources: frozenset[Path], level: str) -> CodeVersion:
    """Of ready-made code for a level of processors."""
    python = importlib.machinery.EXTENSION_SUFFIXES[0]  # for example .cpython-311-x86_64-linux-gnu.so
    return _version(sources, ("ready-made", python, level))


def _version(sources: frozenset[Path], environment: tuple[object, ...]) -> CodeVersion:
    digest = hashlib.sha256(_digest_of_sources(sources))
    digest.update(repr(environment).encode())
    return CodeVersion(digest.hexdigest())


@cache
def _digest_of_sources(sources: frozenset[Path]) -> bytes:
    digest = hashlib.sha256()
    for source_folder in (_COMPILER_SOURCES, *sorted(sources)):
        for path in sorted(source_folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()


@cache
def _installed(package: str) -> str:
    return importlib.metadata.version(package)


@cache
def _has_the_same_runtime() -> bool:
    first, last = SAME_RUNTIME
    try:
        major, minor = _installed("numba").split(".")[:2]
        return first <= (int(major), int(minor)) <= last
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
