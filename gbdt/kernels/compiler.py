"""The one place that says how kernels are compiled and cached.

Kernels release the GIL, so that plain Python threads run them side by side, and divide like numpy. Compiled
code is kept on disk. numba notices a change only in the file that defines a kernel, not in the files it
calls; here the cache key is a digest of the whole folder, so that a kernel may call one in another file.
"""

from __future__ import annotations

import gc
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import _nrt_python
from numba.core.types.containers import BaseTuple
from numba.core.types.misc import MemInfoPointer
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_SETTINGS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def _folder_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_FOLDER_DIGEST = _folder_digest()


class _FolderCache(FunctionCache):
    """numba's disk cache, valid for as long as no file of this folder changes.

    The digest is part of the file name: an index that another version wrote may refer to records that are
    gone, and reading it would fail instead of missing.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{_FOLDER_DIGEST[:12]}",
            source_stamp=_FOLDER_DIGEST,
        )

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        _register_runtime()
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(signature, target_context)
        if found is None:
            _say_that_it_compiles()
        return found


@cache
def _register_runtime() -> None:
    """Make the functions of numba's runtime known to compiled code.

    numba would set up all it needs to compile before it reads a kernel from disk: types, implementations, a runtime
    compiled anew. Without them a first fit takes 40 MB and a third of a second less.
    """
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@cache
def _say_that_it_compiles() -> None:
    """Once a process: a first fit that takes half a minute should not look like one that hangs."""
    sys.stderr.write("dmlgbm: compiling kernels for this machine, once; about half a minute (see `dmlgbm warmup`)\n")
    sys.stderr.flush()


def kernel(function: Function) -> Function:
    """Compile a function of arrays on first use and keep the machine code on disk."""
    dispatcher = numba.jit(**_SETTINGS)(function)
    dispatcher._cache = _FolderCache(function)
    compile_types = dispatcher.compile

    def compile_without_collecting(argument_types: Any) -> Any:
        """The collector finds nothing in a compiler's millions of objects (measured: 20 s with it, 15 s without)."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return compile_types(argument_types)
        finally:
            if was_enabled:
                gc.enable()

    dispatcher.compile = compile_without_collecting
    return dispatcher


def inlined(function: Function) -> Function:
    """Compile a small function that only other kernels call, into each of them."""
    return numba.jit(inline="always", **_SETTINGS)(function)


@intrinsic
def float_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float64 whose IEEE representation is the given int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@intrinsic
def single_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 whose IEEE representation is the given int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@intrinsic
def bits_from_float(typing_context: Any, value: Any) -> Any:
    """The IEEE representation of a float64, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@intrinsic
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: the same bits on every machine, and one instruction on all but very old ones."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@intrinsic
def borrowed(typing_context: Any, arrays: Any) -> Any:
    """The same array (or tuple of arrays) without reference counts, while the caller of the kernel holds them.

    Every view of a counted array, and every call that is inlined with it, costs two atomic operations (measured: a
    seventh of the time to grow a tree over many features).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _uncounted(context, builder, signature.return_type, arguments[0])

    return arrays(arrays), generate


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, BaseTuple):
        items = [
            _uncounted(context, builder, item_kind, builder.extract_value(value, place))
            for place, item_kind in enumerate(kind)
        ]
        return context.make_tuple(builder, kind, items)
    make = context.make_array(kind)
    source, result = make(context, builder, value), make(context, builder)
    for name in ("data", "shape", "strides", "itemsize", "nitems"):
        setattr(result, name, getattr(source, name))
    result.meminfo = context.get_constant_null(MemInfoPointer(types.voidptr))
    result.parent = context.get_constant_null(types.pyobject)
    return result._getvalue()


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask the processor to bring array[index] (counted over the flat array) into its caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        )
        address = builder.bitcast(builder.gep(data, [arguments[1]]), pointer)
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate
