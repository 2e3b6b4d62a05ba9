"""Metrics made of integers that add up, over parts of the rows and over processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SummedMetric(ABC):
    """A metric made of integers that add up over rows or queries, so that parts of the data are evaluated apart."""

    @property
    def summed(self) -> Hashable:
        """What is added up: metrics of which this is equal share their sums."""
        return self

    @abstractmethod
    def no_sums(self, n_outputs: int) -> IntArray:
        """The integers of no rows at all, for models of so many scores a row: zeros."""

    @abstractmethod
    def add(
        self,
        sums: IntArray,
        target: FloatArray,
        prediction: FloatArray,
        weight: FloatArray | None,
        group_starts: IntArray | None,
    ) -> None:
        """Add these rows."""

    @abstractmethod
    def value(self, sums: IntArray) -> float:
        """The metric of the rows that were added; NaN if a prediction was not finite or nothing had any weight."""

    def __call__(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        sums = self.no_sums(len(prediction) if prediction.ndim == 2 else 1)
        self.add(sums, target, prediction, weight, group_starts)
        return self.value(sums)
