"""What numba makes of the words that `compiler` has for kernels: raw memory, shared words, functions of the C library.

Kernels know them by name only, so that nothing here, and no numba, is loaded where nothing is compiled.
"""

from __future__ import annotations

import sys
from typing import Any

from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = [
    "add_to_word",
    "bits_and",
    "bits_or",
    "carray",
    "clock_gettime",
    "copy_bytes",
    "errno_location",
    "load_word",
    "pointer_to",
    "poll",
    "recvmsg",
    "sendmsg",
    "store_word",
    "system_call",
]

errno_location = types.ExternalFunction("__errno_location" if sys.platform == "linux" else "__error", types.voidptr())
poll = types.ExternalFunction("poll", types.int32(types.voidptr, types.uint64, types.int32))
sendmsg = types.ExternalFunction("sendmsg", types.int64(types.int32, types.voidptr, types.int32))
recvmsg = types.ExternalFunction("recvmsg", types.int64(types.int32, types.voidptr, types.int32))
clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))
system_call = types.ExternalFunction(
    "syscall", types.int64(types.int64, types.voidptr, types.int64, types.int64, types.voidptr)
)


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


@intrinsic
def bits_and(typing_context: Any, left: Any, right: Any) -> Any:
    """left & right; only reached for integers, but compiled for floats as well."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.and_(*arguments) if isinstance(left, types.Integer) else arguments[0]

    return left(left, left), generate


@intrinsic
def bits_or(typing_context: Any, left: Any, right: Any) -> Any:
    """left | right; only reached for integers, but compiled for floats as well."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.or_(*arguments) if isinstance(left, types.Integer) else arguments[0]

    return left(left, left), generate


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


def _word_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])
