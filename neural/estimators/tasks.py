"""Classification and regression: what targets are, and which predictions there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from dmlgbm.neural.estimators.base import NeuralEstimator
from dmlgbm.neural.estimators.lazy_predictions import lazy_on_collections
from dmlgbm.neural.estimators.weights import WeightArray
from dmlgbm.neural.losses import probabilities_of
from dmlgbm.neural.model import FloatArray, IntArray
from dmlgbm.neural.targets import ClassTargets, Targets, ValueTargets, target_sums


class NeuralClassifier(ClassifierMixin, NeuralEstimator):
    """Labels of any kind; one output for two classes, one for each class otherwise."""

    _classifies = True

    def _targets_of(self, y: Any, dtype: str, weights: WeightArray | None) -> tuple[Targets, IntArray]:
        check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
        targets = ClassTargets(np.unique(labels))
        return targets, targets.encoded(labels, dtype)

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels, in order."""
        check_is_fitted(self)
        assert isinstance(self._targets, ClassTargets)
        return self._targets.classes

    @lazy_on_collections
    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class with the highest score for each row."""
        outputs = self._outputs(X)
        return self._targets.decoded(outputs)

    def _probabilities(self, X: Any) -> FloatArray:
        outputs = self._outputs(X)
        if len(self.classes_) == 1:
            return np.ones((len(outputs), 1), outputs.dtype)
        return probabilities_of(outputs)

    @lazy_on_collections
    def decision_function(self, X: Any) -> FloatArray:
        """Raw scores: one for each row where there are two classes, otherwise one for each class."""
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs


class NeuralRegressor(RegressorMixin, NeuralEstimator):
    """One value or several for each row; the model learns them shifted to mean 0 and scaled to deviation 1."""

    _classifies = False

    def _targets_of(self, y: Any, dtype: str, weights: WeightArray | None) -> tuple[Targets, FloatArray]:
        values = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        if values.ndim == 2 and values.shape[1] == 1:
            values = column_or_1d(values, warn=True)
        targets = ValueTargets.from_sums(target_sums(values, weights), values.ndim == 1)
        return targets, targets.encoded(values, dtype)

    @lazy_on_collections
    def predict(self, X: Any) -> FloatArray:
        """The value of each row, or values where y had several columns."""
        outputs = self._outputs(X)
        return self._targets.decoded(outputs)
