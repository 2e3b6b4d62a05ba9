"""Whether a history of adds and reads of one counter could have happened in some order that respects real time.

Every add adds one to an element of its own, so a read tells exactly which adds it saw and how often each was applied.
Such a history is linearizable if and only if the sets that reads saw form a chain that agrees with real time in the
four ways checked below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import numpy as np
import numpy.typing as npt


@dataclass
class Add:
    """An add of element `number`; `end` is infinite while nobody has acknowledged it."""

    number: int
    start: float
    end: float = inf


@dataclass
class Seen:
    """A read and what it returned."""

    start: float
    end: float
    counts: npt.NDArray[np.int64]

    @property
    def adds(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.counts).tolist())


@dataclass
class History:
    adds: list[Add] = field(default_factory=list)
    reads: list[Seen] = field(default_factory=list)

    def check(self) -> None:
        """Fail with the two operations that contradict each other."""
        for read in self.reads:
            self._check_against_adds(read)
        ordered = sorted(self.reads, key=lambda read: len(read.adds))
        for fewer, more in pairwise(ordered):
            assert fewer.adds <= more.adds, f"two reads saw different adds: {fewer} and {more}"
        for first in self.reads:
            for second in self.reads:
                assert first.end >= second.start or first.adds <= second.adds, f"{second} forgot what {first} saw"

    def _check_against_adds(self, read: Seen) -> None:
        assert read.counts.max(initial=0) <= 1, f"an add was applied twice: {read}"
        seen = read.adds
        for add in self.adds:
            if add.end < read.start:
                assert add.number in seen, f"{read} misses the acknowledged {add}"
            if add.start > read.end:
                assert add.number not in seen, f"{read} saw {add} before it began"
            if add.number in seen:
                for earlier in self.adds:
                    assert earlier.end >= add.start or earlier.number in seen, f"{read} saw {add} but not {earlier}"
