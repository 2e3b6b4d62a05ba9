"""`load_model`: from a model file to the fitted estimator that saved it."""

from __future__ import annotations

import os

from dmlgbm.sklearn_api.classifier import DMLGBMClassifier
from dmlgbm.sklearn_api.ranker import DMLGBMRanker
from dmlgbm.sklearn_api.regressor import DMLGBMRegressor
from dmlgbm.sklearn_api.saved_state import restored

_ESTIMATORS = {estimator.__name__: estimator for estimator in (DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker)}


def load_model(path: str | os.PathLike[str]) -> DMLGBMClassifier | DMLGBMRegressor | DMLGBMRanker:
    """The estimator in a file written by `save_model`; its predictions are equal to the last bit.

    Nothing in the file is executed. A file that is not a model, or is damaged, raises ModelFileError.
    """
    return restored(path, _ESTIMATORS)
