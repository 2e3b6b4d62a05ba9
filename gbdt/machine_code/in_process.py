"""Kernels compiled and run by numba itself, for systems whose machine code the loader does not know.

What numba makes is kept like other machine code, in folders that nobody else can write and whose names hold a digest
of all sources: a kernel may call one in another file.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba.core import serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult

from dmlgbm.gbdt.machine_code import cache_folders, store
from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.gbdt.machine_code.numba_functions import SETTINGS, NumbaFunctions, numba_type
from dmlgbm.gbdt.machine_code.store import KernelTypes


class _KeptResults(NullCache):
    """What numba asks for compiled functions before it compiles, and hands them to after that."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._folder = store.folder(kernel.sources)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        data = cache_folders.read_file(self._folder, self._name(sig, target_context.codegen()))
        if data is None:
            return None
        try:
            fields = pickle.loads(data)  # noqa: S301 - nobody but the user and root can have written it
            return CompileResult._rebuild(target_context, *fields)
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError):
            return None  # a damaged file

    def save_overload(self, sig: Any, cres: Any) -> None:
        data = serialize.dumps(cres._reduce())
        if not cache_folders.write_file(self._folder, self._name(sig, cres.codegen), data):
            cache_folders.say_that_nothing_is_kept()

    def _name(self, sig: Any, codegen: Any) -> str:
        types = hashlib.sha256(repr((str(sig), codegen.magic_tuple())).encode()).hexdigest()[:16]
        return f"{self._kernel.name.replace(':', '.')}-{types}.numba"


def compiled_in_process(kernel: Kernel, wanted: KernelTypes) -> Callable[..., Any]:
    """numba's function for a kernel, compiled for these types."""
    function = _numba_kernel(kernel)
    function.compile(tuple(numba_type(text) for text in wanted.types))
    return function


@cache
def _numba_kernel(kernel: Kernel) -> Any:
    function = NumbaFunctions(_numba_kernel).function_of(kernel)
    dispatcher = numba.jit(**SETTINGS)(function)
    dispatcher._cache = _KeptResults(kernel)
    return dispatcher
