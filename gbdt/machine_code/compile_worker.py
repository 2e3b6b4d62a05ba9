"""The process that compiles: reads what is wanted from its input, a line each, and answers with machine code.

Its first line says that it has started. Answers are lines too: kernels that the wanted one calls, as soon as they are
known, and at last the code or what went wrong. The process that asked keeps the code, on disk or in its memory.
The end of the input, which comes also when the process that asked is gone, is the end of this process; so is a kernel
that takes far more processor time than any should.

A process that is started with levels of processors compiles for each of them too: for a wheel, whose bytes should
depend on nothing but the sources. numba numbers its functions, so that what it has compiled before shows in the names
inside an object file; so each kernel is then left to a fork that has compiled no other (measured: 12 % more time).
"""

from __future__ import annotations

import base64
import gc
import json
import math
import os
import resource
import sys
import traceback
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from dmlgbm.gbdt.machine_code.argument_types import from_json
from dmlgbm.gbdt.machine_code.object_files import KernelTypes

if TYPE_CHECKING:
    from dmlgbm.gbdt.machine_code.numba_compiler import ObjectCompiler


# A kernel takes up to 15 seconds. Short of memory, a process once went on for ten minutes, nearly all of them in the
# system's allocator, and did not notice that the one that had asked was gone.
_MOST_CPU_SECONDS = 120


def main() -> None:
    """Serve until the input ends."""
    # The collector finds nothing in a compiler's millions of objects (measured: a quarter of the time).
    gc.disable()
    serve = _serve_in_a_fork if sys.argv[1:] else _serve
    _answer(started=True)
    for line in sys.stdin:
        kernel, types = json.loads(line)
        _limit_cpu_time()
        serve(KernelTypes(kernel, from_json(types)))


def _limit_cpu_time() -> None:
    """Have the system end this process if the next kernel takes too long."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime) + _MOST_CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _serve(wanted: KernelTypes) -> None:
    try:
        code = _compiler().compile(wanted)
        for_levels = _compiler().compiled_for(sys.argv[1:])
    except Exception:  # noqa: BLE001 - whatever went wrong is told to the process that asked
        _answer(done=False, error=traceback.format_exc())
    else:
        fields = asdict(code) | {"object_file": _as_text(code.object_file)}
        _answer(done=True, code=fields, for_levels={level: _as_text(data) for level, data in for_levels.items()})


def _serve_in_a_fork(wanted: KernelTypes) -> None:
    _compiler()
    process = os.fork()
    if process == 0:
        try:
            _serve(wanted)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    if status != 0:
        _answer(done=False, error=f"the process that compiled {wanted.label} ended with status {status}")


@cache
def _compiler() -> ObjectCompiler:
    from dmlgbm.gbdt.machine_code.numba_compiler import ObjectCompiler

    return ObjectCompiler(lambda call: _answer(calls=[call.kernel, call.types]))


def _as_text(object_file: bytes) -> str:
    return base64.b64encode(object_file).decode()


def _answer(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
