"""The estimators: perceptrons and linear models behind scikit-learn's interface."""

from __future__ import annotations

from neural.estimators.linear import DMLLinearClassifier, DMLLinearRegressor
from neural.estimators.multilayer import DMLMLPClassifier, DMLMLPRegressor

__all__ = ["DMLLinearClassifier", "DMLLinearRegressor", "DMLMLPClassifier", "DMLMLPRegressor"]
