"""The model file: JSON metadata and numeric arrays in one versioned, checksummed, pickle-free container.

    prefix (magic, version, file size, header length) | JSON header | arrays, 64-byte aligned | SHA-256

The one idea: the format is canonical. Content determines every byte (key order, number text, where each array
lies, zero padding), so equal models are equal files, and the reader accepts a header only if writing what it
understood gives the same bytes again. Overlapping arrays, duplicate keys or hidden data have no way to be spelled.
Nothing is allocated on a file's word alone and nothing in it is executed. `docs/model_file.md` is the full description.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import reprlib
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.system.atomic_file import write_atomically

FORMAT_VERSION = 1

_MAGIC = b"DMLGBM\0"
_PREFIX = struct.Struct("<7sBQQ")
_CHECKSUM_SIZE = 32
_ALIGNMENT = 64
_MAX_NESTING = 64
_MAX_DIMENSIONS = 32
_MAX_INTEGER_BITS = 4096
_MAX_ARRAY_BYTES = 2**63 - 1
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "float32", "float64"),
    )
}
_FLOAT_TAG = "$float"
# The closing quote is optional so that an unterminated string is consumed once, not retried from every quote in it.
_JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

Metadata = dict[str, Any]
Arrays = dict[str, npt.NDArray[Any]]
_Bytes = npt.NDArray[np.uint8]


class ModelFileError(ValueError):
    """The file or bytes are not a model this version can read; the message says which file and why."""


def write_model_file(path: str | os.PathLike[str], metadata: Metadata, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a model to `path` atomically: a crash leaves the old file or the new one."""
    write_atomically(path, _assemble(metadata, arrays).data)


def model_bytes(metadata: Metadata, arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The content of the model file for `metadata` and `arrays`; equal content gives equal bytes."""
    return _assemble(metadata, arrays).tobytes()


def read_model_file(path: str | os.PathLike[str]) -> tuple[Metadata, Arrays]:
    """Metadata and arrays of a model file; the arrays are writable views of one private buffer."""
    with _naming(f"model file {os.fspath(path)!r}"):
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise ModelFileError("is not a regular file")
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            _checked_header_length(file.read(_PREFIX.size), size)
            file.seek(0)
            content = _aligned_buffer(size)
            received = file.readinto(content.data)
        if received != size:
            raise ModelFileError(f"is truncated: expected {size} bytes, got {received}")
        return _parse(content)


def parse_model_bytes(data: bytes | bytearray | memoryview) -> tuple[Metadata, Arrays]:
    """The inverse of `model_bytes`; `data` is copied once, and the arrays are writable views of that copy."""
    with _naming("model data"):
        view = memoryview(data).cast("B")
        _checked_header_length(view[: _PREFIX.size].tobytes(), view.nbytes)
        content = _aligned_buffer(view.nbytes)
        content.data[:] = view
        return _parse(content)


@contextlib.contextmanager
def _naming(source: str) -> Iterator[None]:
    """Put the name of what is being read in front of the message."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{source} {error}") from None


# Layout: where each array lies follows from the names, dtypes and shapes alone.


@dataclass(frozen=True)
class _Placement:
    """One row of the array table; `offset` counts from the start of the payload."""

    name: str
    dtype_name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def length(self) -> int:
        return math.prod(self.shape) * _DTYPES[self.dtype_name].itemsize

    @property
    def end(self) -> int:
        return self.offset + self.length

    def bytes_in(self, payload: _Bytes) -> _Bytes:
        return payload[self.offset : self.end]

    def array_in(self, payload: _Bytes) -> npt.NDArray[Any]:
        return self.bytes_in(payload).view(_DTYPES[self.dtype_name]).reshape(self.shape)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype_name,
            "shape": list(self.shape),
            "offset": self.offset,
            "length": self.length,
        }


def _place(arrays: Iterable[tuple[str, str, tuple[int, ...]]]) -> list[_Placement]:
    """Lay (name, dtype name, shape) out one after the other, each at the next multiple of the alignment."""
    placements: list[_Placement] = []
    end = 0
    for name, dtype_name, shape in arrays:
        placements.append(_Placement(name, dtype_name, shape, _round_up(end)))
        end = placements[-1].end
    return placements


