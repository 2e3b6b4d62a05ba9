"""From a kernel and its types to something that Python can call: read, or have it compiled, load, and wrap.

Whatever fails on the way to it, in this process or in one that compiles, ends in `entry_point`: there numba takes over.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any

from dmlgbm.gbdt.machine_code import object_files
from dmlgbm.gbdt.machine_code.compilation_counts import counts
from dmlgbm.gbdt.machine_code.elf_object import LoadedObject
from dmlgbm.gbdt.machine_code.kernel_road import say_that_numba_takes_over, uses_object_files
from dmlgbm.gbdt.machine_code.numba_parts import ENVIRONMENT_MODULE, ENVIRONMENT_PREFIX
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, MachineCode
from dmlgbm.gbdt.machine_code.symbols import address_of, numba_extension

if TYPE_CHECKING:
    from dmlgbm.gbdt.machine_code.kernel import Kernel

logger = logging.getLogger("dmlgbm")

_POSITIONAL_AND_KEYWORD = 0x1 | 0x2


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef: what Python needs to know of a function written in C."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


# Loading a kernel loads those that it calls. Nothing is ever taken out: code stays as long as the process.
_lock = RLock()
_addresses: dict[str, int] = {}
_kept: list[Any] = []


def entry_point(kernel: Kernel, wanted: KernelTypes) -> Callable[..., Any]:
    """A callable for arguments of these types."""
    if uses_object_files():
        try:
            with _lock:
                return _python_function(kernel, *_load(wanted))
        except Exception as error:  # noqa: BLE001 - this road stands on private parts of numba, files, processes and
            # raw memory, which fail in ways that nobody can list; whatever it was, numba gives the same results.
            say_that_numba_takes_over(wanted.label, error)
    from dmlgbm.gbdt.machine_code.in_process import compiled_in_process

    return compiled_in_process(kernel, wanted)


def prepare(kernel: Kernel, wanted: KernelTypes) -> None:
    """Have it compiled in the background, unless it is on disk."""
    if not uses_object_files():
        return
    try:
        if object_files.read(wanted) is None:
            from dmlgbm.gbdt.machine_code.compile_service import the_service

            the_service().request(wanted)
    except Exception as error:  # noqa: BLE001 - who calls the kernel asks for it again, and hears of it then
        logger.info("%s cannot be compiled in advance: %r", wanted.label, error)


def _load(wanted: KernelTypes) -> tuple[LoadedObject, MachineCode]:
    code = object_files.read(wanted)
    if code is None:
        from dmlgbm.gbdt.machine_code.compile_service import the_service

        say_that_it_compiles()
        code = the_service().compiled(wanted)
        counts.compiled += 1
    else:
        counts.from_disk += 1
    called = {call.label: call for call in code.calls}

    def resolve(symbol: str) -> int:
        if symbol not in called:
            return address_of(symbol)
        if symbol not in _addresses:
            loaded_call, its_code = _load(called[symbol])
            _addresses[symbol] = loaded_call.addresses[its_code.entry_from_kernels]
        return _addresses[symbol]

    loaded = LoadedObject(code.object_file, resolve)
    for name, address in loaded.variables.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            ctypes.c_void_p.from_address(address).value = id(_environment())
    _kept.append(loaded)
    return loaded, code


@cache
def _environment() -> Any:
    """What numba's code wants to see before it runs. Kernels have no constants that live in Python."""
    return numba_extension(ENVIRONMENT_MODULE).Environment({})


def _python_function(kernel: Kernel, loaded: LoadedObject, code: MachineCode) -> Callable[..., Any]:
    address = loaded.addresses[code.entry_from_python]
    definition = _MethodDefinition(kernel.__name__.encode(), address, _POSITIONAL_AND_KEYWORD, None)
    _kept.append(definition)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    function: Callable[..., Any] = make(ctypes.addressof(definition), None, None)
    return function


@cache
def say_that_it_compiles() -> None:
    """Once a process: a first fit that takes some seconds more should not look like one that hangs."""
    sys.stderr.write("dmlgbm: compiling kernels for this machine, once; 10 to 20 seconds (see `dmlgbm warmup`)\n")
    sys.stderr.flush()
