"""How kernels describe what they ask of the system, and the constants of this system that go with it.

Structures are int64 arrays: on 64-bit little-endian systems `struct iovec`, `struct msghdr`, `struct pollfd` and
`struct timespec` are words in a row. Elsewhere the pure Python path is used (`AVAILABLE` is false).
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.kernels.compiler import carray, clock_gettime, errno_location, inlined, pointer_to

AVAILABLE = (
    sys.byteorder == "little"
    and struct.calcsize("P") == 8
    and sys.platform in ("linux", "darwin")
    and hasattr(select, "poll")
)

NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
POLL_IN = getattr(select, "POLLIN", 1)
POLL_OUT = getattr(select, "POLLOUT", 4)
# The other side will send nothing more; only Linux can ask for it.
POLL_HANG_UP = getattr(select, "POLLRDHUP", 0)
WOULD_BLOCK = errno.EAGAIN
INTERRUPTED_CALL = errno.EINTR
MONOTONIC = getattr(time, "CLOCK_MONOTONIC", 1)

# Words of the scratch array: two iovec, one msghdr, one timespec.
IOVEC, MESSAGE, TIME = 0, 4, 12
# Then what `shortage` knows: where it reads, cores, when it looks again, how sure it is, and the text that it read.
DESCRIPTOR, CORES, NEXT_LOOK, SHORTAGE, TEXT = 16, 17, 18, 19, 20
TEXT_BYTES = 64
SCRATCH_WORDS = TEXT + TEXT_BYTES // 8


def new_scratch(load_descriptor: int = -1, n_cores: int = 0) -> npt.NDArray[np.int64]:
    """Room for the structures of one thread's system calls; a load descriptor shows whether cores are short."""
    scratch = np.zeros(SCRATCH_WORDS, np.int64)
    scratch[DESCRIPTOR], scratch[CORES] = load_descriptor, n_cores
    return scratch


@inlined
def error_number() -> int:
    return carray(errno_location(), (1,), np.int32)[0]


@inlined
def monotonic_nanoseconds(scratch: Any) -> int:
    clock_gettime(np.int32(MONOTONIC), pointer_to(scratch.ctypes.data + 8 * TIME))
    return scratch[TIME] * 1_000_000_000 + scratch[TIME + 1]


@inlined
def describe_message(scratch: Any, header: Any, payload: Any, size: Any, done: Any, header_bytes: Any) -> Any:
    """Fill in what is left of a header and its payload after `done` bytes; the address of the description."""
    if done < header_bytes:
        scratch[IOVEC] = header + done
        scratch[IOVEC + 1] = header_bytes - done
        scratch[IOVEC + 2] = payload
        scratch[IOVEC + 3] = size
        scratch[MESSAGE + 3] = 2
    else:
        scratch[IOVEC] = payload + (done - header_bytes)
        scratch[IOVEC + 1] = size - (done - header_bytes)
        scratch[MESSAGE + 3] = 1
    scratch[MESSAGE + 2] = scratch.ctypes.data + 8 * IOVEC
    return pointer_to(scratch.ctypes.data + 8 * MESSAGE)
