"""The files in which machine code waits for the next process: one for a kernel and its arguments' types.

Code is good for one version of the kernel's sources, of numba, of Python and one kind of processor; a digest of all
these names the folder, so that another version finds its own and never reads this one's. Without a place on disk
(`cache_folders`), code stays in the memory of this process.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from dmlgbm.gbdt.machine_code import cache_folders
from dmlgbm.gbdt.machine_code.argument_types import TypeTexts, digest_of, from_json
from dmlgbm.gbdt.machine_code.named_object import object_named

logger = logging.getLogger("dmlgbm")

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
        return f"{self.kernel.removeprefix('dmlgbm.gbdt.kernels.').replace(':', '.')}-{digest_of(self.types)}"

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


_in_memory: dict[KernelTypes, MachineCode] = {}
_said: list[str] = []


def read(wanted: KernelTypes) -> MachineCode | None:
    """Machine code from disk or, if it could not be kept there, from memory.

    A damaged file counts as none: its kernel is compiled again, which replaces it.
    """
    data = cache_folders.read_file(folder(wanted.sources), _file_name(wanted))
    code = None if data is None else _code_from(data, wanted)
    return _in_memory.get(wanted) if code is None else code


def write(wanted: KernelTypes, code: MachineCode) -> None:
    """Keep machine code for this and later processes."""
    header = {
        "digest": hashlib.sha256(code.object_file).hexdigest(),
        "version": version_digest(wanted.sources),
        "entry_from_python": code.entry_from_python,
        "entry_from_kernels": code.entry_from_kernels,
        "calls": [asdict(call) for call in code.calls],
        "kernel": wanted.kernel,
        "types": wanted.types,
    }
    data = json.dumps(header).encode() + b"\n" + code.object_file
    if not cache_folders.write_file(folder(wanted.sources), _file_name(wanted), data):
        _in_memory[wanted] = code
        cache_folders.say_that_nothing_is_kept()


def _code_from(data: bytes, wanted: KernelTypes) -> MachineCode | None:
    try:
        return _checked_code(data, wanted)
    except Exception as error:  # noqa: BLE001 - bytes that are not ours may fail anywhere
        logger.info("%s on disk is not used: %r", _file_name(wanted), error)
    _say_that_files_are_damaged(_file_name(wanted))
    return None


def _checked_code(data: bytes, wanted: KernelTypes) -> MachineCode:
    line, _, object_file = data.partition(b"\n")
    header = json.loads(line)
    if header["digest"] != hashlib.sha256(object_file).hexdigest():
        raise ValueError("the digest is that of other bytes")
    found = KernelTypes(header["kernel"], from_json(header["types"]))
    if header["version"] != version_digest(wanted.sources) or found != wanted:
        raise ValueError(f"it holds {found.label} of version {header['version']}")
    calls = tuple(KernelTypes(call["kernel"], from_json(call["types"])) for call in header["calls"])
    return MachineCode(object_file, header["entry_from_python"], header["entry_from_kernels"], calls)


def _say_that_files_are_damaged(first: str) -> None:
    """Once a process."""
    if not _said:
        _said.append(first)
        logger.warning("damaged machine code on disk (%s) is compiled again, which takes some seconds once", first)


def _file_name(wanted: KernelTypes) -> str:
    return f"{wanted.label}.o"


@cache
def folder(sources: frozenset[Path]) -> str:
    """The name of the folder for this version of some kernels."""
    return f"machine_code-{version_digest(sources)[:16]}"


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
