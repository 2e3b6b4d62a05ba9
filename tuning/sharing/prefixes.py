"""Steps of a Pipeline before the last, fitted once for a fold and a set of their parameters.

scikit-learn's Pipeline can be given a `memory`: something that wraps the function which fits a step. Here it is one
that finds what another candidate's equal steps have made of the same rows. `Pipeline.fit` itself stays scikit-learn's.
"""

from __future__ import annotations

import numbers
import pickle
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline

from dmlgbm.tuning.sharing.hooks import content_key, has_hooks
from dmlgbm.tuning.sharing.limited_cache import rows_cache

if TYPE_CHECKING:
    from dmlgbm.tuning.sharing.shared_fit import UnitWork


def is_plain_pipeline(estimator: Any) -> bool:
    """Whether this is a Pipeline whose way of fitting is scikit-learn's."""
    kind = type(estimator)
    return isinstance(estimator, Pipeline) and kind.fit is Pipeline.fit and kind._fit is Pipeline._fit


def prefix_keys(pipeline: Pipeline) -> list[str | None]:
    """For each step that is fitted before the last, a name of the steps up to it; None where sharing is in doubt."""
    keys: list[str | None] = []
    in_doubt = pipeline.memory is not None or bool(pipeline.verbose)
    for position, (name, step) in enumerate(pipeline.steps[:-1]):
        if step is None or (isinstance(step, str) and step == "passthrough"):
            continue
        in_doubt = in_doubt or _why_not_repeated(name, step) is not None
        keys.append(None if in_doubt else content_key((pipeline.transform_input, pipeline.steps[: position + 1])))
    return keys


def why_step_is_fitted_anew(pipeline: Pipeline) -> str | None:
    """What keeps steps before the last from being shared, for people; None if nothing does."""
    if all(key is not None for key in prefix_keys(pipeline)):
        return None
    if pipeline.memory is not None or pipeline.verbose:
        return "it has a memory of its own" if pipeline.memory is not None else "it is verbose"
    steps = [(name, step) for name, step in pipeline.steps[:-1] if hasattr(step, "get_params")]
    reasons = (_why_not_repeated(name, step) for name, step in steps)
    return next((reason for reason in reasons if reason is not None), "a step cannot be pickled")


def fit_pipeline(pipeline: Pipeline, X: Any, y: Any, params: Mapping[str, Any], unit: UnitWork, rows: Hashable) -> Any:
    """`Pipeline.fit` with the steps that other calls have fitted on the same rows, which have a name."""
    vars(pipeline).pop("fit", None)
    try:
        keys = prefix_keys(pipeline)
    except (AttributeError, TypeError, ValueError):  # not a valid pipeline: its fit says so
        return pipeline.fit(X, y, **params)
    final = pipeline.steps[-1][1]
    prefix = keys[-1] if keys else ""
    shares_final = prefix is not None and (has_hooks(final) or is_plain_pipeline(final))
    if shares_final:
        unit.attach(final, (rows, prefix))
    else:
        unit.counters["fits"] += 1
    if any(key is not None for key in keys):
        pipeline.memory = _PrefixMemory(iter(keys), unit, rows)
    try:
        return pipeline.fit(X, y, **params)
    finally:
        if isinstance(pipeline.memory, _PrefixMemory):
            pipeline.memory = None
        if shares_final:
            vars(final).pop("fit", None)


@dataclass(frozen=True)
class _FittedStep:
    """What fitting a step gave: its output, the step itself (as bytes: every caller gets its own), its warnings."""

    output: Any
    step: bytes
    warnings: list[warnings.WarningMessage]


class _PrefixMemory:
    """The `memory` of one fit of a Pipeline, which asks for one step after the other."""

    def __init__(self, keys: Iterator[str | None], unit: UnitWork, rows: Hashable) -> None:
        self._keys = keys
        self._unit = unit
        self._rows = rows

    def cache(self, function: Callable[..., tuple[Any, Any]], **options: Any) -> Callable[..., tuple[Any, Any]]:
        """scikit-learn's `function`, called with a step, X, y and more; it returns the output and the fitted step."""

        def fit_step(transformer: Any, X: Any, y: Any, **arguments: Any) -> tuple[Any, Any]:
            key = next(self._keys)
            if key is None:
                return function(transformer, X, y, **arguments)
            fitted: list[tuple[Any, Any]] = []

            def fit() -> tuple[_FittedStep | None, int]:
                caught: list[warnings.WarningMessage] = []
                output, step = _catching(caught, lambda: function(transformer, X, y, **arguments))
                fitted.append((output, step))
                return _kept(output, step, caught)

            kept, is_new = rows_cache(self._unit.data).get_or_make((self._rows, key), fit)
            self._unit.counters["steps_fitted" if is_new or kept is None else "steps_saved"] += 1
            if kept is not None:
                for each in kept.warnings:
                    warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
            if fitted:
                return fitted[0]
            if kept is None:
                return function(transformer, X, y, **arguments)
            return kept.output.copy(), pickle.loads(kept.step)  # noqa: S301 - written by this process

        return fit_step


def _kept(output: Any, step: Any, caught: list[warnings.WarningMessage]) -> tuple[_FittedStep | None, int]:
    """What to keep and its size; None if it cannot be handed out in copies."""
    n_bytes = _n_bytes(output)
    try:
        saved = pickle.dumps(step, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None, 0
    if n_bytes is None:
        return None, 0
    return _FittedStep(output.copy(), saved, caught), n_bytes + len(saved)


def _n_bytes(output: Any) -> int | None:
    """The size of a table that has a `copy` of its own; None for anything else."""
    if isinstance(output, np.ndarray):
        return None if output.dtype.hasobject else output.nbytes
    if hasattr(output, "memory_usage"):  # pandas
        return int(np.sum(output.memory_usage(deep=False)))
    parts = [getattr(output, name, None) for name in ("data", "indices", "indptr")]  # scipy
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    return sum(array.nbytes for array in arrays) if len(arrays) == len(parts) else None


def _catching(caught: list[warnings.WarningMessage], function: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Note the warnings of a call. This changes the whole process, so only where units run in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    with warnings.catch_warnings(record=True) as noted:
        result = function()
    caught.extend(noted)
    return result


def _why_not_repeated(name: str, step: Any) -> str | None:
    """Why another fit of this step on the same rows may give something else, or change the rows; None if it cannot."""
    for parameter, value in step.get_params(deep=True).items():
        last = parameter.rpartition("__")[2]
        if last == "random_state" and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
            return f"{name}__{parameter} is not a number"
        if last.startswith("copy") and value is False:
            return f"{name}__{parameter} is False"
    return None
