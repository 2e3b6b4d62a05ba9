"""Ranks that were lost in the course of a fit, and when that has happened too often."""

from __future__ import annotations

import logging

logger = logging.getLogger("dmlgbm")


class RanksLostError(RuntimeError):
    """Ranks ended that should not have; training can go on with those that are left, `n_left` where that is known."""

    def __init__(self, message: str, n_left: int | None = None) -> None:
        super().__init__(message, n_left)
        self.n_left = n_left

    def __str__(self) -> str:
        return str(self.args[0])


class TrainingLostError(RuntimeError):
    """Ranks were lost and training cannot go on; the message tells each time."""


class Losses:
    """The losses of one fit, in order."""

    def __init__(self, max_restarts: int) -> None:
        self.told: list[str] = []
        self._max_restarts = max_restarts

    def __len__(self) -> int:
        return len(self.told)

    def note(self, n_iterations: int, error: RanksLostError) -> None:
        """Ranks were lost after so many iterations; raises when they may not be started once more."""
        self.told.append(f"after iteration {n_iterations}: {error}")
        logger.warning("Ranks were lost %s", self.told[-1])
        if len(self.told) > self._max_restarts:
            told = "\n".join(f"  {number + 1}. {loss}" for number, loss in enumerate(self.told))
            raise TrainingLostError(
                f"Ranks were lost {len(self.told)} times, but max_restarts={self._max_restarts}:\n{told}"
            ) from error
