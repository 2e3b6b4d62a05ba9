"""Classification and regression: what targets are, and which predictions there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from neural.estimators.base import NeuralEstimator
from neural.estimators.lazy_predictions import lazy_on_collections
from neural.losses import probabilities_of
from neural.model import FloatArray, IntArray
from neural.targets import ClassTargets, Targets, ValueTargets, target_sums


class NeuralClassifier(ClassifierMixin, NeuralEstimator):
    """Labels of any kind; one output for two classes, one for each class otherwise."""

    _classifies = True

    def _targets_of(self, y: Any) -> tuple[Targets, IntArray]:
        check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
        targets = ClassTargets(np.unique(labels))
        return targets, targets.encoded(labels, np.int64)

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels, in order."""
        check_is_fitted(self)
        assert isinstance(self._targets, ClassTargets)
        return self._targets.classes

    @lazy_on_collections
    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class with the highest score for each row."""
        return self._targets.decoded(self._outputs(X))

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

    def _targets_of(self, y: Any) -> tuple[Targets, FloatArray]:
        values = np.asarray(y, np.float64)
        targets = ValueTargets.from_sums(target_sums(values), values.ndim == 1)
        return targets, targets.encoded(values, self.dtype)

    @lazy_on_collections
    def predict(self, X: Any) -> FloatArray:
        """The value of each row, or values where y had several columns."""
        return self._targets.decoded(self._outputs(X))
