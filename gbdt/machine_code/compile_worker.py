"""The process that compiles: reads what is wanted from its input, a line each, and answers with machine code.

Its first line says that it has started. Answers are lines too: kernels that the wanted one calls, as soon as they are
known, and at last the code or what went wrong. The process that asked keeps the code, on disk or in its memory.
The end of the input, which comes also when the process that asked is gone, is the end of this process.
"""

from __future__ import annotations

import base64
import gc
import json
import sys
import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dmlgbm.gbdt.machine_code.argument_types import from_json
from dmlgbm.gbdt.machine_code.store import KernelTypes

if TYPE_CHECKING:
    from dmlgbm.gbdt.machine_code.numba_compiler import ObjectCompiler


def main() -> None:
    """Serve until the input ends."""
    # The collector finds nothing in a compiler's millions of objects (measured: a quarter of the time).
    gc.disable()
    compiler = None
    _answer(started=True)
    for line in sys.stdin:
        kernel, types = json.loads(line)
        wanted = KernelTypes(kernel, from_json(types))
        try:
            compiler = compiler or _start_compiler()
            code = compiler.compile(wanted)
        except Exception:  # noqa: BLE001 - whatever went wrong is told to the process that asked
            _answer(done=False, error=traceback.format_exc())
        else:
            fields = asdict(code) | {"object_file": base64.b64encode(code.object_file).decode()}
            _answer(done=True, code=fields)


def _start_compiler() -> ObjectCompiler:
    from dmlgbm.gbdt.machine_code.numba_compiler import ObjectCompiler

    return ObjectCompiler(lambda call: _answer(calls=[call.kernel, call.types]))


def _answer(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