def _round_up(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _payload_size(placements: list[_Placement]) -> int:
    return placements[-1].end if placements else 0


def _aligned_buffer(size: int) -> _Bytes:
    """Zeroed bytes that start, and therefore hold every array, on a 64-byte boundary."""
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


# Writing.


def _assemble(metadata: Metadata, arrays: Mapping[str, npt.NDArray[Any]]) -> _Bytes:
    """The whole file in memory; every array is copied once, straight to its place and byte order."""
    if not isinstance(metadata, dict):
        raise TypeError(f"metadata must be a dict, got {type(metadata).__name__}")
    placements = _place(_described(arrays))
    header = _header_bytes(metadata, placements)
    payload_start = _round_up(_PREFIX.size + len(header))
    size = payload_start + _payload_size(placements) + _CHECKSUM_SIZE
    content = _aligned_buffer(size)
    prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, size, len(header))
    content[: _PREFIX.size + len(header)] = np.frombuffer(prefix + header, np.uint8)
    payload = content[payload_start:-_CHECKSUM_SIZE]
    for placement in placements:
        placement.array_in(payload)[...] = arrays[placement.name]
        if placement.dtype_name == "bool":
            # numpy treats every non-zero byte as true; the format knows only 0 and 1.
            written = placement.bytes_in(payload)
            np.minimum(written, 1, out=written)
    content[-_CHECKSUM_SIZE:] = _checksum(content)
    return content


