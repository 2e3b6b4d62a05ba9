"""Learning rates that change from one iteration to the next, as `reset_parameter` gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.parameters import ParameterError, TrainParameters

Rates = Callable[[int], float] | Sequence[float]


def with_rates(parameters: TrainParameters, rates: Rates | None) -> TrainParameters:
    """The parameters with the rate of each iteration that this fit adds; None leaves them all alike."""
    if rates is None:
        return parameters
    n_iterations = parameters.n_estimators
    listed = [rates(iteration) for iteration in range(n_iterations)] if callable(rates) else list(rates)
    if len(listed) != n_iterations:
        raise ParameterError(
            f"learning_rate of reset_parameter lists {len(listed)} rates, but this fit adds {n_iterations} iterations: "
            "give a rate for each, or a function of the iteration."
        )
    return replace(parameters, learning_rates=tuple(_number(rate) for rate in listed))


def _number(rate: Any) -> float:
    if isinstance(rate, bool | np.bool_) or not isinstance(rate, int | float | np.integer | np.floating):
        raise TypeError(f"learning_rate of reset_parameter must give numbers, got {rate!r}.")
    return float(rate)
