"""The scikit-learn estimators: they check what the user passes, train with the engine and store the result.

The one idea: everything about the rows (X, y, weights, groups) becomes plain numpy arrays in `Rows` before anything
is trained; each of the files here checks one kind of input and words its errors.

The estimators are loaded when they are asked for: workers that only read partitions do without scikit-learn, which
takes 53 MB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlgbm.sklearn_api.classifier import DMLGBMClassifier
    from dmlgbm.sklearn_api.model_io import load_model
    from dmlgbm.sklearn_api.ranker import DMLGBMRanker
    from dmlgbm.sklearn_api.regressor import DMLGBMRegressor

__all__ = ["DMLGBMClassifier", "DMLGBMRanker", "DMLGBMRegressor", "load_model"]

_HOMES = {
    "DMLGBMClassifier": "classifier",
    "DMLGBMRanker": "ranker",
    "DMLGBMRegressor": "regressor",
    "load_model": "model_io",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
