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

_RUNTIME_PREFIX, _HELPER_PREFIX = "NRT_", "numba_"


@cache
def address_of(name: str) -> int:
    """Where a symbol is that an object file leaves open; KeyError if nobody has it."""
    if name.startswith(_RUNTIME_PREFIX):
        return int(numba_extension("core.runtime._nrt_python").c_helpers[name.removeprefix(_RUNTIME_PREFIX)])
    if name.startswith(_HELPER_PREFIX):
        return int(numba_extension("_helperlib").c_helpers[name.removeprefix(_HELPER_PREFIX)])
    for library in (ctypes.pythonapi, ctypes.CDLL(None), ctypes.CDLL("libm.so.6")):
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        if address is not None:
            return address
    raise KeyError(name)


@cache
def numba_extension(name: str) -> ModuleType:
    """One of numba's extension modules, without importing the package around it."""
    full_name = f"numba.{name}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    spec = importlib.util.find_spec("numba")
    if spec is None or spec.origin is None:
        raise ImportError("numba is not installed.")
    folder = Path(spec.origin).parent.joinpath(*name.split(".")[:-1])
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / (name.split(".")[-1] + suffix)
        if path.exists():
            return _load(full_name, path)
    raise ImportError(f"numba has no extension module {name}.")


def _load(name: str, path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module
