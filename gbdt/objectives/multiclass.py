"""Several classes, with one score and one tree for each: softmax of all scores, or each class against the rest."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import one_vs_all_gradients, softmax_gradients
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.objectives.averages import SMALLEST_SHARE, class_shares
from dmlgbm.gbdt.objectives.binary import NO_BALANCE, Balance
from dmlgbm.gbdt.objectives.protocol import (
    LARGEST_LOGARITHMIC_STEP,
    NO_LARGEST_STEP,
    FloatArray,
    RareClassLimits,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.rare_classes import limits_of_two_classes, rare_class_limits
from dmlgbm.gbdt.objectives.targets import narrow_class_numbers
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.gbdt.threads import Workers


class _SeveralClasses:
    """One output for each class."""

    name: str
    constant_hessian = False
    leaf_percentile = None
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, n_classes: int) -> None:
        if n_classes < 2:
            raise ParameterError(f"n_classes={n_classes!r} is out of range: {self.name!r} needs at least 2 classes.")
        self.n_outputs = n_classes
        self._target = target
        self._label = narrow_class_numbers(self.name, target, n_classes)
        self.weights = weights
        self._exchange = exchange

    def rare_class_limits(self) -> RareClassLimits:
        if self.largest_step == NO_LARGEST_STEP:
            return no_limits(self.n_outputs)
        return rare_class_limits(self._label, self.weights, self.n_outputs, self._exchange)

    def row_loss(self) -> None:
        return None

    def _shares(self) -> FloatArray:
        shares = class_shares(self._label, self.weights.given, self.n_outputs, self._exchange)
        return np.maximum(shares, SMALLEST_SHARE)


class Multiclass(_SeveralClasses):
    """Log loss of the softmax of the scores; the first scores are the logarithms of the class shares."""

    name = "multiclass"

    def base_scores(self) -> FloatArray:
        return logarithm(self._shares())

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


class OneVsAll(_SeveralClasses):
    """Log loss of each class against all others; a score is the log-odds of its class."""

    name = "multiclassova"

    def __init__(
        self,
        target: FloatArray,
        weights: RowWeights,
        exchange: Exchange,
        n_classes: int,
        balance: Balance = NO_BALANCE,
    ) -> None:
        super().__init__(target, weights, exchange, n_classes)
        self._is_balanced = balance != NO_BALANCE
        counts = exchange.reduce_sum(np.bincount(self._label, minlength=n_classes).astype(np.int64)).tolist()
        self._class_weight = np.array([balance.factors(sum(counts) - own, own) for own in counts])

    def rare_class_limits(self) -> RareClassLimits:
        if self.largest_step == NO_LARGEST_STEP or not self._is_balanced:
            return super().rare_class_limits()
        limits = []
        for number, factors in enumerate(self._class_weight):
            is_own = (self._label == number).astype(np.int64)
            weights = RowWeights(self.weights.given, self.weights.repeats, factors[is_own])
            limits.append(limits_of_two_classes(is_own, weights, self._exchange))
        return RareClassLimits(
            np.concatenate([each.leaf_hessians for each in limits]),
            np.concatenate([each.root_gains for each in limits]),
        )

    def base_scores(self) -> FloatArray:
        shares = np.minimum(self._shares(), 1.0 - SMALLEST_SHARE)
        return logarithm(shares / (1.0 - shares))

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        target, weight, class_weight = self._target, self.weights.in_derivatives, self._class_weight
        workers.run_ranges(
            lambda start, stop: one_vs_all_gradients(
                target, weight, class_weight, 1.0 / self.largest_step, score, start, stop, gradients, hessians
            ),
            len(target),
        )
