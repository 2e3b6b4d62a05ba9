"""The types of a kernel's arguments, as they are seen in a call and as text that other processes understand.

A call looks types up by a *signature*: a tuple that is quick to make of the arguments. *Type texts* are its one
spelling in JSON, from which file names are made and which `numba_compiler` turns into numba's types.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import numpy as np

from dmlgbm.gbdt.machine_code.named_object import name_of

Signature = tuple[Any, ...]
TypeTexts = tuple[Any, ...]
"""Nested tuples of text and numbers: ("array", dtype, dimensions, layout, writable), ("scalar", name), ("tuple",
class, items)."""

_C_CONTIGUOUS, _F_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x2, 0x100, 0x400
_LOOKED_AT = _C_CONTIGUOUS | _F_CONTIGUOUS | _ALIGNED | _WRITEABLE

_PYTHON_SCALARS = {bool: "boolean", int: "int64", float: "float64"}


def signature_of(arguments: tuple[Any, ...]) -> Signature:
    """What machine code depends on: of arrays dtype, dimensions and layout, of tuples their items, else the type."""
    return tuple(
        [
            (argument.dtype, argument.ndim, argument.flags.num & _LOOKED_AT)
            if type(argument) is np.ndarray
            else (type(argument), signature_of(argument))
            if isinstance(argument, tuple)
            else type(argument)
            for argument in arguments
        ]
    )


def type_texts(signature: Signature) -> TypeTexts:
    """A signature without Python objects."""
    return tuple(_type_text(kind) for kind in signature)


def _type_text(kind: Any) -> TypeTexts:
    if not isinstance(kind, tuple):
        return ("scalar", _scalar_name(kind))
    if len(kind) == 2:
        owner, items = kind
        return ("tuple", "" if owner is tuple else name_of(owner), type_texts(items))
    dtype, n_dimensions, flags = kind
    if not flags & _ALIGNED:
        raise TypeError("kernels take aligned arrays only.")
    layout = "C" if flags & _C_CONTIGUOUS else "F" if flags & _F_CONTIGUOUS else "A"
    return ("array", dtype_text(dtype), n_dimensions, layout, bool(flags & _WRITEABLE))


def _scalar_name(kind: type) -> str:
    if kind in _PYTHON_SCALARS:
        return _PYTHON_SCALARS[kind]
    if issubclass(kind, np.bool_):
        return "boolean"
    if issubclass(kind, np.integer | np.floating):
        return np.dtype(kind).name
    raise TypeError(f"kernels take arrays, numbers and tuples of them, not {kind.__name__}.")


@cache
def dtype_text(dtype: np.dtype[Any]) -> Any:
    """A name, or (item size, whether aligned like in C, ((field, dtype, offset), ...)) of a record."""
    if not dtype.isnative:
        raise TypeError(f"kernels take arrays in the byte order of the machine, not {dtype}.")
    if dtype.fields is None:
        return dtype.name
    assert dtype.names is not None
    fields = tuple((name, dtype.fields[name][0].name, dtype.fields[name][1]) for name in dtype.names)
    return (dtype.itemsize, dtype.isalignedstruct, fields)


def dtype_from_text(text: Any) -> np.dtype[Any]:
    """The dtype that `dtype_text` describes."""
    if isinstance(text, str):
        return np.dtype(text)
    item_size, is_aligned, fields = text
    names, formats, offsets = zip(*fields, strict=True)
    description: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": item_size}
    return np.dtype(description, align=is_aligned)


def as_json(texts: TypeTexts) -> str:
    """Type texts for a message or a file."""
    return json.dumps(texts, separators=(",", ":"))


def from_json(value: Any) -> TypeTexts:
    """Type texts as they come out of JSON, where tuples are lists."""
    return tuple([from_json(item) if type(item) is list else item for item in value])


def digest_of(texts: TypeTexts) -> str:
    """A short name for types, for files and symbols."""
    return hashlib.sha256(as_json(texts).encode()).hexdigest()[:16]
