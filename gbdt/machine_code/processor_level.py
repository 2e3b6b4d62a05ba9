"""What the processor can do, in the levels of x86-64 that compilers name: v3 has AVX2, v4 also AVX-512."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

_PROCESSOR = Path("/proc/cpuinfo")
# What numba compiles for, where the user does not want it to be the processor at hand.
_CHOSEN_PROCESSOR = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")

# As the kernel of Linux calls them: pni is SSE3, and abm has LZCNT.
_V2 = frozenset(("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"))
_V3 = _V2 | frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"))
_V4 = _V3 | frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
LEVELS = {"x86-64-v4": _V4, "x86-64-v3": _V3}
"""The levels that ready-made code is compiled for, the best first, and the instructions of each."""


@cache
def level_to_use() -> str | None:
    """The best level that the processor has; None if it has none, or if the user chose what to compile for."""
    if chosen_processor():
        return None
    instructions = set((_description().get("flags") or "").split())
    return next((level for level, needed in LEVELS.items() if needed <= instructions), None)


@cache
def kind_of_processor() -> str:
    """What tells kinds of processors apart: the name, and which instructions there are."""
    described = _description()
    if not described:
        return platform.processor()
    return repr([described.get(name) for name in ("vendor_id", "cpu family", "model", "flags")])


def chosen_processor() -> list[str]:
    """What the user has numba compile for instead."""
    return [f"{name}={os.environ[name]}" for name in _CHOSEN_PROCESSOR if name in os.environ]


@cache
def _description() -> dict[str, str]:
    try:
        first = _PROCESSOR.read_text().partition("\n\n")[0]
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in fields.items()}
