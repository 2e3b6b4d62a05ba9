"""Softmax over several classes: one score and one tree for each class."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import softmax_gradients
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.objectives.averages import SMALLEST_SHARE, class_shares
from dmlgbm.gbdt.objectives.protocol import (
    LARGEST_LOGARITHMIC_STEP,
    NO_LARGEST_STEP,
    FloatArray,
    RareClassLimits,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.rare_classes import rare_class_limits
from dmlgbm.gbdt.objectives.targets import class_numbers
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers


class Multiclass:
    """Log loss of the softmax of the scores; the first scores are the logarithms of the class shares."""

    name = "multiclass"
    constant_hessian = False
    leaf_percentile = None
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, n_classes: int) -> None:
        if n_classes < 2:
            raise ParameterError(f"n_classes={n_classes!r} is out of range: 'multiclass' needs at least 2 classes.")
        self.n_outputs = n_classes
        self._target = target
        self._label = class_numbers(self.name, target, n_classes, "classes")
        self.weights = weights
        self._exchange = exchange

    def rare_class_limits(self) -> RareClassLimits:
        if self.largest_step == NO_LARGEST_STEP:
            return no_limits(self.n_outputs)
        return rare_class_limits(self._label, self.weights, self.n_outputs, self._exchange)

    def base_scores(self) -> FloatArray:
        shares = class_shares(self._label, self.weights.given, self.n_outputs, self._exchange)
        return logarithm(np.maximum(shares, SMALLEST_SHARE))

    def row_loss(self) -> None:
        return None

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        target = self._target
        weight = self.weights.in_derivatives
        # LightGBM's factor: a class's own second derivative ignores that the other scores move against it.
        hessian_factor = self.n_outputs / (self.n_outputs - 1)
        workers.run_ranges(
            lambda start, stop: softmax_gradients(
                target, weight, hessian_factor, 1.0 / self.largest_step, score, start, stop, gradients, hessians
            ),
            len(target),
        )