def _described(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(f"array names must be strings, got {name!r}")
    for name in sorted(arrays):
        array = arrays[name]
        if not isinstance(array, np.ndarray) or array.dtype.name not in _DTYPES:
            found = f"dtype {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"arrays[{name!r}] must be a numpy array of {', '.join(_DTYPES)}, got {found}")
        if array.ndim > _MAX_DIMENSIONS:
            raise ValueError(f"arrays[{name!r}] has {array.ndim} dimensions, a model file holds {_MAX_DIMENSIONS}")
        yield name, array.dtype.name, array.shape


def _checksum(content: _Bytes) -> _Bytes:
    return np.frombuffer(hashlib.sha256(content[:-_CHECKSUM_SIZE].data).digest(), np.uint8)


def _header_bytes(metadata: Metadata, placements: list[_Placement]) -> bytes:
    header = {"arrays": [placement.as_json() for placement in placements], "metadata": metadata}
    # "surrogatepass" keeps every Python string apart from every other, lone and paired surrogates included.
    text = json.dumps(_to_json(header), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _to_json(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """`value` in plain JSON types: non-finite floats as tagged objects, keys that look like a tag escaped."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_INTEGER_BITS:
            raise ValueError(f"{_location(path)} is an integer of more than {_MAX_INTEGER_BITS} bits")
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if len(path) >= _MAX_NESTING:
        raise ValueError(f"{_location(path[:3])}... is nested more than {_MAX_NESTING} levels deep")
    if isinstance(value, float):
        return {_FLOAT_TAG: repr(float(value))}
    if isinstance(value, (list, tuple)):
        return [_to_json(element, (*path, index)) for index, element in enumerate(value)]
    if isinstance(value, dict):
        return {_escaped_key(key, path): _to_json(element, (*path, key)) for key, element in value.items()}
    raise TypeError(
        f"{_location(path)} is a {type(value).__name__}; a model file stores None, bool, int, float, str, list, dict"
    )


def _escaped_key(key: Any, path: tuple[Any, ...]) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{_location(path)} has the key {key!r}; keys must be strings")
    return "$" + key if key.startswith("$") else key


def _location(path: tuple[Any, ...]) -> str:
    return str(path[0]) + "".join(f"[{step!r}]" for step in path[1:])


# Reading.


def _checked_header_length(prefix: bytes, size: int) -> int:
    """The header length from the first bytes of a file of `size` bytes, once all sizes fit the file."""
    if prefix[: len(_MAGIC)] != _MAGIC[: len(prefix)]:
        raise ModelFileError(f"is not a DMLGBM model: it starts with {prefix[:8]!r}")
    # The version comes before the sizes: a newer format may keep them elsewhere.
    version = prefix[len(_MAGIC)] if len(prefix) > len(_MAGIC) else FORMAT_VERSION
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"was written by a newer dmlgbm: format {version}, this one reads up to {FORMAT_VERSION}; upgrade dmlgbm"
        )
    if version == 0:
        raise ModelFileError("is damaged: format version 0 does not exist")
    if len(prefix) < _PREFIX.size:
        raise ModelFileError(f"is truncated: expected at least {_PREFIX.size} bytes, got {size}")
    _, _, declared_size, header_length = _PREFIX.unpack(prefix)
    if size < declared_size:
        raise ModelFileError(f"is truncated: expected {declared_size} bytes, got {size}")
    if size > declared_size:
        raise ModelFileError(f"is too long: expected {declared_size} bytes, got {size}")
    if _round_up(_PREFIX.size + header_length) + _CHECKSUM_SIZE > size:
        raise ModelFileError(f"is damaged: a header of {header_length} bytes does not fit into {size} bytes")
    return int(header_length)


def _parse(content: _Bytes) -> tuple[Metadata, Arrays]:
    header_length = _checked_header_length(content[: _PREFIX.size].tobytes(), content.size)
    if not np.array_equal(_checksum(content), content[-_CHECKSUM_SIZE:]):
        raise ModelFileError("is damaged: its checksum does not match its content")
    header_end = _PREFIX.size + header_length
    payload_start = _round_up(header_end)
    payload = content[payload_start:-_CHECKSUM_SIZE]
    metadata, placements = _read_header(content[_PREFIX.size : header_end].tobytes(), payload.size)
    if content[header_end:payload_start].any() or any(
        payload[before.end : after.offset].any() for before, after in itertools.pairwise(placements)
    ):
        raise ModelFileError("is damaged: the padding between its parts is not zero")
    return metadata, {placement.name: _array(placement, payload) for placement in placements}


def _read_header(header: bytes, payload_size: int) -> tuple[Metadata, list[_Placement]]:
    """Metadata and array table; everything that is not exactly what the writer would write is refused."""
    if _nesting(header) > _MAX_NESTING:
        raise ModelFileError(f"is damaged: its header is nested more than {_MAX_NESTING} levels deep")
    try:
        fields = json.loads(header.decode("utf-8", "surrogatepass"), object_hook=_from_json_object)
    except ValueError as error:
        raise ModelFileError(f"is damaged: its header is not valid JSON ({error})") from None
    if not isinstance(fields, dict) or fields.keys() != {"arrays", "metadata"}:
        raise ModelFileError("is damaged: its header must hold 'arrays' and 'metadata'")
    if not isinstance(fields["metadata"], dict) or not isinstance(fields["arrays"], list):
        raise ModelFileError("is damaged: in its header 'arrays' must be a list and 'metadata' an object")
    placements = _read_array_table(fields["arrays"])
    if _payload_size(placements) != payload_size:
        expected = _payload_size(placements)
        raise ModelFileError(f"is damaged: its arrays take {expected} bytes, the file has {payload_size} for them")
    try:
        canonical = _header_bytes(fields["metadata"], placements) == header
    except ValueError:
        canonical = False
    if not canonical:
        raise ModelFileError("is damaged: its header is not in canonical form")
    return fields["metadata"], placements


def _nesting(header: bytes) -> int:
    """How deep the brackets go. Counted before parsing: the JSON parser recurses on the C stack."""
    step = np.zeros(256, np.int8)
    step[list(b"[{")] = 1
    step[list(b"]}")] = -1
    brackets = np.frombuffer(_JSON_STRING.sub(b"", header), np.uint8)
    return int(np.cumsum(step[brackets], dtype=np.int64).max(initial=0))


def _from_json_object(stored: dict[str, Any]) -> Any:
    """Undo `_to_json`. A tag or escape it would not have written changes here, and fails the canonical check."""
    if len(stored) == 1 and stored.get(_FLOAT_TAG) in ("inf", "-inf", "nan"):
        return float(stored[_FLOAT_TAG])
    return {key.removeprefix("$"): value for key, value in stored.items()}


def _read_array_table(table: list[Any]) -> list[_Placement]:
    for row in table:
        # reprlib: a hostile name must not become a message of a gigabyte.
        if not isinstance(row, dict) or row.keys() != {"name", "dtype", "shape", "offset", "length"}:
            raise ModelFileError("is damaged: an array table row must hold name, dtype, shape, offset and length")
        if not isinstance(row["name"], str):
            raise ModelFileError(f"is damaged: an array has the name {reprlib.repr(row['name'])}, not a string")
        name = reprlib.repr(row["name"])
        if not isinstance(row["dtype"], str) or row["dtype"] not in _DTYPES:
            raise ModelFileError(f"is damaged: array {name} has the unknown dtype {reprlib.repr(row['dtype'])}")
        if not _is_shape(row["shape"], _DTYPES[row["dtype"]].itemsize):
            raise ModelFileError(f"is damaged: array {name} has an impossible shape")
    names = [row["name"] for row in table]
    if names != sorted(set(names)):
        raise ModelFileError("is damaged: its array names are not unique and sorted")
    placements = _place((row["name"], row["dtype"], tuple(row["shape"])) for row in table)
    for row, placement in zip(table, placements, strict=True):
        if (row["offset"], row["length"]) != (placement.offset, placement.length):
            declared = f"offset {reprlib.repr(row['offset'])} and length {reprlib.repr(row['length'])}"
            raise ModelFileError(
                f"is damaged: array {reprlib.repr(placement.name)} is declared with {declared}, "
                f"its place is offset {placement.offset} and length {placement.length}"
            )
    return placements


def _is_shape(shape: Any, item_size: int) -> bool:
    """Whether numpy can hold the shape; an empty array's other axes count too, as numpy multiplies them."""
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        return False
    if any(type(axis) is not int or axis < 0 for axis in shape):
        return False
    return bool(math.prod(max(axis, 1) for axis in shape) * item_size <= _MAX_ARRAY_BYTES)


def _array(placement: _Placement, payload: _Bytes) -> npt.NDArray[Any]:
    if placement.dtype_name == "bool" and placement.bytes_in(payload).max(initial=0) > 1:
        raise ModelFileError(f"is damaged: boolean array {reprlib.repr(placement.name)} holds bytes other than 0 and 1")
    return placement.array_in(payload)
