"""Losses: the sum over rows of a loss of outputs and targets, and its gradient with respect to the outputs.

Targets are class codes (int64, one a row) for classifiers and values (rows x outputs) for regressors. Two classes have
one output, which is the score of class 1; more classes have one output each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dmlgbm.neural.model import FloatArray, IntArray


class Loss(ABC):
    """`classifies` says whether targets are class codes."""

    name: ClassVar[str]
    classifies: ClassVar[bool]

    @abstractmethod
    def of_rows(self, outputs: FloatArray, targets: Any) -> tuple[FloatArray, FloatArray]:
        """The loss of each row and its gradient; may overwrite `outputs` with the gradient."""

    def value_and_gradient(
        self, outputs: FloatArray, targets: Any, weights: FloatArray | None = None
    ) -> tuple[float, FloatArray]:
        """Loss and gradient, both weighted sums over the rows (not means); may overwrite `outputs`."""
        losses, gradient = self.of_rows(outputs, targets)
        if weights is None:
            return float(losses.sum(dtype=np.float64)), gradient
        gradient *= weights[:, None].astype(gradient.dtype)
        return float(np.sum(losses * weights, dtype=np.float64)), gradient

    def value(self, outputs: FloatArray, targets: Any) -> float:
        """The loss summed over the rows."""
        return self.value_and_gradient(outputs.copy(), targets)[0]


class CrossEntropy(Loss):
    """Minus the logarithm of the probability of the right class: logistic for two classes, softmax for more."""

    name = "logistic"
    classifies = True

    def of_rows(self, outputs: FloatArray, targets: IntArray) -> tuple[FloatArray, FloatArray]:
        if outputs.shape[1] == 1:
            score = outputs[:, 0]
            losses = np.logaddexp(0.0, score) - targets * score
            probabilities = probabilities_of(outputs)[:, 1:]
            probabilities[:, 0] -= targets
            return losses, probabilities
        rows = np.arange(len(outputs))
        outputs -= outputs.max(axis=1, keepdims=True)
        right = outputs[rows, targets]
        np.exp(outputs, out=outputs)
        totals = outputs.sum(axis=1, keepdims=True)
        losses = np.log(totals[:, 0]) - right
        outputs /= totals
        outputs[rows, targets] -= 1.0
        return losses, outputs


class Hinge(Loss):
    """max(0, 1 - margin), one class against the rest where there are more than two."""

    name = "hinge"
    classifies = True

    def of_rows(self, outputs: FloatArray, targets: IntArray) -> tuple[FloatArray, FloatArray]:
        signs = np.full_like(outputs, -1.0)
        if outputs.shape[1] == 1:
            signs[targets == 1] = 1.0
        else:
            signs[np.arange(len(outputs)), targets] = 1.0
        missing = 1.0 - signs * outputs
        gradient = np.where(missing > 0.0, -signs, 0.0).astype(outputs.dtype)
        return np.maximum(missing, 0.0).sum(axis=1, dtype=np.float64), gradient


class Squared(Loss):
    """Half of the squared difference, summed over outputs."""

    name = "squared"
    classifies = False

    def of_rows(self, outputs: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        outputs -= targets
        return 0.5 * np.square(outputs, dtype=np.float64).sum(axis=1), outputs


class Absolute(Loss):
    """The absolute difference, summed over outputs."""

    name = "absolute"
    classifies = False

    def of_rows(self, outputs: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        outputs -= targets
        return np.abs(outputs).sum(axis=1, dtype=np.float64), np.sign(outputs)


@dataclass(frozen=True)
class Huber(Loss):
    """Squared up to `delta`, absolute beyond."""

    name = "huber"
    classifies = False
    delta: float = 1.0

    def of_rows(self, outputs: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        outputs -= targets
        clipped = np.clip(outputs, -self.delta, self.delta)
        return np.sum(clipped * (outputs - 0.5 * clipped), axis=1, dtype=np.float64), clipped


LOSSES: dict[str, type[Loss]] = {kind.name: kind for kind in (CrossEntropy, Hinge, Squared, Absolute, Huber)}


def make_loss(name: str) -> Loss:
    """A loss by name."""
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    return LOSSES[name]()


def probabilities_of(outputs: FloatArray) -> FloatArray:
    """Class probabilities from raw outputs of a model trained with cross-entropy; two columns for one output."""
    if outputs.shape[1] == 1:
        # tanh does not overflow where exp would.
        positive = 0.5 * (1.0 + np.tanh(0.5 * outputs[:, 0]))
        return np.stack([1.0 - positive, positive], axis=1)
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def codes_of(outputs: FloatArray) -> IntArray:
    """The class with the largest score."""
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).astype(np.int64)
    return np.argmax(outputs, axis=1).astype(np.int64)
