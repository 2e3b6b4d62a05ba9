"""What becomes of `sample_weight`: rows without weight are left out, and the others count 1 on average.

A row of weight 2 is then a row that is there twice: to the loss of all rows, to the moments that targets are scaled by
and to scores. Batches are still drawn from rows, each once an epoch.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_array

WeightArray = npt.NDArray[np.float64]


def checked_weights(sample_weight: Any, n_rows: int, where: str = "") -> WeightArray | None:
    """One finite number of at least 0 for each row; None stays None. `where` begins what errors say."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(n_rows, sample_weight, np.float64)
    values: WeightArray = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, ensure_min_samples=0, input_name="sample_weight"
    )
    if values.shape != (n_rows,):
        raise ValueError(f"{where}sample_weight must hold one number for each of {n_rows} rows, got {values.shape}")
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        raise ValueError(f"{where}sample_weight must not be negative, got {values[row]} in row {row}")
    return values


def mean_weight(total: float, n_counted: int) -> float:
    """What weights are divided by: their mean over the rows that have any."""
    if not total > 0:
        raise ValueError("Sample weights must contain at least one non-zero number: sample_weight is 0 in all rows.")
    return total / n_counted
