"""What a server has counted since it started: requests, bytes, waits and staleness."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Statistics:
    """Counts of one server. `pull_staleness` is the reader's clock minus the clock all workers had reached."""

    updates: int = 0
    duplicate_updates: int = 0
    late_pushes: int = 0
    reads: int = 0
    waiting_reads: int = 0
    wait_seconds: float = 0.0
    longest_wait_seconds: float = 0.0
    timeouts: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    refused_connections: int = 0
    oversized_messages: int = 0
    pull_staleness: Counter[int] = field(default_factory=Counter)
    # The clock of a pusher minus the clock all workers had reached.
    push_staleness: Counter[int] = field(default_factory=Counter)

    def waited(self, seconds: float) -> None:
        self.waiting_reads += 1
        self.wait_seconds += seconds
        self.longest_wait_seconds = max(self.longest_wait_seconds, seconds)

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them; histograms as sorted [staleness, count] pairs."""
        counts = asdict(self)
        for name in ("pull_staleness", "push_staleness"):
            counts[name] = sorted(getattr(self, name).items())
        return counts
