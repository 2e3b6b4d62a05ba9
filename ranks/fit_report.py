"""How much a fit took: rounds, bytes and waiting, of every tree and in all."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class FitReport:
    """What one rank counted while it trained. Lists have an entry for each tree of this run."""

    tree_learner: str
    rank: int
    n_ranks: int
    rounds_per_tree: list[int]
    bytes_per_tree: list[int]  # sent by this rank
    wait_per_tree: list[float]  # seconds in calls to other ranks
    splits_in_vain: int
    bytes_sent: int  # in all, those outside trees included
    wait_seconds: float
    calls: int

    @property
    def n_trees(self) -> int:
        return len(self.rounds_per_tree)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return asdict(self)

    def __str__(self) -> str:
        trees = max(self.n_trees, 1)
        return (
            f"{self.tree_learner}: rank {self.rank} of {self.n_ranks}, {self.n_trees} trees; "
            f"{sum(self.rounds_per_tree) / trees:.1f} rounds and {sum(self.bytes_per_tree) / trees:,.0f} bytes a tree; "
            f"{self.wait_seconds:.2f} s in {self.calls} calls; {self.splits_in_vain} splits in vain"
        )
