"""What the weights of rows mean: nothing where all are one, repeated rows where they are whole numbers.

Both are decided over the rows of all processes. A row of weight 3 then adds exactly what three equal rows would add:
its derivatives are rounded to integers first and multiplied by the weight afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import ALONE, Exchange

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Larger weights would leave too few bits for the sums of a block of rows.
MOST_REPEATS = 1 << 20

# Kernels take an array in any case, so that each is compiled once: an empty one stands for "no weights".
NO_WEIGHT: FloatArray = np.empty(0)


@dataclass(frozen=True)
class Repeats:
    """Weights that are whole numbers: how often each row counts."""

    counts: IntArray  # of the rows here
    most: int  # of any row of all processes
    total: int  # of all processes


@dataclass(frozen=True)
class RowWeights:
    """The weights of the rows here."""

    given: FloatArray | None = None  # None where every row weighs one
    repeats: Repeats | None = None  # where derivatives are not multiplied by the weights before they are rounded
    factor: FloatArray | None = None  # of the derivatives besides, where a row's class says how much it counts

    @property
    def in_derivatives(self) -> FloatArray:
        """What an objective multiplies its derivatives by."""
        given = None if self.repeats is not None else self.given
        if given is None or self.factor is None:
            return next((one for one in (given, self.factor) if one is not None), NO_WEIGHT)
        return given * self.factor

    @property
    def in_sums(self) -> FloatArray | None:
        """What the derivatives of a row count in sums over rows; None where all count once."""
        if self.factor is None:
            return self.given
        return self.factor if self.given is None else self.given * self.factor

    @property
    def of_percentiles(self) -> FloatArray | IntArray | None:
        """Integers stand for repeated values."""
        return self.given if self.repeats is None else self.repeats.counts


def settled_weights(
    weight: FloatArray | None, exchange: Exchange = ALONE, *, most_repeated_rows: float = 0
) -> RowWeights:
    """Decide what the weights mean; whole numbers of up to that sum stand for repeated rows."""
    if weight is None:
        return RowWeights()
    own = np.array([(weight != 1.0).any(), (weight != np.floor(weight)).any(), weight.max(initial=0.0)], np.float64)
    differ, fractions, most = exchange.reduce_max(own).tolist()
    if not differ:
        return RowWeights()
    if not most_repeated_rows or fractions or most > MOST_REPEATS:
        return RowWeights(weight)
    counts = weight.astype(np.int64)
    total = int(exchange.reduce_sum(np.array([counts.sum()], np.int64))[0])
    if total > most_repeated_rows:
        return RowWeights(weight)
    return RowWeights(weight, Repeats(counts, int(most), total))
