"""What training asks of the other processes that hold rows of the same table.

All of it is exact: sums of integers, maxima, and whole arrays. A process alone gets back what it puts in. Every call
waits for the other processes, and every process makes the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Exchange(Protocol):
    """The rows of all processes together, seen from one of them."""

    @property
    def alone(self) -> bool:
        """Whether this process holds all rows."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides for all: exactly one is."""

    def reduce_sum(self, values: IntArray) -> IntArray:
        """The sums over all processes, element by element."""

    def reduce_max(self, values: FloatArray) -> FloatArray:
        """The largest over all processes, element by element."""

    def gather(self, values: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]] | None:
        """The arrays of all processes, which may differ in the length of their last axis; None unless this leads."""

    def broadcast(self, values: FloatArray) -> FloatArray:
        """The values of the process that leads."""

    def broadcast_text(self, text: str | None) -> str | None:
        """The text of the process that leads, which may have none."""


class LocalExchange:
    """A process that holds all rows."""

    alone = True
    leads = True

    def reduce_sum(self, values: IntArray) -> IntArray:
        return values

    def reduce_max(self, values: FloatArray) -> FloatArray:
        return values

    def gather(self, values: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        return [values]

    def broadcast(self, values: FloatArray) -> FloatArray:
        return values

    def broadcast_text(self, text: str | None) -> str | None:
        return text


ALONE = LocalExchange()
