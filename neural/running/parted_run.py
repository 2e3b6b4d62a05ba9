"""One fit of rows that lie in parts on several machines, whoever starts its ranks: what its generations share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dmlgbm.neural.running.generations import Survivor
from dmlgbm.neural.running.row_parts import PartTable
from dmlgbm.neural.training import Job

ClusterKind = TypeVar("ClusterKind")
Parts = TypeVar("Parts")


@dataclass
class PartedRun(Generic[ClusterKind, Parts]):
    """Subclasses run generations on their kind of cluster."""

    cluster: ClusterKind
    job: Job
    parts: Parts
    table: PartTable
    survivor: Survivor
    max_ranks: int | None
    n_generations: int = field(init=False, default=0)

    def most_ranks(self) -> int:
        """Not more ranks than there are parts with rows, nor than were asked for; at least one."""
        n_useful = sum(1 for length in self.table.lengths if length)
        return max(1, n_useful if self.max_ranks is None else min(n_useful, self.max_ranks))
