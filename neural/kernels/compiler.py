"""What kernels of this package are written with.

They are compiled, kept on disk and called as those of the engine are (`gbdt/machine_code/`, which knows nothing of what
a kernel is for), so that no rank imports numba where they are on disk. The communication layer has the same marks, but
a fit in one process does not load it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from dmlgbm.gbdt.machine_code.kernel import Kernel

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent


def kernel(function: Function) -> Function:
    """Compile a function of vectors on first use and keep the machine code on disk."""
    return cast(Function, Kernel(function, is_inlined=False, package=_PACKAGE))


def prepare(function: Callable[..., Any], *arguments: Any) -> None:
    """Start to compile a kernel for arguments like these, where that was not done before; come back at once."""
    cast(Kernel, function).prepare(*arguments)
