"""Objectives that a user writes: a function of targets and raw scores that returns gradients and hessians.

The function is called as LightGBM's scikit-learn estimators call it, with (y_true, y_pred), (y_true, y_pred, weight)
or (y_true, y_pred, weight, group), according to the arguments it takes. One difference: where it takes no weight, the
weights are multiplied into what it returns, instead of being forgotten.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.row_weights import NO_WEIGHT, RowWeights
from dmlgbm.gbdt.objectives.protocol import (
    NO_LARGEST_STEP,
    FloatArray,
    IntArray,
    RareClassLimits,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.targets import RowError, require_target
from dmlgbm.gbdt.threads import Workers

ObjectiveFunction = Callable[..., tuple[Any, Any]]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# An argument with a default value may be a setting of the function's own, unless its name says otherwise.
_KNOWN_OPTIONS = ("weight", "sample_weight", "group")


class Custom:
    """The loss behind a user's function; scores start at 0 and are predictions as they stand."""

    name = "custom"
    constant_hessian = False
    leaf_percentile = None
    largest_step = NO_LARGEST_STEP

    def __init__(
        self,
        function: ObjectiveFunction,
        target: FloatArray,
        weight: FloatArray | None,
        weights: RowWeights,
        group_starts: IntArray | None,
        n_outputs: int,
    ) -> None:
        require_target(self.name, target, np.isfinite(target), "finite numbers")
        self.n_outputs = n_outputs
        self._function = function
        n_arguments = count_arguments(function)
        group = None if group_starts is None else np.diff(group_starts)
        self._target = _read_only(target)
        self._further_arguments = (_read_only(weight), group)[: n_arguments - 2]
        self.weights = weights
        self._weight_to_apply = weights.in_derivatives if n_arguments == 2 else NO_WEIGHT

    def rare_class_limits(self) -> RareClassLimits:
        return no_limits(self.n_outputs)

    def base_scores(self) -> FloatArray:
        return np.zeros(self.n_outputs)

    def row_loss(self) -> None:
        return None

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        if score.shape[1] == 0:
            return
        # A copy, because the function may well work in place.
        prediction = score[0].copy() if self.n_outputs == 1 else np.ascontiguousarray(score.T)
        returned = self._function(self._target, prediction, *self._further_arguments)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError("The custom objective must return two arrays, (gradient, hessian).")
        for what, values, destination in zip(("gradient", "hessian"), returned, (gradients, hessians), strict=True):
            self._store(what, np.asarray(values, np.float64), prediction.shape, destination)
        _require_valid("hessian", hessians, hessians >= 0.0, "it must be at least 0")

    def _store(self, what: str, values: FloatArray, shape: tuple[int, ...], destination: SingleArray) -> None:
        if values.shape != shape:
            raise ValueError(
                f"The custom objective's {what} has shape {values.shape}, but it must have that of y_pred, {shape}."
            )
        by_output = np.atleast_2d(values.T)
        if self._weight_to_apply.size > 0:
            by_output = by_output * self._weight_to_apply
        largest = float(np.finfo(np.float32).max)
        _require_valid(what, by_output, np.abs(by_output) <= largest, "it must be finite and at most 3.4e38")
        destination[...] = by_output


def _require_valid(what: str, values: Any, valid: Any, expected: str) -> None:
    """Raise an error for the first row with a value, given as [output, row], that is not valid."""
    if not valid.all():
        row = int(np.argmin(valid.all(axis=0)))
        value = float(values[np.argmin(valid[:, row]), row])
        raise RowError(f"The custom objective's {what}", row, f"is {value}, but {expected}.")


def _read_only(values: FloatArray | None) -> FloatArray | None:
    """A view that a user's function cannot change by accident."""
    if values is None:
        return None
    view = values.view()
    view.flags.writeable = False
    return view


def count_arguments(function: ObjectiveFunction) -> int:
    """How many of (y_true, y_pred, weight, group) the function takes."""
    count = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _POSITIONAL:
            break
        if parameter.default is not inspect.Parameter.empty and parameter.name not in _KNOWN_OPTIONS:
            break
        count += 1
    if not 2 <= count <= 4:
        raise ValueError(
            f"The custom objective takes {count} arguments, but it must take (y_true, y_pred), "
            "(y_true, y_pred, weight) or (y_true, y_pred, weight, group)."
        )
    return count
