"""Whether more threads want to run than there are cores: a rank that spins then keeps a core from one that works.

The system counts the threads that run or wait for a core (the fourth field of /proc/loadavg). A rank looks at it before
it spins, at most once a millisecond, and believes it when most of the last looks agree. What it needs for that lies
behind the structures of its system calls, in the same array.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np

from dmlgbm.collectives.kernels.compiler import inlined, kernel, pointer_to, system_call
from dmlgbm.collectives.kernels.system_calls import CORES, DESCRIPTOR, NEXT_LOOK, SHORTAGE, TEXT, TEXT_BYTES

_READ_AT_NUMBERS = {"x86_64": 17, "aarch64": 67}
AVAILABLE = sys.platform == "linux" and platform.machine() in _READ_AT_NUMBERS

_READ_AT = _READ_AT_NUMBERS.get(platform.machine(), 0)
_LOAD_LOOK_NANOSECONDS = 1_000_000
# An eighth of the way to what was seen now, and believed at three quarters: eleven looks in a row, or most of many,
# because event loops and timers wake up for a moment all the time.
_CERTAIN, _PART, _BELIEVED = 256, 8, 192
_BLANK, _ZERO, _NINE = 32, 48, 57


@inlined
def _byte(scratch: Any, position: Any) -> Any:
    word = np.uint64(scratch[TEXT + position // 8])
    return np.int64((word >> np.uint64(8 * (position % 8))) & np.uint64(255))


@kernel
def count_runnable(scratch: Any) -> int:
    """The threads of this system that run or could run now; -1 where that is not known."""
    address = scratch.ctypes.data + 8 * TEXT
    size = system_call(_READ_AT, pointer_to(scratch[DESCRIPTOR]), address, TEXT_BYTES, pointer_to(0))
    position, blanks = 0, 0
    while position < size and blanks < 3:
        if _byte(scratch, position) == _BLANK:
            blanks += 1
        position += 1
    count = -1
    while position < size and _ZERO <= _byte(scratch, position) <= _NINE:
        count = 10 * max(count, 0) + _byte(scratch, position) - _ZERO
        position += 1
    return count


@kernel
def cores_are_short(scratch: Any, now: Any) -> bool:
    """Whether a thread that spins at this moment (monotonic nanoseconds) is likely to take a core from another."""
    if scratch[DESCRIPTOR] < 0:
        return False
    if now >= scratch[NEXT_LOOK]:
        scratch[NEXT_LOOK] = now + _LOAD_LOOK_NANOSECONDS
        seen = _CERTAIN if count_runnable(scratch) > scratch[CORES] else 0
        scratch[SHORTAGE] += (seen - scratch[SHORTAGE]) // _PART
    return scratch[SHORTAGE] > _BELIEVED
