"""The one place of this package that says how kernels are compiled and cached, and how they reach raw memory.

Kernels release the GIL: a thread that waits for other ranks must not need it. Compiled code is kept on disk under
a digest of this whole folder, because numba notices a change only in the file that defines a kernel, not in the
files it calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import cgutils, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_SETTINGS = {"nopython": True, "nogil": True, "error_model": "numpy"}
_FOLDER_DIGEST = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


class _FolderCache(FunctionCache):
    """numba's disk cache, valid for as long as no file of this folder changes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{_FOLDER_DIGEST[:12]}",
            source_stamp=_FOLDER_DIGEST,
        )


def kernel(function: Function) -> Function:
    """Compile a function on first use and keep the machine code on disk."""
    dispatcher = numba.jit(**_SETTINGS)(function)
    dispatcher._cache = _FolderCache(function)
    return dispatcher


def inlined(function: Function) -> Function:
    """Compile a small function that only other kernels call, into each of them."""
    return numba.jit(forceinline=True, **_SETTINGS)(function)


@intrinsic
def pointer_to(typing_context: Any, address: Any) -> Any:
    """The pointer with the given address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes between two addresses that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (builder.inttoptr(value, cgutils.voidptr_t) for value in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _word_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def load_word(typing_context: Any, words: Any, index: Any) -> Any:
    """words[index] of an int64 array that other threads or processes write."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _word_address(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.load_atomic(address, "seq_cst", 8)

    return types.int64(words, types.int64), generate


@intrinsic
def store_word(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    """Set words[index] after everything written before it has become visible to others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _word_address(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store_atomic(arguments[2], address, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), generate


@intrinsic
def add_to_word(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    """Add to words[index] in one step; the value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _word_address(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.atomic_rmw("add", address, arguments[2], "seq_cst")

    return types.int64(words, types.int64, types.int64), generate
