"""Which of two roads kernels take in this process, and what the user is told when one is closed.

Machine code from object files is the usual road. numba compiling and running the kernels in place is the other: on
systems whose object files the loader does not know, where `DMLGBM_KERNELS=numba` asks for it, and, kernel by kernel,
after any failure. Models have the same bytes on both.
"""

from __future__ import annotations

import logging
import os
from functools import cache

from dmlgbm.gbdt.machine_code.elf_object import ObjectFileError, can_load_objects

logger = logging.getLogger("dmlgbm")

_VARIABLE = "DMLGBM_KERNELS"
_MACHINE_CODE, _NUMBA = "machine_code", "numba"


@cache
def uses_object_files() -> bool:
    """Whether kernels are compiled to object files by other processes and loaded without numba."""
    chosen = os.environ.get(_VARIABLE) or _MACHINE_CODE
    if chosen not in (_MACHINE_CODE, _NUMBA):
        raise ValueError(
            f"the environment variable {_VARIABLE} is {chosen!r}: set it to {_MACHINE_CODE!r} (object files, the "
            f"default) or {_NUMBA!r} (numba compiles in each process), or leave it out."
        )
    return chosen == _MACHINE_CODE and can_load_objects()


def say_that_numba_takes_over(label: str, error: Exception) -> None:
    """A kernel takes the other road: why, and what that costs."""
    logger.info("%s is compiled by numba in this process: %r", label, error)
    _warn_once(
        "this process compiles its kernels itself, with numba. Models stay the same; every new process loses start-up "
        "time (a second, and minutes as long as numba's results are not on disk) and 75 MB of memory. "
        "DMLGBM_KERNELS=numba chooses this without a warning. The reason: %s",
        error,
    )


def say_that_results_are_not_kept(label: str, error: Exception) -> None:
    """What numba compiled in place cannot be stored or read again: why, and what that costs."""
    logger.info("what numba compiles of %s is not kept: %r", label, error)
    _warn_once(
        "this process compiles its kernels itself, with numba, and cannot keep the result. Models stay the same; every "
        "new process loses the minutes that compiling takes. The reason: %s",
        error,
    )


_warned: list[Exception] = []


def _warn_once(message: str, error: Exception) -> None:
    """With the first reason: others mostly follow from it."""
    if not _warned:
        _warned.append(error)
        described = str(error) if isinstance(error, ObjectFileError) else f"{type(error).__name__}: {error}"
        logger.warning(message, described)
