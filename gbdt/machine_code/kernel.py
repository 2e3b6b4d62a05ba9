"""What a function marked as a kernel becomes: a callable that runs machine code made for its arguments' types.

Kernels release the GIL, so that plain Python threads run them side by side. They return nothing, a number or
two, and are called by position.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from dmlgbm.gbdt.machine_code.argument_types import Signature, signature_of, type_texts
from dmlgbm.gbdt.machine_code.named_object import name_of
from dmlgbm.gbdt.machine_code.object_files import KernelTypes


class Kernel:
    """A function of arrays and numbers; `is_inlined` ones are compiled into the kernels that call them.

    `package` is the folder whose kernels it may call. Machine code is good for one version of that folder and of the
    one that the function itself is in.
    """

    def __init__(self, function: Callable[..., Any], is_inlined: bool, package: Path) -> None:
        self.function = function
        self.is_inlined = is_inlined
        self._package = package
        self.name = name_of(function)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__name__ = function.__name__
        self._lock = Lock()
        self._entries: dict[Signature, Callable[..., Any]] = {}
        self._prepared: set[Signature] = set()

    def __call__(self, *arguments: Any) -> Any:
        return self.for_types_of(*arguments)(*arguments)

    def for_types_of(self, *arguments: Any) -> Callable[..., Any]:
        """What a call with arguments of these types runs; it must never be called with arguments of others."""
        signature = signature_of(arguments)
        entry = self._entries.get(signature)
        return self._find_entry(signature) if entry is None else entry

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def prepare(self, *arguments: Any) -> None:
        """Start to compile for arguments like these, if that was not done before; come back at once."""
        signature = signature_of(arguments)
        if signature not in self._prepared:
            from dmlgbm.gbdt.machine_code.loader import prepare

            self._prepared.add(signature)
            prepare(self, KernelTypes(self.name, type_texts(signature)))

    @cached_property
    def sources(self) -> frozenset[Path]:
        """The folders whose files machine code is made of."""
        return frozenset((self._package, Path(inspect.getfile(self.function)).parent))

    @property
    def n_entries(self) -> int:
        """For how many combinations of types the kernel was called."""
        return len(self._entries)

    def _find_entry(self, signature: Signature) -> Callable[..., Any]:
        from dmlgbm.gbdt.machine_code.loader import entry_point

        with self._lock:
            if signature not in self._entries:
                wanted = KernelTypes(self.name, type_texts(signature))
                self._entries[signature] = entry_point(self, wanted)
            return self._entries[signature]


class Intrinsic:
    """The name of a function that exists only in compiled code; what it does is in a module that needs numba."""

    def __init__(self, name: str, module: str = "dmlgbm.gbdt.machine_code.intrinsics") -> None:
        self.name = name
        self.module = module

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.name} can only be called by kernels.")
