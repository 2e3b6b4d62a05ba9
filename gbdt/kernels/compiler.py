"""What kernels are written with: the marks of functions to compile, and words for instructions that Python lacks.

Nothing is compiled, and numba is not even imported, until a kernel is called that has no machine code on disk yet; see
`dmlgbm.gbdt.machine_code`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from dmlgbm.gbdt.machine_code.kernel import Intrinsic, Kernel

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent


def kernel(function: Function) -> Function:
    """Compile a function of arrays on first use and keep the machine code on disk."""
    return cast(Function, Kernel(function, is_inlined=False, package=_PACKAGE))


def inlined(function: Function) -> Function:
    """Compile a small function that only other kernels call, into each of them."""
    return cast(Function, Kernel(function, is_inlined=True, package=_PACKAGE))


def prepare(function: Callable[..., Any], *arguments: Any) -> None:
    """Start to compile a kernel for arguments like these, where that was not done before; come back at once."""
    cast(Kernel, function).prepare(*arguments)


def for_types_of(function: Function, *arguments: Any) -> Function:
    """A kernel for arguments of these types and no others, which it does not look at again (0.3 us for each)."""
    return cast(Function, cast(Kernel, function).for_types_of(*arguments))


float_from_bits = Intrinsic("float_from_bits")
single_from_bits = Intrinsic("single_from_bits")
bits_from_float = Intrinsic("bits_from_float")
multiply_add = Intrinsic("multiply_add")
trailing_zeros = Intrinsic("trailing_zeros")
lowest_leaves = Intrinsic("lowest_leaves")
borrowed = Intrinsic("borrowed")
prefetch = Intrinsic("prefetch")
fetch_and_add = Intrinsic("fetch_and_add")
fetch = Intrinsic("fetch")
exchange = Intrinsic("exchange")
relax = Intrinsic("relax")
sleep_microseconds = Intrinsic("sleep_microseconds")
load_word = Intrinsic("load_word")
store_word = Intrinsic("store_word")
add_up_fours = Intrinsic("add_up_fours")
