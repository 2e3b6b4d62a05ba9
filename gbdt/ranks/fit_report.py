"""How much a fit took and how it went: rounds, bytes and waiting of every tree, what was measured, who was lost.

A rank counts for itself (`RankReport`). Rank 0 sends its counts along with every iteration, so the report of the whole
fit (`FitReport`) has them for iterations of generations that were lost, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

History = dict[str, dict[str, list[float]]]
"""Values of each iteration by evaluation set and metric."""


class TreeCounts(NamedTuple):
    """What one tree took a rank."""

    rounds: int
    bytes_sent: int
    wait_seconds: float


@dataclass(frozen=True)
class RankReport:
    """What one rank counted while it trained. Lists have an entry for each tree of this generation."""

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


@dataclass(frozen=True)
class FitReport:
    """A whole fit, over all restarts. Lists `..._per_tree` have an entry for each tree that this call of `fit` trained.

    Every rank sends as much as every other for a tree. What is listed by rank is that of the last generation.
    """

    tree_learner: str
    n_ranks: int  # of the last generation
    seconds: float  # of training, after the rows were binned
    rounds_per_tree: list[int] = field(default_factory=list)
    bytes_per_tree: list[int] = field(default_factory=list)  # sent by each rank
    wait_per_tree: list[float] = field(default_factory=list)  # seconds that rank 0 was in calls
    bytes_by_rank: list[int] = field(default_factory=list)  # in all, those outside trees included
    wait_by_rank: list[float] = field(default_factory=list)
    calls: int = 0  # of rank 0 in the last generation
    splits_in_vain: int = 0  # in the last generation
    evaluations: History = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)  # each time that ranks were lost: when, who and why
    n_partitions: int = 0  # of the training rows, on Dask
    partitions_computed: int = 0  # each as often as it was: twice if they do not fit into memory, and after losses

    @property
    def n_trees(self) -> int:
        return len(self.rounds_per_tree)

    @property
    def n_restarts(self) -> int:
        return len(self.losses)

    @property
    def bytes_sent(self) -> int:
        """By all ranks of the last generation together."""
        return sum(self.bytes_by_rank)

    @property
    def wait_seconds(self) -> float:
        """Of the rank that waited longest."""
        return max(self.wait_by_rank, default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        trees = max(self.n_trees, 1)
        lines = [
            f"{self.tree_learner} over {self.n_ranks} ranks: {self.n_trees} trees in {self.seconds:.2f} s",
            f"rounds a tree: {sum(self.rounds_per_tree) / trees:.1f}; splits in vain: {self.splits_in_vain}",
            f"bytes sent a tree by each rank: {sum(self.bytes_per_tree) / trees:,.0f}; by all: {self.bytes_sent:,}",
            f"seconds in calls a tree: {sum(self.wait_per_tree) / trees:.4f}; in all: up to {self.wait_seconds:.2f}",
        ]
        if self.n_partitions:
            lines.append(f"partitions: {self.n_partitions}, computed {self.partitions_computed} times in all")
        for set_name, metrics in self.evaluations.items():
            lines += [
                f"{set_name} {metric}: {values[0]:.6g} after the first iteration, {values[-1]:.6g} after the last"
                for metric, values in metrics.items()
                if values
            ]
        lines += [f"loss {number}: {told}" for number, told in enumerate(self.losses, start=1)]
        return "\n".join(lines)


def fit_report(
    tree_learner: str,
    seconds: float,
    trees: Sequence[TreeCounts],
    ranks: Sequence[RankReport],
    evaluations: History,
    losses: Sequence[str],
    n_ranks: int,
) -> FitReport:
    """Put together what the client saw of the trees and what the ranks of the last generation counted, if any ended."""
    return FitReport(
        tree_learner=tree_learner,
        n_ranks=n_ranks,
        seconds=seconds,
        rounds_per_tree=[tree.rounds for tree in trees],
        bytes_per_tree=[tree.bytes_sent for tree in trees],
        wait_per_tree=[tree.wait_seconds for tree in trees],
        bytes_by_rank=[rank.bytes_sent for rank in ranks],
        wait_by_rank=[rank.wait_seconds for rank in ranks],
        calls=ranks[0].calls if ranks else 0,
        splits_in_vain=ranks[0].splits_in_vain if ranks else 0,
        evaluations=evaluations,
        losses=list(losses),
    )
