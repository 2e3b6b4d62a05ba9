"""Kernels as numba sees them: the functions of the kernel modules, calling numba's objects instead of ours.

The modules themselves hold only `Kernel` and `Intrinsic` objects. Here every function gets a copy whose globals are
replaced: inlined functions by numba functions that are always inlined, intrinsics by what generates them, and kernels
by what the caller wants calls between kernels to be.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba.core import types
from numba.core.types.abstract import Type
from numba.core.types.containers import BaseTuple, UniTuple
from numba.np.numpy_support import as_dtype, from_dtype

from dmlgbm.gbdt.machine_code.argument_types import TypeTexts, dtype_from_text, dtype_text
from dmlgbm.gbdt.machine_code.kernel import Intrinsic, Kernel
from dmlgbm.gbdt.machine_code.named_object import name_of, object_named

SETTINGS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

_RETURN_TYPES = {
    "None": types.none,
    "int": types.int64,
    "float": types.float64,
    "bool": types.boolean,
    "tuple[int, int]": UniTuple(types.int64, 2),
    "tuple[float, float]": UniTuple(types.float64, 2),
}


class NumbaFunctions:
    """Makes the copies; `called_kernel` gives what stands for a kernel that is not inlined."""

    def __init__(self, called_kernel: Callable[[Kernel], Any]) -> None:
        self._called_kernel = called_kernel
        self._inlined: dict[str, Any] = {}

    def function_of(self, kernel: Kernel) -> FunctionType:
        """A copy of the kernel's function for numba."""
        original = kernel.function
        assert isinstance(original, FunctionType)
        used = original.__globals__.keys() & set(original.__code__.co_names)
        replaced = {name: self._seen_by_numba(original.__globals__[name]) for name in used}
        copy = FunctionType(
            original.__code__,
            {"__name__": original.__module__, "__builtins__": __builtins__, **replaced},
            original.__name__,
            original.__defaults__,
        )
        copy.__module__, copy.__qualname__ = original.__module__, original.__qualname__
        return copy

    def _seen_by_numba(self, value: Any) -> Any:
        if isinstance(value, Intrinsic):
            return object_named(f"{value.module}:{value.name}")
        if not isinstance(value, Kernel):
            return value
        if not value.is_inlined:
            return self._called_kernel(value)
        if value.name not in self._inlined:
            self._inlined[value.name] = numba.jit(inline="always", **SETTINGS)(self.function_of(value))
        return self._inlined[value.name]


def return_type(kernel: Kernel) -> Type:
    """What the kernel's annotation says that it returns."""
    annotation = kernel.function.__annotations__.get("return")
    if annotation not in _RETURN_TYPES:
        raise TypeError(f"{kernel} must be annotated to return one of {', '.join(_RETURN_TYPES)}.")
    return _RETURN_TYPES[annotation]


def numba_type(text: TypeTexts) -> Type:
    """The type that a type text describes."""
    if text[0] == "scalar":
        scalar: Type = getattr(types, text[1])
        return scalar
    if text[0] == "tuple":
        items = tuple(numba_type(item) for item in text[2])
        return BaseTuple.from_types(items, object_named(text[1]) if text[1] else None)
    _, dtype, n_dimensions, layout, writable = text
    return types.Array(from_dtype(dtype_from_text(dtype)), n_dimensions, layout, readonly=not writable, aligned=True)


def text_of_type(kind: Type) -> TypeTexts:
    """The type text of a type that a kernel passes to another one."""
    if isinstance(kind, types.Array):
        return ("array", dtype_text(as_dtype(kind.dtype)), kind.ndim, kind.layout, kind.mutable)
    if isinstance(kind, BaseTuple):
        owner = getattr(kind, "instance_class", None)
        name = "" if owner is None or owner is tuple else name_of(owner)
        return ("tuple", name, tuple(text_of_type(item) for item in kind))
    if isinstance(kind, types.Boolean):
        return ("scalar", "boolean")
    if isinstance(kind, types.Integer | types.Float):
        return ("scalar", kind.name)
    raise TypeError(f"kernels pass arrays, numbers and tuples of them to each other, not {kind}.")
