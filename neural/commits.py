"""A commit: everything needed to go on from the end of an epoch, on any number of ranks."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.model import FloatArray


@dataclass
class EpochsSoFar:
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
    """The state after `epoch` epochs. Arrays are copies: training goes on without touching them.

    `ranks` has what each rank knows alone, packed; it is empty where all know the same.
    """

    epoch: int
    step: int
    parameters: FloatArray
    buffers: FloatArray
    optimiser: dict[str, Any]
    strategy: dict[str, Any]
    so_far: EpochsSoFar
    ranks: tuple[bytes, ...] = ()

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Plain arrays for `numpy.savez`; no pickle is needed to read them."""
        so_far = {each.name: getattr(self.so_far, each.name) for each in fields(EpochsSoFar)}
        best = {name: so_far.pop(name) for name in ("best_parameters", "best_buffers")}
        plain = json.dumps({"epoch": self.epoch, "step": self.step, "progress": so_far})  # the name in the file
        return {
            "plain": np.frombuffer(plain.encode(), np.uint8),
            "parameters": self.parameters,
            "buffers": self.buffers,
            **{f"optimiser.{name}": np.asarray(value) for name, value in self.optimiser.items()},
            **{f"strategy.{name}": np.asarray(value) for name, value in self.strategy.items()},
            **{f"rank.{rank}": np.frombuffer(packed, np.uint8) for rank, packed in enumerate(self.ranks)},
            **{name: value for name, value in best.items() if value is not None},
        }

    def to_bytes(self) -> bytes:
        """The arrays in one file."""
        return packed_arrays(self.to_arrays())

    @classmethod
    def from_bytes(cls, data: bytes) -> Commit:
        """What `to_bytes` wrote; executes nothing."""
        return cls.from_arrays(unpacked_arrays(data))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Commit:
        """What `to_arrays` wrote."""
        plain = json.loads(arrays["plain"].tobytes())
        best = arrays.get("best_parameters"), arrays.get("best_buffers")

        def group(prefix: str) -> dict[str, Any]:
            return {name[len(prefix) :]: arrays[name] for name in arrays if name.startswith(prefix)}

        return cls(
            plain["epoch"],
            plain["step"],
            arrays["parameters"],
            arrays["buffers"],
            group("optimiser."),
            group("strategy."),
            replace(EpochsSoFar(**plain["progress"]), best_parameters=best[0], best_buffers=best[1]),
            tuple(arrays[f"rank.{rank}"].tobytes() for rank in range(sum(name.startswith("rank.") for name in arrays))),
        )


def packed_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Arrays by name as one piece of bytes."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def unpacked_arrays(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """What `packed_arrays` wrote; executes nothing."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
