"""Row losses of classes that take the probabilities of two classes as well as of more: accuracy, Brier, top-k error.

They are means over rows, like those of `row_losses`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.metrics.row_losses import binary_error, most_probable_class

FloatArray = npt.NDArray[np.float64]


def is_right(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """1 for a row whose most probable class is the true one."""
    return (most_probable_class(prediction) == target).astype(np.float64)


def brier_loss(target: FloatArray, prediction: FloatArray) -> FloatArray:
    """The squared error of the probabilities: of the second of two classes, or added up over several."""
    if prediction.ndim == 1:
        return np.square(target - prediction)
    total = np.zeros_like(target)
    for class_number, probability in enumerate(prediction):
        total += np.square((target == class_number) - probability)
    return total


def top_k_error(target: FloatArray, prediction: FloatArray, *, k: int) -> FloatArray:
    """1 for a row whose true class is not among the k most probable; of equal classes the last counts first.

    That is scikit-learn's order in `top_k_accuracy_score`.
    """
    if prediction.ndim == 1:
        return binary_error(target, prediction)
    own = prediction[target.astype(np.intp), np.arange(len(target))]
    n_before = np.zeros(len(target), np.int64)
    for class_number, probability in enumerate(prediction):
        n_before += (probability > own) | ((probability == own) & (class_number > target))
    return (n_before >= k).astype(np.float64)
