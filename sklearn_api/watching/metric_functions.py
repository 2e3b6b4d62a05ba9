"""A user's function as a metric: what it takes and what it returns, learnt from its signature and one call.

It is called with (y, prediction), with the weights and sizes of queries too where it asks for them, and with
`sample_weight=` where it has that argument, as scikit-learn's metrics do. These may need class numbers instead of
probabilities: scikit-learn says so in the first call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray

Result = tuple[str, float, bool]

_WEIGHT_NAMES = ("weight", "weights", "sample_weight", "w")
# Of functions that return one number: scikit-learn's rule for names, and its one exception.
_HIGHER_IS_BETTER = ("_score", "matthews_corrcoef")


def user_metrics(function: Callable[..., Any], n_outputs: int, classifies: bool, example: Rows) -> list[Metric]:
    """The metrics that a function computes; their names are learnt from one call with a constant prediction."""
    n_rows = example.n_rows
    constant = np.full((n_outputs, n_rows), 1.0 / n_outputs) if n_outputs > 1 else np.full(n_rows, 0.5)
    call = _Call.of(function)
    try:
        results = call(example.target, constant, example.weight, example.group_starts)
    except ValueError as error:
        # scikit-learn's words for probabilities where it needs classes.
        if not (classifies and call.is_scikit_learns and "a mix of" in str(error)):
            raise
        call = replace(call, takes_classes=True)
        results = call(example.target, constant, example.weight, example.group_starts)
    return [Metric(name, _MetricOfCall(call, position), higher) for position, (name, _, higher) in enumerate(results)]


@dataclass(frozen=True)
class _MetricOfCall:
    """One of the metrics of a call."""

    call: _Call
    position: int

    def __call__(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        return self.call(target, prediction, weight, group_starts)[self.position][1]


@dataclass(frozen=True)
class _Call:
    """How a function is called."""

    function: Callable[..., Any]
    name: str
    is_scikit_learns: bool
    n_extras: int  # the weights, then the sizes of queries
    takes_sample_weight: bool  # by keyword
    takes_classes: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Call:
        inner = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        name = getattr(inner, "__name__", None) or type(inner).__name__
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # compiled functions may have none
            parameters = []
        extras = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)][2:4]
        n_extras = 0
        for one in extras:
            if one.default is not one.empty and one.name not in _WEIGHT_NAMES:
                break
            n_extras += 1
        by_keyword = any(one.name == "sample_weight" and one.kind is one.KEYWORD_ONLY for one in parameters)
        is_scikit_learns = getattr(inner, "__module__", "").startswith("sklearn.")
        return cls(function, name, is_scikit_learns, n_extras, by_keyword)

    def __call__(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> list[Result]:
        if self.takes_classes:
            prediction = prediction.argmax(axis=0) if prediction.ndim == 2 else (prediction > 0.5).astype(np.float64)
        sizes = None if group_starts is None else np.diff(group_starts)
        keywords = {"sample_weight": weight} if self.takes_sample_weight and weight is not None else {}
        returned = self.function(target, prediction.T, *(weight, sizes)[: self.n_extras], **keywords)
        return [self._result(one) for one in (returned if isinstance(returned, list) else [returned])]

    def _result(self, returned: Any) -> Result:
        try:
            if np.ndim(returned) == 0:
                return self.name, float(returned), self.name.endswith(_HIGHER_IS_BETTER)
            name, value, higher_is_better = returned
            return str(name), float(value), bool(higher_is_better)
        except (TypeError, ValueError):
            raise TypeError(
                f"The eval_metric function {self.name} must return a number, (name, value, higher_is_better) or a list "
                f"of these, got {returned!r}."
            ) from None
