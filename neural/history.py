"""What a run has to tell, epoch by epoch: of one rank while it trains, and of all ranks together at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlgbm.neural.batches import Batch

# Columns of an epoch's record; the first ones are summed up over an epoch by the rank itself.
COLUMNS = ("loss", "steps", "bytes_sent", "wait_seconds", "seconds", "staleness_mean", "staleness_max")


@dataclass
class RankHistory:
    """Adds up what one rank does in an epoch. `close_epoch` makes a record of it and begins the next."""

    epochs: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._loss = 0.0
        self._rows = 0
        self._steps = 0
        self._bytes = 0
        self._waited = 0.0
        self._staleness: list[float] = []
        self._began = time.perf_counter()

    def begin_epoch(self) -> None:
        """Set the clock."""
        self._clear()

    def add_loss(self, share: float, batch: Batch) -> None:
        """This rank's share of the mean loss of one batch."""
        self._loss += share * batch.n_rows
        self._rows += batch.n_rows
        self._steps += 1

    def add_bytes(self, count: int) -> None:
        """Bytes this rank sent on connections that are not those of `context.communicator`."""
        self._bytes += count

    def add_staleness(self, steps: float) -> None:
        """By how many steps the parameters a gradient was computed with were behind."""
        self._staleness.append(steps)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time inside counts as waiting for other ranks."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._waited += time.perf_counter() - began

    def close_epoch(self, bytes_sent: int) -> dict[str, float]:
        """The record of the epoch; `bytes_sent` by the communicator come on top of those that were added."""
        record = {
            "loss": self._loss / max(1, self._rows),
            "steps": float(self._steps),
            "bytes_sent": float(self._bytes + bytes_sent),
            "wait_seconds": self._waited,
            "seconds": time.perf_counter() - self._began,
            "staleness_mean": float(np.mean(self._staleness)) if self._staleness else 0.0,
            "staleness_max": float(max(self._staleness, default=0.0)),
        }
        self.epochs.append(record)
        return record


class TrainingHistory:
    """The epochs of a fit: `history["loss"]` for the group, `history.of_rank(0)["loss"]` for one rank.

    Columns: loss, score (where rows were held out), steps, bytes_sent, wait_seconds, seconds, staleness_mean,
    staleness_max. Of the group, losses and bytes are sums over ranks, waiting and mean staleness are means, the others
    are maxima. Ranks may be fewer in later epochs than in earlier ones; `losses` tells when they were lost.
    """

    def __init__(self, epochs: Sequence[dict[str, Any]], losses: Sequence[str] = ()) -> None:
        self.epochs = list(epochs)
        self.losses = list(losses)

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, column: str) -> list[float]:
        return [epoch[column] for epoch in self.epochs]

    def __contains__(self, column: str) -> bool:
        return bool(self.epochs) and column in self.epochs[0]

    @property
    def n_ranks(self) -> int:
        """The largest number of ranks there was."""
        return max((len(epoch["ranks"]) for epoch in self.epochs), default=0)

    def of_rank(self, rank: int) -> dict[str, list[float]]:
        """The columns of one rank, for the epochs in which it took part."""
        records = [epoch["ranks"][rank] for epoch in self.epochs if rank < len(epoch["ranks"])]
        return {name: [record[name] for record in records] for name in COLUMNS}

    def cumulative(self, column: str) -> list[float]:
        """Running totals, such as seconds or bytes so far."""
        return np.cumsum(self[column]).tolist()

    def __repr__(self) -> str:
        last = f", loss {self['loss'][-1]:.4g}" if self.epochs else ""
        return f"TrainingHistory({len(self)} epochs, {self.n_ranks} ranks{last})"
