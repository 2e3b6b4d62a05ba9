"""What a model predicts: classes behind codes, or values behind a scale; encodes targets and decodes outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.losses import codes_of
from dmlgbm.neural.model import FloatArray, IntArray


class Targets(Protocol):
    """`n_outputs` is the width of the model's last layer."""

    @property
    def n_outputs(self) -> int: ...

    def encoded(self, y: Any, dtype: npt.DTypeLike) -> FloatArray | IntArray:
        """Targets as losses take them."""

    def decoded(self, outputs: FloatArray) -> npt.NDArray[Any]:
        """Predictions from raw outputs."""


@dataclass(frozen=True)
class ClassTargets:
    """Classes in order; codes are their positions."""

    classes: npt.NDArray[Any]

    @property
    def n_outputs(self) -> int:
        return 1 if len(self.classes) <= 2 else len(self.classes)

    def encoded(self, y: Any, dtype: npt.DTypeLike) -> IntArray:
        return np.searchsorted(self.classes, np.asarray(y)).astype(np.int64)

    def decoded(self, outputs: FloatArray) -> npt.NDArray[Any]:
        if len(self.classes) == 1:
            return np.repeat(self.classes, len(outputs))
        return self.classes[codes_of(outputs)]


@dataclass(frozen=True)
class ValueTargets:
    """Values, shifted and scaled so that what the model learns has mean 0 and deviation 1 for each output."""

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    one_dimensional: bool

    @classmethod
    def from_sums(cls, sums: npt.NDArray[np.float64], one_dimensional: bool) -> ValueTargets:
        """From `target_sums`, of one table or added up over many."""
        count, total, squares = sums
        mean = total / count
        variance = np.maximum(squares / count - mean * mean, 0.0)
        # Below the rounding of the sums the column is constant.
        constant = variance <= 1e-14 * (mean * mean)
        return cls(mean, np.where(constant, 1.0, np.sqrt(variance)), one_dimensional)

    @property
    def n_outputs(self) -> int:
        return len(self.mean)

    def encoded(self, y: Any, dtype: npt.DTypeLike) -> FloatArray:
        values = np.asarray(y, np.float64)
        return ((values.reshape(len(values), self.n_outputs) - self.mean) / self.deviation).astype(dtype)

    def decoded(self, outputs: FloatArray) -> npt.NDArray[np.float64]:
        values = outputs.astype(np.float64) * self.deviation + self.mean
        return values[:, 0] if self.one_dimensional else values


def target_sums(y: npt.NDArray[Any], weights: FloatArray | None = None) -> npt.NDArray[np.float64]:
    """Count, sum and sum of squares of each output, by weight: they add up over parts of a table."""
    values = np.asarray(y, np.float64).reshape(len(y), -1)
    weight = np.ones((len(values), 1)) if weights is None else np.asarray(weights, np.float64)[:, None]
    count = np.full(values.shape[1], weight.sum())
    return np.stack([count, (weight * values).sum(axis=0), (weight * np.square(values)).sum(axis=0)])
