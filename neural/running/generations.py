"""Training that survives lost ranks: generation after generation, each from the last commit of the one before.

A place to run ranks offers one function, `run(n_ranks, start)`, which trains one generation, hands every commit to
`on_commit` and raises RanksLostError when ranks are gone. How ranks are started is its own business: threads,
processes, Dask tasks or Spark barrier tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from dmlgbm.gbdt.ranks.losses import RanksLostError, TrainingLostError
from dmlgbm.neural.commits import Commit
from dmlgbm.neural.strategies import make_strategy
from dmlgbm.neural.training import Job, Trained

logger = logging.getLogger("dmlgbm")


@dataclass
class Survivor:
    """The last commit and the losses so far, which belong to the client and not to any rank."""

    job: Job
    max_restarts: int
    commit: Commit | None = None
    losses: list[str] = field(default_factory=list)

    def keep(self, commit: Commit) -> None:
        """A newer commit."""
        if self.commit is None or commit.epoch > self.commit.epoch:
            self.commit = commit

    def run(self, n_ranks: int, generation: Callable[[int, Commit | None], Trained]) -> Trained:
        """The result of the first generation that comes to the end."""
        while True:
            try:
                return generation(n_ranks, self.commit)
            except RanksLostError as error:
                n_ranks = self._note(error)

    def _note(self, error: RanksLostError) -> int:
        """How many ranks can go on; raises where none may."""
        n_left = error.n_left or 0
        n_done = 0 if self.commit is None else self.commit.epoch
        self.losses.append(f"after {n_done} epochs: {error}")
        logger.warning("Ranks were lost %s", self.losses[-1])
        told = "\n".join(f"  {number + 1}. {loss}" for number, loss in enumerate(self.losses))
        if n_left < 1:
            raise TrainingLostError(f"All ranks were lost:\n{told}") from error
        if not make_strategy(self.job.strategy, self.job.strategy_options).elastic:
            raise TrainingLostError(f"strategy={self.job.strategy!r} cannot go on with fewer ranks:\n{told}") from error
        if len(self.losses) > self.max_restarts:
            raise TrainingLostError(
                f"Ranks were lost {len(self.losses)} times, but max_restarts={self.max_restarts}:\n{told}"
            ) from error
        return n_left


@dataclass
class CommitKeeper:
    """Takes the commits of rank 0 as they come."""

    survivor: Survivor
    stop_reason: str | None = field(default=None, init=False)

    def add(self, report: Commit | None) -> None:
        """A report; one that was fetched before is empty by now."""
        if report is not None:
            self.survivor.keep(report)
