"""What kernels of this package are written with: the marks of functions to compile, and words that Python lacks.

Kernels release the GIL: a thread that waits for other ranks must not need it. They are compiled, kept on disk and
called as those of the engine are (`gbdt/machine_code/`, which knows nothing of what a kernel is for): a process that
finds them on disk never imports numba, which would take more memory than everything else that a rank does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from dmlgbm.gbdt.machine_code.kernel import Intrinsic, Kernel

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent


def kernel(function: Function) -> Function:
    """Compile a function on first use and keep the machine code on disk."""
    return cast(Function, Kernel(function, is_inlined=False, package=_PACKAGE))


def inlined(function: Function) -> Function:
    """Compile a small function that only other kernels call, into each of them."""
    return cast(Function, Kernel(function, is_inlined=True, package=_PACKAGE))


def for_types_of(function: Function, *arguments: Any) -> Function:
    """A kernel for arguments of these types and no others, which it does not look at again (0.3 us for each)."""
    return cast(Function, cast(Kernel, function).for_types_of(*arguments))


def _intrinsic(name: str) -> Intrinsic:
    return Intrinsic(name, "dmlgbm.collectives.kernels.intrinsics")


# Raw memory, and words that threads or processes share.
pointer_to = _intrinsic("pointer_to")
carray = _intrinsic("carray")
copy_bytes = _intrinsic("copy_bytes")
load_word = _intrinsic("load_word")
store_word = _intrinsic("store_word")
add_to_word = _intrinsic("add_to_word")
bits_and = _intrinsic("bits_and")
bits_or = _intrinsic("bits_or")

# Functions of the C library.
errno_location = _intrinsic("errno_location")
poll = _intrinsic("poll")
sendmsg = _intrinsic("sendmsg")
recvmsg = _intrinsic("recvmsg")
clock_gettime = _intrinsic("clock_gettime")
system_call = _intrinsic("system_call")
