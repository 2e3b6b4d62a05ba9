"""Functions that take (predictions, data) in LightGBM, metrics and objectives, as the engine calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray


@dataclass(frozen=True)
class FunctionData:
    """What such a function may ask of the rows."""

    label: FloatArray
    weight: FloatArray | None
    group: IntArray | None

    def get_label(self) -> FloatArray:
        """The label of each row."""
        return self.label

    def get_weight(self) -> FloatArray | None:
        """The weight of each row."""
        return self.weight

    def get_group(self) -> IntArray | None:
        """The number of rows of each query."""
        return self.group

    def num_data(self) -> int:
        """The number of rows."""
        return len(self.label)


def metric_functions(feval: Any) -> list[Callable[..., Any]]:
    """`feval`, a function or a list of them, as functions of (label, prediction, weight, group)."""
    listed = [] if feval is None else [feval] if callable(feval) else feval
    if not isinstance(listed, list | tuple) or not all(map(callable, listed)):
        raise TypeError(f"feval must be a function or a list of functions, got {feval!r:.80}.")
    return [_of_predictions_and_data(function) for function in listed]


def objective_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of (raw scores, data) that returns gradients and hessians; weights are its own affair."""

    def objective(label: Any, scores: Any, weight: Any, group: Any) -> Any:
        return function(scores, FunctionData(label, weight, group))

    return objective


def _of_predictions_and_data(function: Callable[..., Any]) -> Callable[..., Any]:
    def metric(label: Any, prediction: Any, weight: Any, group: Any) -> Any:
        return function(np.ascontiguousarray(prediction), FunctionData(label, weight, group))

    # Messages, and metrics that return a number alone, have the name of the user's function.
    metric.__name__ = getattr(function, "__name__", type(function).__name__)
    return metric
