"""Callbacks that stand for something else: ours that set parameters, and LightGBM's own for ours.

LightGBM's are told apart by their class, without importing LightGBM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmlgbm.gbdt.callbacks import Callback, ParameterSchedule, TrainingState, log_evaluation, record_evaluation
from dmlgbm.sklearn_api.watching.stopping_callback import EarlyStoppingCallback


def translated(callbacks: Sequence[Callback], *, has_sets: bool) -> tuple[list[Callback], dict[str, Any]]:
    """The callbacks with LightGBM's replaced by ours, and the parameters that some of them stand for."""
    kept: list[Callback] = []
    parameters: dict[str, Any] = {}
    for callback in callbacks:
        kind = type(callback)
        is_lightgbms = kind.__module__.partition(".")[0] == "lightgbm"
        if isinstance(callback, EarlyStoppingCallback):
            _require_sets("early_stopping", has_sets=has_sets)
            parameters |= callback.parameters
            kept += [callback] if callback.verbose else []
        elif isinstance(callback, ParameterSchedule) or (is_lightgbms and kind.__name__ == "_ResetParameterCallback"):
            parameters |= _schedule(callback)
        elif not is_lightgbms:
            kept.append(callback)
        elif kind.__name__ == "_EarlyStoppingCallback":
            parameters |= _early_stopping(callback, has_sets=has_sets)
        elif kind.__name__ in _TRANSLATIONS:
            kept += _TRANSLATIONS[kind.__name__](callback)
        else:
            raise TypeError(
                f"callbacks holds LightGBM's {kind.__name__}, which has no counterpart here: write a function of the "
                "training state, such as dmlgbm.time_limit gives."
            )
    return kept, parameters


def _early_stopping(callback: Any, *, has_sets: bool) -> dict[str, Any]:
    if not getattr(callback, "enabled", True):
        return {}
    _require_sets("lightgbm.early_stopping", has_sets=has_sets)
    delta = callback.min_delta
    if isinstance(delta, list):
        if len(set(delta)) > 1:
            raise ValueError("lightgbm.early_stopping lists a min_delta for each metric: give one number for all.")
        delta = delta[0] if delta else 0.0
    return {
        "early_stopping": True,
        "early_stopping_rounds": callback.stopping_rounds,
        "early_stopping_min_delta": delta,
        "first_metric_only": callback.first_metric_only,
    }


def _schedule(callback: Any) -> dict[str, Any]:
    others = sorted(callback.kwargs.keys() - {"learning_rate"})
    if others:
        raise ValueError(f"reset_parameter changes {', '.join(others)}, but only learning_rate can change in a fit.")
    rates = callback.kwargs["learning_rate"]
    if not callable(rates) and not isinstance(rates, list | tuple | np.ndarray):
        raise TypeError(f"learning_rate of reset_parameter must be a list or a function, got {rates!r}.")
    return {"learning_rate": rates}


def _require_sets(name: str, *, has_sets: bool) -> None:
    if not has_sets:
        raise ValueError(
            f"{name} needs an eval_set (valid_sets of train): pass one, or set early_stopping=True of an estimator to "
            "set rows aside."
        )


def _logging(callback: Any) -> list[Callback]:
    return [log_evaluation(callback.period)] if callback.period > 0 else []


def _recording(callback: Any) -> list[Callback]:
    record = callback.eval_result
    append = record_evaluation(record)

    def start_anew(state: TrainingState) -> None:
        if state.iteration == 1:
            record.clear()
        append(state)

    return [start_anew]


_TRANSLATIONS: dict[str, Callable[[Any], list[Callback]]] = {
    "_LogEvaluationCallback": _logging,
    "_RecordEvaluationCallback": _recording,
}
