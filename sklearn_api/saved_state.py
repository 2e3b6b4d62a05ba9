"""What a model file says about the estimator: its class, parameters, class labels and training history.

Plain values only. Parameters that are functions or generators are left out, and so are those that say nothing about
the model, such as `n_jobs`; a loaded estimator has their defaults. Reading trusts nothing: whatever `saved_state` would
not have written is a ModelFileError.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.model.model_file import ModelFileError
from dmlgbm.sklearn_api.parameters.names import stored_parameters, storing_class
from dmlgbm.sklearn_api.parameters.values import engine_parameters

_NOT_SAVED = ("n_jobs", "verbose", "max_restarts", "worker_timeout", "checkpoint_dir")
_LABEL_DTYPES = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
_KEYS = {"class", "parameters", "classes", "best_iteration", "best_score", "evals_result"}


def saved_state(estimator: Any) -> dict[str, Any]:
    """The estimator beside its booster, in values that a model file holds."""
    parameters = {name: _plain(value) for name, value in stored_parameters(estimator).items()}
    kind: Any = type(estimator)
    return {
        # A subclass is not known where the file is read; what it stores is an estimator of ours.
        "class": storing_class(kind).__name__,
        "parameters": {
            name: value for name, value in parameters.items() if name not in _NOT_SAVED and _is_plain(value)
        },
        "classes": _saved_labels(estimator.classes_) if hasattr(estimator, "classes_") else None,
        "best_iteration": estimator.best_iteration_,
        "best_score": estimator.best_score_,
        "evals_result": estimator.evals_result_,
    }


def booster_from_file(path: str | os.PathLike[str]) -> Booster:
    """The booster in a model file; the message of an error names the file."""
    with _naming(path):
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise ModelFileError("is not a regular file")
        return Booster.from_bytes(Path(path).read_bytes())


def restored(path: str | os.PathLike[str], estimator_classes: Mapping[str, type[Any]]) -> Any:
    """The fitted estimator in a model file."""
    booster = booster_from_file(path)
    with _naming(path):
        state = _state(booster)
        if state is None:
            raise ModelFileError(
                "holds trees without an estimator: read it with Booster.load_model, or pass it to fit as init_model"
            )
        estimator_class = estimator_classes.get(state["class"]) if isinstance(state["class"], str) else None
        if estimator_class is None:
            raise ModelFileError(f"is of an unknown estimator: {state['class']!r:.60}")
        if not _is_history(state["best_score"], _is_float) or not _is_history(
            state["evals_result"], _is_list_of_floats
        ):
            raise ModelFileError("is damaged: its training history is not a table of numbers")
        classes = saved_classes(booster)
        if (classes is not None) != is_classifier(estimator_class()):
            raise ModelFileError("is damaged: its class labels are missing, or not those of a classifier")
        estimator = _with_parameters(estimator_class, state["parameters"])
        best_iteration = saved_best_iteration(booster)
        model = replace(booster, metadata={})
        estimator._store(
            TrainingResult(model, state["evals_result"], best_iteration, state["best_score"], None), classes
        )
        return estimator


def saved_best_iteration(booster: Booster) -> int | None:
    """Where early stopping said that the model is best."""
    state = _state(booster)
    best = None if state is None else state["best_iteration"]
    if best is not None and not (type(best) is int and 1 <= best <= booster.n_iterations):
        raise ModelFileError(f"is damaged: its best iteration is {best!r:.60}")
    return best


def saved_classes(booster: Booster) -> npt.NDArray[Any] | None:
    """The class labels that the outputs of a classifier stand for."""
    state = _state(booster)
    saved = None if state is None else state["classes"]
    if saved is None:
        return None
    if not isinstance(saved, dict) or saved.keys() != {"dtype", "values"} or not isinstance(saved["values"], list):
        raise ModelFileError("is damaged: its class labels are missing")
    values, dtype = saved["values"], saved["dtype"]
    if len(values) < 2 or booster.n_outputs not in (len(values), 3 - len(values)):
        raise ModelFileError(f"is damaged: it has {len(values)} classes for {booster.n_outputs} scores a row")
    try:
        labels = _labels(values, dtype)
        in_order = all(before < after for before, after in pairwise(labels.tolist()))
    except (TypeError, ValueError, OverflowError):
        in_order = False
    if not in_order:
        raise ModelFileError(f"is damaged: its class labels are not distinct values of type {dtype!r:.60} in order")
    return labels


def _labels(values: list[Any], dtype: Any) -> npt.NDArray[Any]:
    labels = np.empty(len(values), object)
    labels[:] = values
    if dtype == "object":
        if not all(isinstance(value, str | int | float) for value in values):
            raise TypeError
        return labels
    if dtype == "str":
        if not all(isinstance(value, str) for value in values):
            raise TypeError
        return labels.astype(np.str_)
    if not isinstance(dtype, str) or dtype not in _LABEL_DTYPES or any(isinstance(value, str) for value in values):
        raise TypeError
    return labels.astype(dtype)


def _state(booster: Booster) -> dict[str, Any] | None:
    metadata = booster.metadata
    state = metadata.get("estimator") if isinstance(metadata, dict) else None
    if state is not None and (not isinstance(state, dict) or state.keys() != _KEYS):
        raise ModelFileError("is damaged: its description of the estimator is incomplete")
    return state


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the name of the file in front of the message."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"model file {os.fspath(path)!r} {str(error).removeprefix('model data ')}") from None


def _saved_labels(classes: npt.NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if not all(isinstance(value, str | bool | int | float) for value in values):
        raise TypeError(
            f"A model file holds class labels that are strings or numbers, not {type(values[0]).__name__}: convert y."
        )
    return {"dtype": "str" if classes.dtype.kind in "UT" else classes.dtype.name, "values": values}


def _with_parameters(estimator_class: type[Any], parameters: Any) -> Any:
    try:
        # JSON knows no tuples.
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
        estimator = estimator_class(**plain)
        engine_parameters(estimator.get_params(deep=False))
    except (AttributeError, TypeError, ValueError) as error:
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


def _is_history(history: Any, is_leaf: Callable[[Any], bool]) -> bool:
    """None, or a leaf for each metric of each evaluation set."""
    return history is None or _is_table(history, lambda metrics: _is_table(metrics, is_leaf))


def _is_table(table: Any, is_entry: Callable[[Any], bool]) -> bool:
    return isinstance(table, dict) and all(is_entry(entry) for entry in table.values())


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


def _is_list_of_floats(value: Any) -> bool:
    return isinstance(value, list) and all(_is_float(entry) for entry in value)
