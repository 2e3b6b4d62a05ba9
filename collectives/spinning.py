"""How long a rank looks for a message again and again before it goes to sleep.

Looking pays while the peer that is awaited runs at the same time: it answers within microseconds, and a thread that
does not sleep need not be given a core again. Where ranks share cores it keeps the peer from running, so nobody spins;
nor while other programs want the cores (`kernels.shortage`).
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.kernels import shortage, system_calls
from dmlgbm.gbdt.system.cores import usable_cores

# Ranks that work on equal parts meet within some hundred microseconds of each other, and a core that has gone to sleep
# takes long to come back. (Measured: a fit of 50 trees by two Dask workers on two cores takes 2.8 s with 50 us, 2.65 s
# with 300, 2.35 s with 1,000 and 2.45 s with 5,000.)
SPIN_MICROSECONDS = 1_000
# Whoever spins for longer keeps `abort` from being noticed, and a core from everybody else.
LONGEST_SPIN_MICROSECONDS = 10_000
LOAD_FILE = "/proc/loadavg"


def spin_for(ranks_of_this_host: int) -> int:
    """Microseconds for a rank of a world with so many ranks on its host; 0 says that it sleeps at once."""
    return SPIN_MICROSECONDS if 1 < ranks_of_this_host <= usable_cores() else 0


def scratch_of_rank(spin_microseconds: int) -> npt.NDArray[np.int64]:
    """What the kernels of a rank need for system calls and, where it spins, to sense that cores are short.

    `close_scratch` ends it.
    """
    return system_calls.new_scratch(_open_load() if spin_microseconds else -1, usable_cores())


def close_scratch(scratch: npt.NDArray[np.int64]) -> None:
    """Close what the scratch of a rank holds open."""
    descriptor = int(scratch[system_calls.DESCRIPTOR])
    scratch[system_calls.DESCRIPTOR] = -1
    if descriptor >= 0:
        os.close(descriptor)


def _open_load() -> int:
    """Where kernels read how many threads want to run; -1 where they cannot tell."""
    if not shortage.AVAILABLE or usable_cores() < (os.cpu_count() or 1):
        return -1  # the system counts threads of all cores, also of those that are not ours
    try:
        return os.open(LOAD_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
