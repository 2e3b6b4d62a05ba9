"""The scikit-learn estimators: they check what the user passes, train with the engine and store the result.

The one idea: everything about the rows (X, y, weights, groups) becomes plain numpy arrays in `RowData` before anything
is trained; each of the files here checks one kind of input and words its errors.
"""

from sklearn_api.classifier import DMLGBMClassifier
from sklearn_api.model_io import load_model
from sklearn_api.ranker import DMLGBMRanker
from sklearn_api.regressor import DMLGBMRegressor

__all__ = ["DMLGBMClassifier", "DMLGBMRanker", "DMLGBMRegressor", "load_model"]
