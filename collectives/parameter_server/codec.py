"""Turns messages into bytes and back, from the annotations of their fields; nothing in the bytes is ever executed.

A message is a frozen dataclass whose fields are int, float, bool, str, arrays, tuples, other such dataclasses, unions
of them, or any of these or None. Reading is bounded by the bytes that are there: every length is checked against what
is left before anything of that length is made. Arrays start at a multiple of eight bytes and are read in place.
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.errors import ProtocolError

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview

# Element types the store holds, in an order that the wire knows.
DTYPES = tuple(np.dtype(name) for name in ("<f4", "<f8", "<i4", "<i8"))
_MOST_AXES = 8
_ALIGNMENT = 8
# Shorter arrays are copied next to the fields around them: one buffer is sent faster than three.
_COPIED_BYTES = 512
_WORD = struct.Struct("<q")
_REAL = struct.Struct("<d")
_COUNT = struct.Struct("<I")


class Output:
    """The buffers of a message under construction."""

    def __init__(self) -> None:
        self.size = 0
        self._finished: list[Buffer] = []
        self._current = bytearray()

    def write(self, data: bytes) -> None:
        self._current += data
        self.size += len(data)

    def write_array(self, array: Array) -> None:
        self.write(bytes(-self.size % _ALIGNMENT))
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        if len(data) <= _COPIED_BYTES:
            self.write(bytes(data))
            return
        self._finished += [self._current, data]
        self._current = bytearray()
        self.size += len(data)

    def buffers(self) -> list[Buffer]:
        return [*self._finished, self._current]


class Input:
    """A position in received bytes that cannot move past their end."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self._end = len(self._data)
        self._position = 0

    @property
    def left(self) -> int:
        return self._end - self._position

    def _move(self, size: int) -> int:
        """The position of the next `size` bytes, which count as read."""
        start = self._position
        if size > self._end - start:
            raise ProtocolError(f"a message ends after {self.left} bytes where {size} more were announced")
        self._position = start + size
        return start

    def take(self, size: int) -> memoryview:
        start = self._move(size)
        return self._data[start : start + size]

    def take_byte(self) -> int:
        return self._data[self._move(1)]

    def unpack(self, pack: struct.Struct) -> tuple[Any, ...]:
        return pack.unpack_from(self._data, self._move(pack.size))

    def take_array(self, size: int) -> memoryview:
        self._move(-self._position % _ALIGNMENT)
        return self.take(size)


class Form(NamedTuple):
    """How values of one annotation are written and read."""

    write: Callable[[Output, Any], None]
    read: Callable[[Input], Any]


_FORMS: dict[Any, Form] = {}


def encode(message: Any) -> list[Buffer]:
    """The fields of a message as buffers to be sent one after another."""
    output = Output()
    _form(type(message)).write(output, message)
    return output.buffers()


def decode(kind: type[Any], data: Buffer) -> Any:
    """The message of the given class in the bytes, or ProtocolError."""
    source = Input(data)
    message = _form(kind).read(source)
    if source.left:
        raise ProtocolError(f"{source.left} bytes follow a message of kind {kind.__name__}")
    return message


def _form(annotation: Any) -> Form:
    if annotation not in _FORMS:
        _FORMS[annotation] = _make_form(annotation)
    return _FORMS[annotation]


def _make_form(annotation: Any) -> Form:
    plain = {int: _INTEGER, float: _FLOAT, bool: _BOOLEAN, str: _TEXT, Array: _ARRAY}.get(annotation)
    if plain is not None:
        return plain
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _sequence(_form(arguments[0]))
    if origin is tuple:
        return _fixed(tuple(map(_form, arguments)), tuple)
    if origin in (types.UnionType, typing.Union):
        return _union(arguments)
    if isinstance(annotation, type) and is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        names = [field.name for field in fields(annotation)]
        return _record(annotation, names, [_form(hints[name]) for name in names])
    raise TypeError(f"no form for {annotation}")


def _read_text(source: Input) -> str:
    (size,) = source.unpack(_COUNT)
    try:
        return str(source.take(size), "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a text in a message is not UTF-8: {error}") from error


def _write_text(output: Output, value: str) -> None:
    data = value.encode()
    output.write(_COUNT.pack(len(data)) + data)


