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
    from dmlgbm.gbdt.callbacks import (
        checkpoint,
        log_evaluation,
        progress_bar,
        record_evaluation,
        reset_parameter,
        time_limit,
    )
    from dmlgbm.gbdt.model.model_file import ModelFileError
    from dmlgbm.gbdt.parameters import ParameterError
    from dmlgbm.neural import (
        DMLLinearClassifier,
        DMLLinearRegressor,
        DMLMLPClassifier,
        DMLMLPRegressor,
        DMLTorchClassifier,
        DMLTorchRegressor,
        plot_history,
    )
    from dmlgbm.sklearn_api import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, load_model
    from dmlgbm.sklearn_api.booster import Booster
    from dmlgbm.sklearn_api.functional.cross_validation import CVBooster, cv
    from dmlgbm.sklearn_api.functional.dataset import Dataset
    from dmlgbm.sklearn_api.functional.merging import merge
    from dmlgbm.sklearn_api.functional.training import train
    from dmlgbm.sklearn_api.watching.stopping_callback import early_stopping
    from dmlgbm.tuning.hyperband import HyperbandSearchCV
    from dmlgbm.tuning.optuna_search import OptunaSearchCV
    from dmlgbm.tuning.plots import plot_search
    from dmlgbm.tuning.report import SearchReport
    from dmlgbm.tuning.search import GridSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV, RandomizedSearchCV
    from dmlgbm.tuning.validation import cross_val_score, cross_validate

__version__ = "0.1.0"

__all__ = [
    "Booster",
    "CVBooster",
    "DMLGBMClassifier",
    "DMLGBMRanker",
    "DMLGBMRegressor",
    "DMLLinearClassifier",
    "DMLLinearRegressor",
    "DMLMLPClassifier",
    "DMLMLPRegressor",
    "DMLTorchClassifier",
    "DMLTorchRegressor",
    "Dataset",
    "GridSearchCV",
    "HalvingGridSearchCV",
    "HalvingRandomSearchCV",
    "HyperbandSearchCV",
    "ModelFileError",
    "OptunaSearchCV",
    "ParameterError",
    "RandomizedSearchCV",
    "SearchReport",
    "__version__",
    "checkpoint",
    "cross_val_score",
    "cross_validate",
    "cv",
    "early_stopping",
    "load_model",
    "log_evaluation",
    "merge",
    "plot_history",
    "plot_search",
    "progress_bar",
    "record_evaluation",
    "reset_parameter",
    "time_limit",
    "train",
]

_MODULE_OF = {
    "Booster": "dmlgbm.sklearn_api.booster",
    "ModelFileError": "dmlgbm.gbdt.model.model_file",
    "ParameterError": "dmlgbm.gbdt.parameters",
    **dict.fromkeys(
        ("checkpoint", "log_evaluation", "progress_bar", "record_evaluation", "reset_parameter", "time_limit"),
        "dmlgbm.gbdt.callbacks",
    ),
    **dict.fromkeys(("DMLGBMClassifier", "DMLGBMRanker", "DMLGBMRegressor", "load_model"), "dmlgbm.sklearn_api"),
    **dict.fromkeys(
        (
            *("DMLLinearClassifier", "DMLLinearRegressor", "DMLMLPClassifier", "DMLMLPRegressor"),
            *("DMLTorchClassifier", "DMLTorchRegressor", "plot_history"),
        ),
        "dmlgbm.neural",
    ),
    **dict.fromkeys(
        ("GridSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV", "RandomizedSearchCV"), "dmlgbm.tuning.search"
    ),
    **dict.fromkeys(("cross_val_score", "cross_validate"), "dmlgbm.tuning.validation"),
    **dict.fromkeys(("CVBooster", "cv"), "dmlgbm.sklearn_api.functional.cross_validation"),
    "Dataset": "dmlgbm.sklearn_api.functional.dataset",
    "merge": "dmlgbm.sklearn_api.functional.merging",
    "train": "dmlgbm.sklearn_api.functional.training",
    "early_stopping": "dmlgbm.sklearn_api.watching.stopping_callback",
    "HyperbandSearchCV": "dmlgbm.tuning.hyperband",
    "OptunaSearchCV": "dmlgbm.tuning.optuna_search",
    "SearchReport": "dmlgbm.tuning.report",
    "plot_search": "dmlgbm.tuning.plots",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
