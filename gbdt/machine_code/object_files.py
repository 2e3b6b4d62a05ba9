"""The files in which machine code waits for the next process: one for a kernel and its arguments' types.

Each version of what code depends on has a folder of its own (`code_version`). What was compiled on this machine comes
first, then what a wheel has brought. Without a place on disk (`cache_folders`), code stays in this process's memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dmlgbm.gbdt.machine_code import cache_folders
from dmlgbm.gbdt.machine_code.argument_types import TypeTexts, as_json, digest_of, from_json
from dmlgbm.gbdt.machine_code.code_version import CodeVersion, own_version, ready_made_version
from dmlgbm.gbdt.machine_code.named_object import object_named

logger = logging.getLogger("dmlgbm")


@dataclass(frozen=True)
class KernelTypes:
    """A kernel (module and name of the function) for certain types of arguments."""

    kernel: str
    types: TypeTexts

    @cached_property
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

    A damaged file counts as none: its kernel is compiled again, which replaces it, or is found before that of a wheel.
    """
    own, ready_made = own_version(wanted.sources), ready_made_version(wanted.sources)
    data = cache_folders.read_file(own.folder, file_name(wanted))
    if data is not None:
        code = _code_from(data, wanted, own)
    elif ready_made is not None:
        data = cache_folders.read_ready_made(ready_made.folder, file_name(wanted))
        code = None if data is None else _code_from(data, wanted, ready_made)
    else:
        code = None
    return _in_memory.get(wanted) if code is None else code


def write(wanted: KernelTypes, code: MachineCode) -> None:
    """Keep machine code for this and later processes."""
    version = own_version(wanted.sources)
    if not cache_folders.write_file(version.folder, file_name(wanted), as_file(wanted, code, version)):
        _in_memory[wanted] = code
        cache_folders.say_that_nothing_is_kept()


def as_file(wanted: KernelTypes, code: MachineCode, version: CodeVersion) -> bytes:
    """What stands in the file for machine code of a version: a line that describes it, and the object file."""
    header = {
        "digest": hashlib.sha256(code.object_file).hexdigest(),
        "version": version.digest,
        "entry_from_python": code.entry_from_python,
        "entry_from_kernels": code.entry_from_kernels,
        "calls": [(call.kernel, call.types) for call in code.calls],
        "kernel": wanted.kernel,
        "types": as_json(wanted.types),
    }
    return json.dumps(header).encode() + b"\n" + code.object_file


def file_name(wanted: KernelTypes) -> str:
    """The name of a kernel's file."""
    return f"{wanted.label}.o"


def kernel_of_file(data: bytes) -> KernelTypes:
    """The kernel that a file holds, as the file itself says."""
    header = json.loads(data.partition(b"\n")[0])
    return KernelTypes(header["kernel"], from_json(json.loads(header["types"])))


def _code_from(data: bytes, wanted: KernelTypes, version: CodeVersion) -> MachineCode | None:
    try:
        return _checked_code(data, wanted, version)
    except Exception as error:  # noqa: BLE001 - bytes that are not ours may fail anywhere
        logger.info("%s on disk is not used: %r", file_name(wanted), error)
    _say_that_files_are_damaged(file_name(wanted))
    return None


def _checked_code(data: bytes, wanted: KernelTypes, version: CodeVersion) -> MachineCode:
    line, _, object_file = data.partition(b"\n")
    header = json.loads(line)
    if header["digest"] != hashlib.sha256(object_file).hexdigest():
        raise ValueError("the digest is that of other bytes")
    found = header["version"], header["kernel"], header["types"]
    if found != (version.digest, wanted.kernel, as_json(wanted.types)):
        raise ValueError(f"it holds other code: {found}")
    calls = tuple(KernelTypes(kernel, from_json(types)) for kernel, types in header["calls"])
    return MachineCode(object_file, header["entry_from_python"], header["entry_from_kernels"], calls)


def _say_that_files_are_damaged(first: str) -> None:
    """Once a process."""
    if not _said:
        _said.append(first)
        logger.warning("damaged machine code on disk (%s) is compiled again, which takes some seconds once", first)
