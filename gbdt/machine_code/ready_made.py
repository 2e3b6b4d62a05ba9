"""Makes the machine code that a wheel brings; `hatch_build.py` at the top of the checkout calls it, and no fit does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dmlgbm.gbdt.machine_code import object_files
from dmlgbm.gbdt.machine_code.code_version import version_for_level
from dmlgbm.gbdt.machine_code.compile_service import CompilationError, the_service
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, MachineCode
from dmlgbm.gbdt.machine_code.processor_level import LEVELS


def make_ready(destination: Path) -> None:
    """From here on write every kernel that this process has compiled for all levels of processors, too."""
    the_service().also_for(tuple(LEVELS), partial(_write, destination))


def finish() -> None:
    """Wait until all are written; a wheel may not lack one for a reason that nobody hears of."""
    errors = the_service().wait_for_all()
    if errors:
        raise CompilationError(errors[0])


def _write(destination: Path, wanted: KernelTypes, level: str, code: MachineCode) -> None:
    version = version_for_level(wanted.sources, level)
    folder = destination / version.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / object_files.file_name(wanted)).write_bytes(object_files.as_file(wanted, code, version))
