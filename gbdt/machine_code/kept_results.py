"""What numba compiled in place, kept like other machine code.

The folders are those of `cache_folders`, which nobody else can write, and their names hold a digest of all sources: a
kernel may call one in another file, whose changes numba's own cache does not notice.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
from functools import cache
from typing import Any

from numba.core import serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult

from dmlgbm.gbdt.machine_code import cache_folders
from dmlgbm.gbdt.machine_code.code_version import own_version
from dmlgbm.gbdt.machine_code.compilation_counts import counts
from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.gbdt.machine_code.kernel_road import say_that_results_are_not_kept

logger = logging.getLogger("dmlgbm")


class KeptResults(NullCache):
    """What numba asks for compiled functions before it compiles, and hands them to after that.

    A failure of either costs time, never the kernel: numba compiles again.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._folder = own_version(kernel.sources).folder

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A result from disk; None if there is none that can be used."""
        try:
            result = self._read(sig, target_context)
        except Exception as error:  # noqa: BLE001 - a damaged pickle may raise anything, as may LLVM on its content
            logger.info("a result of numba for %r is compiled again: %r", self._kernel, error)
            result = None
        if result is None:
            _say_that_numba_compiles()
        else:
            counts.from_disk += 1
        return result

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep a result for later processes."""
        counts.compiled += 1
        try:
            data = serialize.dumps(cres._reduce())
            if not cache_folders.write_file(self._folder, self._name(sig, cres.codegen), data):
                cache_folders.say_that_nothing_is_kept()
        except Exception as error:  # noqa: BLE001 - the kernel is compiled and runs, whatever pickle makes of it
            say_that_results_are_not_kept(self._kernel.name, error)

    def _read(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        data = cache_folders.read_file(self._folder, self._name(sig, target_context.codegen()))
        if data is None:
            return None
        fields = pickle.loads(data)  # noqa: S301 - nobody but the user and root can have written it
        return CompileResult._rebuild(target_context, *fields)

    def _name(self, sig: Any, codegen: Any) -> str:
        types = hashlib.sha256(repr((str(sig), codegen.magic_tuple())).encode()).hexdigest()[:16]
        return f"{self._kernel.name.replace(':', '.')}-{types}.numba"


@cache
def _say_that_numba_compiles() -> None:
    """Once a process: a first fit that takes a minute more should not look like one that hangs."""
    sys.stderr.write("dmlgbm: numba compiles kernels in this process; the first time this takes a minute or two\n")
    sys.stderr.flush()
