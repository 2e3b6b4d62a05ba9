"""What a model file says about the estimator: its class, parameters, class labels and training history.

Plain values only. Parameters that are functions or generators are left out, and so are `n_jobs` and `verbose`, which
say nothing about the model; a loaded estimator has their defaults. Reading trusts nothing: whatever `saved_state` would
not have written is a ModelFileError.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gbdt.booster import Booster
from gbdt.model_file import ModelFileError
from sklearn_api.parameter_values import engine_parameters

_NOT_SAVED = ("n_jobs", "verbose")
_LABEL_DTYPES = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
_KEYS = {"class", "parameters", "classes", "best_iteration", "best_score", "evals_result"}


def saved_state(estimator: Any) -> dict[str, Any]:
    """The estimator beside its booster, in values that a model file holds."""
    parameters = {name: _plain(value) for name, value in estimator.get_params(deep=False).items()}
    return {
        "class": type(estimator).__name__,
        "parameters": {name: value for name, value in parameters.items() if name not in _NOT_SAVED and _is_plain(value)},
        "classes": _saved_labels(estimator.classes_) if hasattr(estimator, "classes_") else None,
        "best_iteration": estimator.best_iteration_,
        "best_score": estimator.best_score_,
        "evals_result": estimator.evals_result_,
    }


def restored(booster: Booster, estimator_classes: dict[str, type]) -> Any:
    """The fitted estimator that a booster read from a file belongs to."""
    state = booster.metadata.get("estimator")
    if state is None:
        raise ModelFileError("holds trees without an estimator (a checkpoint?): pass it to fit as init_model")
    if not isinstance(state, dict) or state.keys() != _KEYS:
        raise ModelFileError("is damaged: its description of the estimator is incomplete")
    estimator_class = estimator_classes.get(state["class"]) if isinstance(state["class"], str) else None
    if estimator_class is None:
        raise ModelFileError(f"is of an unknown estimator: {state['class']!r:.60}")
    estimator = _with_parameters(estimator_class, state["parameters"])
    if not _is_history(state["best_score"], float) or not _is_history(state["evals_result"], list):
        raise ModelFileError("is damaged: its training history is not a table of numbers")
    best = state["best_iteration"]
    if best is not None and not (type(best) is int and 1 <= best <= booster.n_iterations):
        raise ModelFileError(f"is damaged: its best iteration is {best!r:.60}")
    if hasattr(estimator_class, "predict_proba"):
        estimator.classes_ = saved_classes(booster)
    elif state["classes"] is not None:
        raise ModelFileError("is damaged: its estimator has no classes")
    estimator._store_booster(booster)
    estimator.best_iteration_ = best
    estimator.best_score_ = state["best_score"]
    estimator.evals_result_ = state["evals_result"]
    return estimator


def saved_classes(booster: Booster) -> npt.NDArray[Any]:
    """The class labels that a file says its outputs stand for."""
    state = booster.metadata.get("estimator")
    saved = state.get("classes") if isinstance(state, dict) else None
    if not isinstance(saved, dict) or saved.keys() != {"dtype", "values"} or not isinstance(saved["values"], list):
        raise ModelFileError("is damaged: its class labels are missing")
    values, dtype = saved["values"], saved["dtype"]
    if len(values) < 2 or booster.n_outputs not in (len(values), 3 - len(values)):
        raise ModelFileError(f"is damaged: it has {len(values)} classes for {booster.n_outputs} outputs")
    labels = np.empty(len(values), object)
    labels[:] = values
    try:
        if dtype == "str" and all(type(value) is str for value in values):
            labels = labels.astype(np.str_)
        elif isinstance(dtype, str) and dtype in _LABEL_DTYPES and all(_is_number(value) for value in values):
            labels = labels.astype(dtype)
        elif dtype != "object" or not all(isinstance(value, str) or _is_number(value) for value in values):
            raise ModelFileError(f"is damaged: its class labels are not of type {dtype!r:.60}")
        in_order = all(before < after for before, after in zip(values, values[1:], strict=False))
    except (TypeError, ValueError, OverflowError):
        in_order = False
    if not in_order:
        raise ModelFileError("is damaged: its class labels are not in order")
    return labels


def _saved_labels(classes: npt.NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if not all(isinstance(value, str | bool | int | float) for value in values):
        raise TypeError(
            f"A model file holds class labels that are strings or numbers, not {type(values[0]).__name__}: convert y."
        )
    return {"dtype": "str" if classes.dtype.kind in "UT" else classes.dtype.name, "values": values}


def _with_parameters(estimator_class: type, parameters: Any) -> Any:
    try:
        estimator = estimator_class(**parameters)
        engine_parameters(estimator.get_params(deep=False))
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"is damaged: its parameters are not valid ({error})") from None
    return estimator


def _plain(value: Any) -> Any:
    """numpy's numbers and arrays as Python's."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(entry) for entry in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(entry) for key, entry in value.items())
    return value is None or isinstance(value, str | bool | int | float)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _is_history(history: Any, leaf: type) -> bool:
    """None, or values by metric by set, each a number or a list of them."""
    if history is None:
        return True
    return isinstance(history, dict) and all(
        isinstance(metrics, dict)
        and all(
            isinstance(values, leaf) and (leaf is float or all(isinstance(value, float) for value in values))
            for values in metrics.values()
        )
        for metrics in history.values()
    )
