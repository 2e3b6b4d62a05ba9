"""Objectives whose score is a log-odds: log loss and focal loss of two classes, cross entropy of shares."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import BINARY, FOCAL, LOSS
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.objectives.averages import SMALLEST_SHARE, log_of, weighted_mean
from dmlgbm.gbdt.objectives.pointwise import Smooth
from dmlgbm.gbdt.objectives.protocol import (
    LARGEST_LOGARITHMIC_STEP,
    NO_LARGEST_STEP,
    FloatArray,
    RareClassLimits,
    no_limits,
)
from dmlgbm.gbdt.objectives.rare_classes import limits_of_two_classes
from dmlgbm.gbdt.objectives.targets import narrow_class_numbers, require_target
from dmlgbm.gbdt.parameters import ParameterError


class Balance(NamedTuple):
    """How much rows of class 1 count against those of class 0, in derivatives alone, as in LightGBM."""

    scale_pos_weight: float = 1.0
    is_unbalance: bool = False

    def require_valid(self, objective: str, allowed: tuple[str, ...]) -> None:
        """Whether the two make sense together, and with this objective."""
        weight = self.scale_pos_weight
        if not 0.0 < weight < math.inf:
            raise ParameterError(f"scale_pos_weight={weight!r} is out of range: it must be a positive number.")
        if weight != 1.0 and self.is_unbalance:
            raise ParameterError(
                f"scale_pos_weight={weight!r} and is_unbalance=True both weigh the classes: keep one of them."
            )
        if self != Balance() and objective not in allowed:
            given = "is_unbalance=True" if self.is_unbalance else f"scale_pos_weight={weight!r}"
            raise ParameterError(
                f"{given} does not fit objective {objective!r}: it is for {', '.join(map(repr, allowed))}. "
                "class_weight weighs any number of classes."
            )

    def factors(self, n_negative: int, n_positive: int) -> tuple[float, float]:
        """Those of derivatives of class 0 and class 1, which have so many rows everywhere."""
        if self.is_unbalance and n_negative > 0 and n_positive > 0:
            return max(n_positive / n_negative, 1.0), max(n_negative / n_positive, 1.0)
        return 1.0, self.scale_pos_weight


NO_BALANCE = Balance()


class _LogOdds(Smooth):
    """The score is the log-odds of a share."""

    largest_step = LARGEST_LOGARITHMIC_STEP

    def _base_score(self) -> float:
        mean = weighted_mean(self._target, self.weights.given, self._exchange)
        share = min(max(mean, SMALLEST_SHARE), 1.0 - SMALLEST_SHARE)
        return log_of(share / (1.0 - share))

    def _loss(self) -> RecordArray:
        return np.array([(BINARY, 1.0, 1.0 / self.largest_step)], LOSS)


class Binary(_LogOdds):
    """Log loss of two classes, 0 and 1; the score is the log-odds of class 1."""

    name = "binary"

    def __init__(
        self, target: FloatArray, weights: RowWeights, exchange: Exchange, balance: Balance = NO_BALANCE
    ) -> None:
        self._label = narrow_class_numbers(self.name, target, 2)
        negative, positive = self._factors(balance, exchange)
        if (negative, positive) != (1.0, 1.0):
            factor = np.where(self._label == 1, positive, negative)
            weights = RowWeights(weights.given, weights.repeats, factor)
        super().__init__(target, weights, exchange)

    def _factors(self, balance: Balance, exchange: Exchange) -> tuple[float, float]:
        if not balance.is_unbalance:
            return balance.factors(0, 0)
        counts = exchange.reduce_sum(np.bincount(self._label, minlength=2).astype(np.int64))
        return balance.factors(*counts.tolist())

    def rare_class_limits(self) -> RareClassLimits:
        if self.largest_step == NO_LARGEST_STEP:
            return no_limits(1)
        return limits_of_two_classes(self._label, self.weights, self._exchange)


class Focal(Binary):
    """Log loss that counts less the better a row is known; the score is that of "binary", but not its probability."""

    name = "focal"

    def __init__(
        self,
        target: FloatArray,
        weights: RowWeights,
        exchange: Exchange,
        balance: Balance,
        gamma: float,
        alpha: float,
    ) -> None:
        self._gamma, self._alpha = gamma, alpha
        super().__init__(target, weights, exchange, balance)

    def _factors(self, balance: Balance, exchange: Exchange) -> tuple[float, float]:
        negative, positive = super()._factors(balance, exchange)
        return negative * (1.0 - self._alpha), positive * self._alpha

    def rare_class_limits(self) -> RareClassLimits:
        # Its hessians are no expected numbers of rows.
        return no_limits(1)

    def _loss(self) -> RecordArray:
        return np.array([(FOCAL, self._gamma, 1.0 / self.largest_step)], LOSS)


class CrossEntropy(_LogOdds):
    """Log loss for targets that are shares, from 0 to 1."""

    name = "cross_entropy"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange)
        require_target(self.name, target, (target >= 0.0) & (target <= 1.0), "targets from 0 to 1")
