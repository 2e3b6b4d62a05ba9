"""The addresses of what compiled kernels call: Python's own functions, the C library, and numba's small runtime.

numba's runtime is three extension modules that need nothing else of numba. They are loaded from its folder under their
own names, so that a later `import numba` finds them.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from dmlgbm.gbdt.machine_code.elf_object import ObjectFileError
from dmlgbm.gbdt.machine_code.numba_parts import HELPER_MODULES


@cache
def address_of(name: str) -> int:
    """Where a symbol is that an object file leaves open."""
    for prefix, module in HELPER_MODULES.items():
        helpers = numba_extension(module).c_helpers if name.startswith(prefix) else {}
        if name.removeprefix(prefix) in helpers:
            return int(helpers[name.removeprefix(prefix)])
    for library in (ctypes.pythonapi, ctypes.CDLL(None), ctypes.CDLL("libm.so.6")):
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        if address is not None:
            return address
    raise ObjectFileError(f"Python, the C library and numba have no function {name}")


@cache
def numba_extension(name: str) -> ModuleType:
    """One of numba's extension modules, without importing the package around it."""
    full_name = f"numba.{name}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    spec = importlib.util.find_spec("numba")
    if spec is None or spec.origin is None:
        raise ObjectFileError("numba is not installed")
    folder = Path(spec.origin).parent.joinpath(*name.split(".")[:-1])
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / (name.split(".")[-1] + suffix)
        if path.exists():
            return _load(full_name, path)
    raise ObjectFileError(f"numba has no extension module {name}")


def _load(name: str, path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        # What is left would be found by the `import numba` that comes next.
        del sys.modules[name]
        raise
    return module
