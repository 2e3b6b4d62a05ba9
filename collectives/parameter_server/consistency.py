"""How far workers may drift apart: one number of clocks, and how many of them nobody waits for.

A worker's clock counts the steps it has finished. A read at clock c waits until all workers but `backup_workers` have
reached c - staleness. Nothing else distinguishes the modes, except that with staleness 0 pushes are collected and
applied together when their step is over, so that every worker reads the same values whatever the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Consistency:
    """Made by `bsp`, `ssp` and `asp`."""

    staleness: int
    backup_workers: int = 0

    def __post_init__(self) -> None:
        if self.staleness < 0:
            raise ValueError(f"staleness must be at least 0, got {self.staleness}")
        if self.backup_workers < 0:
            raise ValueError(f"backup_workers must be at least 0, got {self.backup_workers}")
        if self.backup_workers and self.staleness:
            raise ValueError("backup_workers needs staleness 0: only then are pushes collected step by step")

    @property
    def collects(self) -> bool:
        """Whether the pushes of a step are applied together when it is over."""
        return self.staleness == 0


def bsp(backup_workers: int = 0) -> Consistency:
    """Bulk synchronous: a step begins when the previous one is over for all workers but `backup_workers`."""
    return Consistency(0, backup_workers)


def ssp(staleness: int) -> Consistency:
    """Stale synchronous: nobody reads values that miss more than the last `staleness` steps of anybody.

    `ssp(0)` waits like `bsp()` and is the same thing.
    """
    return Consistency(staleness)


def asp() -> Consistency:
    """Asynchronous: nobody waits."""
    return Consistency(UNBOUNDED)
