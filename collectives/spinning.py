"""How long a rank looks for a message again and again before it goes to sleep.

Looking pays while the peer that is awaited runs at the same time: it answers within microseconds, and a thread that
does not sleep need not be given a core again. Where ranks share cores it keeps the peer from running, so nobody spins.
"""

from __future__ import annotations

import os

# About one exchange of 64 KB; sleeping and waking up costs as much.
SPIN_MICROSECONDS = 50
# Whoever spins for longer keeps `abort` from being noticed, and a core from everybody else.
LONGEST_SPIN_MICROSECONDS = 10_000


def usable_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spin_for(ranks_of_this_host: int) -> int:
    """Microseconds for a rank of a world with so many ranks on its host; 0 says that it sleeps at once."""
    return SPIN_MICROSECONDS if 1 < ranks_of_this_host <= usable_cores() else 0
