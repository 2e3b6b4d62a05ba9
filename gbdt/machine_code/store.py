"""The folder in which machine code waits for the next process: one file for a kernel and its arguments' types.

Code is good for one version of the kernel's sources, of numba, of Python and one kind of processor; a digest of all
these names the folder, so that another version finds its own and never reads this one's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from gbdt.atomic_file import write_atomically
from gbdt.machine_code.argument_types import TypeTexts, digest_of, from_json
from gbdt.machine_code.named_object import object_named

_COMPILER_SOURCES = Path(__file__).parent
_PROCESSOR = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class KernelTypes:
    """A kernel (module and name of the function) for certain types of arguments."""

    kernel: str
    types: TypeTexts

    @property
    def label(self) -> str:
        """A name that is different for every kernel and every combination of types."""
        return f"{self.kernel.removeprefix('gbdt.kernels.').replace(':', '.')}-{digest_of(self.types)}"

    @property
    def sources(self) -> frozenset[Path]:
        """The folders whose files the kernel's machine code is made of."""
        sources: frozenset[Path] = object_named(self.kernel).sources
        return sources


@dataclass(frozen=True)
class MachineCode:
    """An object file and the names of what is in it."""

    object_file: bytes
    entry_from_python: str
    entry_from_kernels: str
    calls: tuple[KernelTypes, ...]  # other kernels, whose labels are undefined symbols of the object file


def read(wanted: KernelTypes) -> MachineCode | None:
    """Machine code from disk. A damaged file counts as none: it is written again."""
    try:
        line, _, object_file = _path(wanted).read_bytes().partition(b"\n")
        header = json.loads(line)
        if header["digest"] != hashlib.sha256(object_file).hexdigest():
            return None
        calls = tuple(KernelTypes(call["kernel"], from_json(call["types"])) for call in header["calls"])
        return MachineCode(object_file, header["entry_from_python"], header["entry_from_kernels"], calls)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(wanted: KernelTypes, code: MachineCode) -> None:
    """Keep machine code for this and later processes."""
    header = {
        "digest": hashlib.sha256(code.object_file).hexdigest(),
        "entry_from_python": code.entry_from_python,
        "entry_from_kernels": code.entry_from_kernels,
        "calls": [asdict(call) for call in code.calls],
        "kernel": wanted.kernel,
        "types": wanted.types,
    }
    path = _path(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(header).encode() + b"\n" + code.object_file)


def _path(wanted: KernelTypes) -> Path:
    return folder(wanted.sources) / f"{wanted.label}.o"


@cache
def folder(sources: frozenset[Path]) -> Path:
    """Where the machine code of this version of some kernels is kept."""
    return base_folder() / f"machine_code-{version_digest(sources)[:16]}"


@cache
def base_folder() -> Path:
    """Where the machine code of all versions of all kernels is kept."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / "dmlgbm"
    beside_sources = _COMPILER_SOURCES / "__pycache__"
    try:
        beside_sources.mkdir(exist_ok=True)
        if os.access(beside_sources, os.W_OK):
            return beside_sources
    except OSError:
        pass  # a read-only installation
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmlgbm"


@cache
def version_digest(sources: frozenset[Path]) -> str:
    """Of everything that machine code depends on besides a kernel's types."""
    digest = hashlib.sha256()
    for source_folder in (_COMPILER_SOURCES, *sorted(sources)):
        for path in sorted(source_folder.glob("*.py")):
            digest.update(path.read_bytes())
    versions = [importlib.metadata.version(package) for package in ("numba", "llvmlite", "numpy")]
    digest.update(repr((sys.version, platform.machine(), versions, _processor())).encode())
    return digest.hexdigest()


def _processor() -> str:
    """What tells kinds of processors apart: the name, and which instructions there are."""
    try:
        first = _PROCESSOR.read_text().partition("\n\n")[0]
    except OSError:
        return platform.processor()
    fields = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    described = {name.strip(): value.strip() for name, value in fields.items()}
    return repr([described.get(name) for name in ("vendor_id", "cpu family", "model", "flags")])
