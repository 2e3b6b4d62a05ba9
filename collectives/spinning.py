"""How long a rank looks for a message again and again before it goes to sleep.

Looking pays while the peer that is awaited runs at the same time: it answers within microseconds, and a thread that
does not sleep need not be given a core again. Where ranks share cores it keeps the peer from running, so nobody spins.
"""

from __future__ import annotations

from gbdt.cores import usable_cores

# Ranks that work on equal parts meet within some hundred microseconds of each other, and a core that has gone to sleep
# takes long to come back. (Measured: a fit of 50 trees by two Dask workers on two cores takes 2.8 s with 50 us, 2.65 s
# with 300, 2.35 s with 1,000 and 2.45 s with 5,000.)
SPIN_MICROSECONDS = 1_000
# Whoever spins for longer keeps `abort` from being noticed, and a core from everybody else.
LONGEST_SPIN_MICROSECONDS = 10_000


def spin_for(ranks_of_this_host: int) -> int:
    """Microseconds for a rank of a world with so many ranks on its host; 0 says that it sleeps at once."""
    return SPIN_MICROSECONDS if 1 < ranks_of_this_host <= usable_cores() else 0
