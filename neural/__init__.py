"""Networks trained over the shared communication layer: models, strategies, ranks.

Public names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neural.comparison import Comparison, compare
    from neural.estimators import DMLLinearClassifier, DMLLinearRegressor, DMLMLPClassifier, DMLMLPRegressor
    from neural.history import TrainingHistory
    from neural.plotting import plot_history
    from neural.strategies import strategy_names
    from neural.torch_models.estimators import DMLTorchClassifier, DMLTorchRegressor

_MODULE_OF = {
    **dict.fromkeys(
        ("DMLLinearClassifier", "DMLLinearRegressor", "DMLMLPClassifier", "DMLMLPRegressor"), "neural.estimators"
    ),
    **dict.fromkeys(("Comparison", "compare"), "neural.comparison"),
    "TrainingHistory": "neural.history",
    "plot_history": "neural.plotting",
    "strategy_names": "neural.strategies",
    **dict.fromkeys(("DMLTorchClassifier", "DMLTorchRegressor"), "neural.torch_models.estimators"),
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
