"""Brings one object file into memory: the little of a linker that compiled kernels need.

LLVM's code for kernels makes no assumption on where it lies: every address in it is 64 bits wide and listed as a
relocation of one of two types. An object file with anything else is refused, and numba takes over.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOL_TABLE, _RELOCATIONS_WITH_ADDENDS, _NO_BITS, _UNWIND = 2, 4, 8, 0x70000001
_ALLOCATED, _WRITABLE = 0x2, 0x1
_UNDEFINED, _COMMON = 0, 0xFFF2
_TO_ADDRESS, _TO_DISTANCE = 1, 24  # R_X86_64_64 and R_X86_64_PC64
_SECTION_OF_SYMBOL = 3
_READ_AND_EXECUTE = 0x1 | 0x4


class ObjectFileError(Exception):
    """The object file holds something that this loader does not know."""


def can_load_objects() -> bool:
    """Whether this machine runs code that the loader knows."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32


@dataclass(frozen=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    target: int
    alignment: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    section: int
    value: int
    size: int


class LoadedObject:
    """The code and data of an object file in memory, where they stay until the process ends."""

    def __init__(self, data: bytes, resolve: Callable[[str], int]) -> None:
        """`resolve` tells the addresses of symbols that the object uses but does not define."""
        self._data = data
        self._sections = list(_read_sections(data))
        self._symbols = list(self._read_symbols())
        offsets, size = self._lay_out()
        variables, variables_size = _place_variables(self._symbols)
        code_size = _whole_pages(size)
        # Code first, then, on pages of their own that stay writable, the variables.
        self._memory = mmap.mmap(-1, code_size + variables_size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        section_addresses = {number: self._base + offset for number, offset in offsets.items()}
        self.addresses = {
            symbol.name: section_addresses[symbol.section] + self._inside(symbol.section, symbol.value)
            for symbol in self._symbols
            if symbol.name and symbol.section in section_addresses
        }
        self.variables = {name: self._base + code_size + offset for name, offset in variables.items()}
        self._copy(offsets)
        self._relocate(offsets, section_addresses, resolve)
        _protect(self._base, code_size)

    def _lay_out(self) -> tuple[dict[int, int], int]:
        """Where each section that is needed at run time goes, and how much they take together."""
        offsets: dict[int, int] = {}
        end = 0
        for number, section in enumerate(self._sections):
            if not section.flags & _ALLOCATED or section.kind == _UNWIND:
                continue
            if section.flags & _WRITABLE and section.size > 0:
                raise ObjectFileError("the object file has a section of variables")
            alignment = max(1, section.alignment)
            end = (end + alignment - 1) // alignment * alignment
            offsets[number] = end
            end += section.size
        return offsets, end

    def _read_symbols(self) -> Iterator[_Symbol]:
        tables = [section for section in self._sections if section.kind == _SYMBOL_TABLE]
        if len(tables) != 1:
            raise ObjectFileError("the object file has no table of symbols")
        names = self._sections[tables[0].link]
        for name, info, _, section, value, size in _SYMBOL.iter_unpack(self._content(tables[0])):
            start = names.offset + name
            text = self._data[start : self._data.index(b"\0", start)].decode()
            yield _Symbol(text, info & 0xF, section, value, size)

    def _copy(self, offsets: dict[int, int]) -> None:
        for number, offset in offsets.items():
            section = self._sections[number]
            if section.kind != _NO_BITS:
                self._memory[offset : offset + section.size] = self._content(section)

    def _relocate(
        self, offsets: dict[int, int], section_addresses: dict[int, int], resolve: Callable[[str], int]
    ) -> None:
        """Write the final addresses into code and constants."""
        for section in self._sections:
            if section.kind != _RELOCATIONS_WITH_ADDENDS or section.target not in offsets:
                continue
            for position, kind, number, addend in _RELOCATION.iter_unpack(self._content(section)):
                value = self._address(self._symbols[number], section_addresses, resolve) + addend
                written_at = offsets[section.target] + self._inside(section.target, position)
                if kind == _TO_DISTANCE:
                    value -= self._base + written_at
                elif kind != _TO_ADDRESS:
                    raise ObjectFileError(f"the object file has a relocation of type {kind}")
                struct.pack_into("<Q", self._memory, written_at, value & 0xFFFFFFFFFFFFFFFF)

    def _address(self, symbol: _Symbol, section_addresses: dict[int, int], resolve: Callable[[str], int]) -> int:
        if symbol.kind == _SECTION_OF_SYMBOL:
            return section_addresses[symbol.section]
        if symbol.section == _UNDEFINED:
            return resolve(symbol.name)
        if symbol.section == _COMMON:
            return self.variables[symbol.name]
        if symbol.section not in section_addresses:
            raise ObjectFileError(f"the object file's symbol {symbol.name} is in no section that is loaded")
        return section_addresses[symbol.section] + symbol.value

    def _content(self, section: _Section) -> bytes:
        return self._data[section.offset : section.offset + section.size]

    def _inside(self, section: int, place: int) -> int:
        if place > self._sections[section].size:
            raise ObjectFileError("the object file names a place outside its sections")
        return place


def _read_sections(data: bytes) -> Iterator[_Section]:
    if len(data) < _HEADER.size or data[:6] != _MAGIC:
        raise ObjectFileError("this is not an object file")
    header = _HEADER.unpack_from(data)
    kind, machine, table, entry_size, n_sections = header[1], header[2], header[6], header[11], header[12]
    if kind != _RELOCATABLE or machine != _X86_64 or entry_size != _SECTION.size:
        raise ObjectFileError("the object file is for another kind of machine")
    for number in range(n_sections):
        fields: tuple[Any, ...] = _SECTION.unpack_from(data, table + number * entry_size)
        _, section_kind, flags, _, offset, size, link, target, alignment, _ = fields
        yield _Section(section_kind, flags, offset, size, link, target, alignment)


def _place_variables(symbols: list[_Symbol]) -> tuple[dict[str, int], int]:
    """Where each variable without a first value goes, from the start of a page, and how much they take together."""
    positions: dict[str, int] = {}
    end = 0
    for symbol in symbols:
        if symbol.section == _COMMON:
            alignment = symbol.value
            positions[symbol.name] = (end + alignment - 1) // alignment * alignment
            end = positions[symbol.name] + symbol.size
    return positions, end


def _whole_pages(size: int) -> int:
    return max(1, (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE) * mmap.PAGESIZE


def _protect(address: int, size: int) -> None:
    """Code may be run, and no longer be changed."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), _READ_AND_EXECUTE) != 0:
        raise ObjectFileError(f"this system does not let a process make code: error {ctypes.get_errno()} of mprotect")
