"""Peak memory of this process from Linux's /proc: the high-water mark is reset just before the call of interest."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFERENCES = Path("/proc/self/clear_refs")
_RESET_HIGH_WATER_MARK = "5"


class PeakMemory:
    """Resident memory now, and the highest it has been since this object was made."""

    def __init__(self) -> None:
        # Freed pages that still count as resident would hide the growth of the measured call.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _CLEAR_REFERENCES.write_text(_RESET_HIGH_WATER_MARK)
        self.start_bytes = _status_bytes("VmRSS")

    def peak_bytes(self) -> int:
        return _status_bytes("VmHWM")


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {field}: peak memory can only be measured on Linux")
