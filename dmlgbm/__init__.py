"""Gradient-boosted trees that train to the same bits on one core or on many, behind scikit-learn estimators.

    from dmlgbm import DMLGBMClassifier

    model = DMLGBMClassifier(n_estimators=200).fit(X, y)
    model.predict_proba(X_new)

The public names are those of `__all__`. They are loaded when they are first used, so that importing the package, for
the command line above all, does not wait for scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbdt.booster import Booster
    from gbdt.callbacks import checkpoint, log_evaluation, progress_bar, record_evaluation, time_limit
    from gbdt.model_file import ModelFileError
    from gbdt.parameters import ParameterError
    from neural import (
        DMLLinearClassifier,
        DMLLinearRegressor,
        DMLMLPClassifier,
        DMLMLPRegressor,
        DMLTorchClassifier,
        DMLTorchRegressor,
        plot_history,
    )
    from sklearn_api import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, load_model

__version__ = "0.1.0"

__all__ = [
    "Booster",
    "DMLGBMClassifier",
    "DMLGBMRanker",
    "DMLGBMRegressor",
    "DMLLinearClassifier",
    "DMLLinearRegressor",
    "DMLMLPClassifier",
    "DMLMLPRegressor",
    "DMLTorchClassifier",
    "DMLTorchRegressor",
    "ModelFileError",
    "ParameterError",
    "__version__",
    "checkpoint",
    "load_model",
    "log_evaluation",
    "plot_history",
    "progress_bar",
    "record_evaluation",
    "time_limit",
]

_MODULE_OF = {
    "Booster": "gbdt.booster",
    "ModelFileError": "gbdt.model_file",
    "ParameterError": "gbdt.parameters",
    **dict.fromkeys(
        ("checkpoint", "log_evaluation", "progress_bar", "record_evaluation", "time_limit"), "gbdt.callbacks"
    ),
    **dict.fromkeys(("DMLGBMClassifier", "DMLGBMRanker", "DMLGBMRegressor", "load_model"), "sklearn_api"),
    **dict.fromkeys(
        (
            *("DMLLinearClassifier", "DMLLinearRegressor", "DMLMLPClassifier", "DMLMLPRegressor"),
            *("DMLTorchClassifier", "DMLTorchRegressor", "plot_history"),
        ),
        "neural",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
