"""Kernels compiled and run by numba itself: the road without object files (`kernel_road`).

It needs as little of numba's private parts as possible, because it is taken when those are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba

from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.gbdt.machine_code.kernel_road import say_that_results_are_not_kept
from dmlgbm.gbdt.machine_code.numba_functions import SETTINGS, NumbaFunctions, numba_type
from dmlgbm.gbdt.machine_code.object_files import KernelTypes


def compiled_in_process(kernel: Kernel, wanted: KernelTypes) -> Callable[..., Any]:
    """numba's function for a kernel, compiled for these types."""
    function = _numba_kernel(kernel)
    function.compile(tuple(numba_type(text) for text in wanted.types))
    return function


@cache
def _numba_kernel(kernel: Kernel) -> Any:
    function = NumbaFunctions(_numba_kernel).function_of(kernel)
    dispatcher = numba.jit(**SETTINGS)(function)
    _keep_results(dispatcher, kernel)
    return dispatcher


def _keep_results(dispatcher: Any, kernel: Kernel) -> None:
    try:
        from dmlgbm.gbdt.machine_code.kept_results import KeptResults

        dispatcher._cache = KeptResults(kernel)
    except Exception as error:  # noqa: BLE001 - without its private parts numba compiles all the same
        say_that_results_are_not_kept(kernel.name, error)
