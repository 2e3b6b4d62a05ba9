"""The estimators: perceptrons and linear models behind scikit-learn's interface."""

from __future__ import annotations

from dmlgbm.neural.estimators.linear import DMLLinearClassifier, DMLLinearRegressor
from dmlgbm.neural.estimators.multilayer import DMLMLPClassifier, DMLMLPRegressor

__all__ = ["DMLLinearClassifier", "DMLLinearRegressor", "DMLMLPClassifier", "DMLMLPRegressor"]
