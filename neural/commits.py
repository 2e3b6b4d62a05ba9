"""A commit: everything needed to go on from the end of an epoch, on any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neural.model import FloatArray


@dataclass
class Progress:
    """How the epochs have gone so far, for early stopping and the history; equal on all ranks.

    `epochs[k]` has the columns of the history for the group and, under "ranks", for every rank.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_score: float = -np.inf
    best_epoch: int = -1
    best_parameters: FloatArray | None = None
    best_buffers: FloatArray | None = None
    stopped: bool = False


@dataclass
class Commit:
    """The state after `epoch` epochs. Arrays are copies: training goes on without touching them."""

    epoch: int
    step: int
    parameters: FloatArray
    buffers: FloatArray
    optimiser: dict[str, Any]
    strategy: dict[str, Any]
    progress: Progress
