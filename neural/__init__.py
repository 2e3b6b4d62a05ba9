"""Networks trained over the shared communication layer: models, strategies, ranks.

Public names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlgbm.neural.comparison import Comparison, compare
    from dmlgbm.neural.estimators import DMLLinearClassifier, DMLLinearRegressor, DMLMLPClassifier, DMLMLPRegressor
    from dmlgbm.neural.history import TrainingHistory
    from dmlgbm.neural.plotting import plot_history
    from dmlgbm.neural.strategies import strategy_names
    from dmlgbm.neural.torch_models.estimators import DMLTorchClassifier, DMLTorchRegressor

_MODULE_OF = {
    **dict.fromkeys(
        ("DMLLinearClassifier", "DMLLinearRegressor", "DMLMLPClassifier", "DMLMLPRegressor"), "dmlgbm.neural.estimators"
    ),
    **dict.fromkeys(("Comparison", "compare"), "dmlgbm.neural.comparison"),
    "TrainingHistory": "dmlgbm.neural.history",
    "plot_history": "dmlgbm.neural.plotting",
    "strategy_names": "dmlgbm.neural.strategies",
    **dict.fromkeys(("DMLTorchClassifier", "DMLTorchRegressor"), "dmlgbm.neural.torch_models.estimators"),
}

__all__ = [
    "Comparison",
    "DMLLinearClassifier",
    "DMLLinearRegressor",
    "DMLMLPClassifier",
    "DMLMLPRegressor",
    "DMLTorchClassifier",
    "DMLTorchRegressor",
    "TrainingHistory",
    "compare",
    "plot_history",
    "strategy_names",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
