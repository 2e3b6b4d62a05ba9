"""Targets that an objective cannot train on are refused with the number of the first bad row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gbdt.objectives.protocol import FloatArray, IntArray


def require_target(objective: str, target: FloatArray, valid: npt.NDArray[np.bool_], expected: str) -> None:
    """Raise a ValueError for the first row whose target is not valid."""
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(
            f"The target of row {row} is {float(target[row])}, but objective {objective!r} needs {expected}."
        )


def require_real(objective: str, target: FloatArray) -> None:
    """Refuse NaN, infinities and numbers whose gradients, which are float32, would be infinite."""
    largest = float(np.finfo(np.float32).max)
    require_target(objective, target, np.abs(target) <= largest, "finite numbers of at most 3.4e38")


def class_numbers(objective: str, target: FloatArray, n_classes: int, kind: str) -> IntArray:
    """The targets as the integers 0..n_classes-1, which they must be."""
    valid = (target >= 0) & (target < n_classes) & (target == np.floor(target))
    require_target(objective, target, valid, f"{kind} that are whole numbers from 0 to {n_classes - 1}")
    return target.astype(np.int64)
