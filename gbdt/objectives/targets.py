"""Targets that an objective cannot train on are refused with the number of the first bad row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.objectives.protocol import ClassArray, FloatArray, IntArray


class RowError(ValueError):
    """What is wrong with one row. Who knows the row by another name raises it again with that `place`."""

    def __init__(self, subject: str, row: int, problem: str, place: str | None = None) -> None:
        super().__init__(subject, row, problem, place)
        self.subject = subject
        self.row = row
        self.problem = problem
        self.place = place

    def __str__(self) -> str:
        return f"{self.subject} of {self.place or f'row {self.row}'} {self.problem}"


def require_target(objective: str, target: FloatArray, valid: npt.NDArray[np.bool_], expected: str) -> None:
    """Raise an error for the first row whose target is not valid."""
    if not valid.all():
        row = int(np.argmin(valid))
        raise RowError("The target", row, f"is {float(target[row])}, but objective {objective!r} needs {expected}.")


def require_real(objective: str, target: FloatArray) -> None:
    """Refuse NaN, infinities and numbers whose gradients, which are float32, would be infinite."""
    largest = float(np.finfo(np.float32).max)
    require_target(objective, target, np.abs(target) <= largest, "finite numbers of at most 3.4e38")


def require_events(objective: str, target: FloatArray, exchange: Exchange) -> None:
    """Times of either sign, of which some row's is positive: its event came."""
    require_real(objective, target)
    valid = target != 0.0
    require_target(objective, target, valid, "times above 0, with a minus sign where the event did not come (censored)")
    if not exchange.reduce_max(np.array([(target > 0.0).any()], np.float64))[0]:
        raise ValueError(f"All rows are censored, but objective {objective!r} needs one whose event came.")


def class_numbers(objective: str, target: FloatArray, n_classes: int, kind: str) -> IntArray:
    """The targets as the integers 0..n_classes-1, which they must be."""
    _require_class_numbers(objective, target, n_classes, kind)
    return target.astype(np.int64)


def narrow_class_numbers(objective: str, target: FloatArray, n_classes: int) -> ClassArray:
    """The same in as few bytes as hold them: who keeps them for a whole fit counts bytes a row."""
    _require_class_numbers(objective, target, n_classes, "classes")
    return target.astype(np.min_scalar_type(n_classes - 1))


def _require_class_numbers(objective: str, target: FloatArray, n_classes: int, kind: str) -> None:
    valid = (target >= 0) & (target < n_classes) & (target == np.floor(target))
    require_target(objective, target, valid, f"{kind} that are whole numbers from 0 to {n_classes - 1}")
