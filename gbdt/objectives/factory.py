"""From the name of an objective, or a user's function, to the objective itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbdt.exchange import ALONE, Exchange
from gbdt.objectives.custom import Custom, ObjectiveFunction
from gbdt.objectives.multiclass import Multiclass
from gbdt.objectives.pointwise import AbsoluteError, Binary, Poisson, Quantile, SquaredError
from gbdt.objectives.protocol import FloatArray, IntArray, Objective
from gbdt.objectives.ranking import LambdaRank
from gbdt.parameters import ParameterError

OBJECTIVE_NAMES = ("binary", "multiclass", "regression", "regression_l1", "quantile", "poisson", "lambdarank")


@dataclass(frozen=True)
class ObjectiveSettings:
    """Which objective, and what it needs to know besides the data."""

    name_or_callable: str | ObjectiveFunction
    n_classes: int = 1
    alpha: float = 0.9
    truncation_level: int = 30

    @property
    def name(self) -> str:
        """The objective's name, "custom" for a function."""
        return "custom" if callable(self.name_or_callable) else self.name_or_callable


def objective_for(
    name_or_callable: str | ObjectiveFunction,
    *,
    target: FloatArray,
    weight: FloatArray | None,
    group_starts: IntArray | None,
    n_classes: int,
    alpha: float,
    truncation_level: int,
    exchange: Exchange = ALONE,
) -> Objective:
    """The objective over these rows, and those that other processes hold.

    `n_classes` matters to "multiclass" and functions, `alpha` to "quantile", `truncation_level` to "lambdarank", and
    `group_starts`, the first row of each query and then the number of rows, to "lambdarank" and functions.
    """
    target = np.ascontiguousarray(target, np.float64)
    weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
    if callable(name_or_callable):
        return Custom(name_or_callable, target, weight, group_starts, n_classes)
    match name_or_callable:
        case "binary":
            return Binary(target, weight, exchange)
        case "multiclass":
            return Multiclass(target, weight, exchange, n_classes)
        case "regression":
            return SquaredError(target, weight, exchange)
        case "regression_l1":
            return AbsoluteError(target, weight, exchange)
        case "quantile":
            return Quantile(target, weight, exchange, alpha)
        case "poisson":
            return Poisson(target, weight, exchange)
        case "lambdarank":
            return LambdaRank(target, weight, group_starts, truncation_level)
    raise ParameterError(
        f"objective={name_or_callable!r} is not one of {', '.join(map(repr, OBJECTIVE_NAMES))} or a function."
    )