def _write_array(output: Output, array: Array) -> None:
    try:
        code = DTYPES.index(array.dtype)
    except ValueError:
        raise TypeError(f"arrays of {array.dtype} are not sent") from None
    output.write(struct.pack(f"<BB{array.ndim}q", code, array.ndim, *array.shape))
    output.write_array(array)


def _read_array(source: Input) -> Array:
    code, axes = source.take(2)
    if code >= len(DTYPES) or axes > _MOST_AXES:
        raise ProtocolError(f"no array has element type number {code} and {axes} axes")
    shape = struct.unpack(f"<{axes}q", source.take(8 * axes))
    if min(shape, default=0) < 0:
        raise ProtocolError(f"no array has shape {shape}")
    data = source.take_array(prod(shape) * DTYPES[code].itemsize)
    return np.frombuffer(data, DTYPES[code]).reshape(shape)


_INTEGER = Form(lambda output, value: output.write(_WORD.pack(value)), lambda source: source.unpack(_WORD)[0])
_FLOAT = Form(lambda output, value: output.write(_REAL.pack(value)), lambda source: source.unpack(_REAL)[0])
_BOOLEAN = Form(lambda output, value: output.write(b"\1" if value else b"\0"), lambda source: source.take_byte() != 0)
_LETTERS = {_INTEGER: "q", _FLOAT: "d", _BOOLEAN: "?"}
_TEXT = Form(_write_text, _read_text)
_ARRAY = Form(_write_array, _read_array)


def _sequence(element: Form) -> Form:
    def write(output: Output, values: tuple[Any, ...]) -> None:
        output.write(_COUNT.pack(len(values)))
        for value in values:
            element.write(output, value)

    def read(source: Input) -> tuple[Any, ...]:
        (count,) = source.unpack(_COUNT)
        if count > source.left:  # no element is shorter than a byte
            raise ProtocolError(f"a message announces {count} elements in {source.left} bytes")
        return tuple(element.read(source) for _ in range(count))

    return Form(write, read)


def _fixed(parts: tuple[Form, ...], make: Callable[[Any], Any]) -> Form:
    def write(output: Output, values: tuple[Any, ...]) -> None:
        for part, value in zip(parts, values, strict=True):
            part.write(output, value)

    return Form(write, lambda source: make(part.read(source) for part in parts))


def _record(kind: type[Any], names: list[str], parts: list[Form]) -> Form:
    runs = list(_runs(names, parts))

    def write(output: Output, value: Any) -> None:
        for pack, get, part in runs:
            if pack is not None:
                output.write(pack.pack(*get(value)))
            else:
                part.write(output, get(value))

    def read(source: Input) -> Any:
        values: list[Any] = []
        for pack, _, part in runs:
            if pack is not None:
                values += source.unpack(pack)
            else:
                values.append(part.read(source))
        try:
            return kind(*values)
        except ValueError as error:  # a record checks its own fields
            raise ProtocolError(f"a message holds an impossible {kind.__name__}: {error}") from error

    return Form(write, read)


def _runs(names: list[str], parts: list[Form]) -> Iterator[tuple[struct.Struct | None, Callable[[Any], Any], Form]]:
    """Neighbouring numbers of a record are written and read in one go; every other field for itself."""
    position = 0
    while position < len(names):
        end = position
        while end < len(names) and parts[end] in _LETTERS:
            end += 1
        if end > position + 1:
            letters = "".join(_LETTERS[part] for part in parts[position:end])
            yield struct.Struct(f"<{letters}"), attrgetter(*names[position:end]), parts[position]
            position = end
        else:
            yield None, attrgetter(names[position]), parts[position]
            position += 1


def _union(members: tuple[Any, ...]) -> Form:
    """A byte that says which member follows, then the member; None has no bytes of its own."""
    nothing = Form(lambda output, value: None, lambda source: None)
    forms = [nothing if member is types.NoneType else _form(member) for member in members]
    array = members.index(Array) if Array in members else None

    def write(output: Output, value: Any) -> None:
        number = array if isinstance(value, np.ndarray) else members.index(type(value))
        assert number is not None
        output.write(bytes([number]))
        forms[number].write(output, value)

    def read(source: Input) -> Any:
        number = source.take_byte()
        if number >= len(forms):
            raise ProtocolError(f"a message names choice {number} of {len(forms)}")
        return forms[number].read(source)

    return Form(write, read)
