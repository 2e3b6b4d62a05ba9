"""Kernels compiled and run by numba itself, for systems whose machine code the loader does not know.

numba notices a change only in the file that defines a kernel, not in the files it calls; here the key of its disk cache
is the digest of all sources, so that a kernel may call one in another file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from gbdt.machine_code.kernel import Kernel
from gbdt.machine_code.numba_functions import SETTINGS, NumbaFunctions, numba_type
from gbdt.machine_code.store import KernelTypes, version_digest


class _SourcesCache(FunctionCache):
    """numba's disk cache, valid for as long as no source changes.

    The digest is part of the file name: an index that another version wrote may refer to records that are
    gone, and reading it would fail instead of missing.
    """

    def __init__(self, function: Callable[..., Any], version: str) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{version[:12]}",
            source_stamp=version,
        )


def compiled_in_process(kernel: Kernel, wanted: KernelTypes) -> Callable[..., Any]:
    """numba's function for a kernel, compiled for these types."""
    function = _numba_kernel(kernel)
    function.compile(tuple(numba_type(text) for text in wanted.types))
    return function


@cache
def _numba_kernel(kernel: Kernel) -> Any:
    function = NumbaFunctions(_numba_kernel).function_of(kernel)
    dispatcher = numba.jit(**SETTINGS)(function)
    dispatcher._cache = _SourcesCache(function, version_digest(kernel.sources))
    return dispatcher
