"""What an estimator must offer to take part, and what can be said of a fit before it runs.

The hooks are found by name; `sklearn_api/sharing/work_sharing.py` describes them. An estimator that was pickled and
read again must still be able to `advance`, if more slowly.
"""

from __future__ import annotations

import hashlib
import numbers
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

_HOOKS = ("preparation_key", "prepare", "fit_prepared", "stage_parameter", "advance")


def has_hooks(estimator: Any) -> bool:
    """Whether an estimator can share work."""
    return all(callable(getattr(type(estimator), name, None)) for name in _HOOKS)


def trains_on_collections(estimator: Any) -> bool:
    """Whether an estimator, or one inside it, takes Dask collections; its class has an attribute of this name."""
    parts = (estimator, *estimator.get_params(deep=True).values())
    return any(getattr(type(part), "trains_on_collections", False) for part in parts)


def content_key(value: Any) -> str | None:
    """A name made from what a value holds: equal names mean equal values. None if that cannot be told."""
    try:
        return hashlib.blake2b(cloudpickle.dumps(value), digest_size=16).hexdigest()
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class FitDescription:
    """What a fit has in common with others."""

    preparation: str
    """Fits with the same name, rows and fit parameters share prepared rows."""
    run: str | None
    """Fits with the same name, preparation, rows and fit parameters are stages of one run."""
    stage_parameter: str
    stage: int


def described(estimator: Any, fit_params: Mapping[str, Any]) -> FitDescription | None:
    """What a fit of this estimator can share; None if it must run on its own, or would fail."""
    if not has_hooks(estimator):
        return None
    try:
        key = estimator.preparation_key(**fit_params)
        preparation = None if key is None else content_key((type(estimator), key))
        stage_parameter = estimator.stage_parameter(**fit_params)
        parameters = estimator.get_params(deep=False)
    except Exception:  # noqa: BLE001 - parameters that are wrong: the estimator's own fit says so
        return None
    if preparation is None:
        return None
    stage = parameters.pop(stage_parameter, None)
    if not isinstance(stage, numbers.Integral):
        return FitDescription(preparation, None, "", 0)
    run = content_key((type(estimator), sorted(parameters.items())))
    return FitDescription(preparation, run, stage_parameter, int(stage))
