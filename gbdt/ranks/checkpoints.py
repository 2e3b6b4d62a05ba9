"""Checkpoints in a folder, so that a new client can go on where a lost one ended.

A file is named after a fingerprint of everything that decides the model: parameters, bins, rows and their targets.
Another fit never takes it for its own, and a cluster with other workers or partitions does.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.ranks.rank import Checkpoint
from dmlgbm.gbdt.system.atomic_file import write_atomically

# A file is written at most this often, and after the last iteration never: it is removed then.
_SECONDS_BETWEEN = 1.0

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class CheckpointFile:
    """The file of one run."""

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.path = Path(folder) / f"dmlgbm-{fingerprint}.checkpoint"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._written_at = -float("inf")

    def read(self) -> Checkpoint | None:
        """What an earlier run with this fingerprint left."""
        return Checkpoint.from_bytes(self.path.read_bytes()) if self.path.exists() else None

    def write(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint, unless the last one is recent."""
        if time.monotonic() - self._written_at >= _SECONDS_BETWEEN:
            write_atomically(self.path, checkpoint.to_bytes())
            self._written_at = time.monotonic()

    def remove(self) -> None:
        """The run is complete."""
        self.path.unlink(missing_ok=True)


def fingerprint_of(parts: Iterable[Any]) -> str:
    """A digest of plain values and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        data = (
            part.tobytes() if isinstance(part, np.ndarray) else part if isinstance(part, bytes) else repr(part).encode()
        )
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


@np.errstate(over="ignore")
def rows_digest(first_row: int, columns: Iterable[npt.NDArray[Any] | None]) -> int:
    """A sum over rows, so that it is the same however rows are divided; columns have rows as their last axis."""
    total = np.uint64(0)
    for position, values in enumerate(columns):
        if values is None or not values.size:
            continue
        bits = np.ascontiguousarray(values, np.float64).view(np.uint64).reshape(-1, values.shape[-1])
        numbers = np.arange(first_row, first_row + bits.shape[1], dtype=np.uint64)
        for output, of_output in enumerate(bits):
            key = np.uint64(position * 1_000_003 + output + 1) * _FACTORS[1]
            z = (of_output ^ key) + numbers * _INCREMENT
            z = (z ^ (z >> np.uint64(30))) * _FACTORS[0]
            z = (z ^ (z >> np.uint64(27))) * _FACTORS[1]
            total += (z ^ (z >> np.uint64(31))).sum(dtype=np.uint64)
    return int(total)
