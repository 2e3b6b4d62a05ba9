"""Objectives whose score is the logarithm of a mean: Poisson, gamma and Tweedie likelihood."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.gradients import LOSS, POISSON, TWEEDIE
from dmlgbm.gbdt.kernels.layout import RecordArray
from dmlgbm.gbdt.objectives.averages import log_of, weighted_mean
from dmlgbm.gbdt.objectives.pointwise import Smooth
from dmlgbm.gbdt.objectives.protocol import LARGEST_LOGARITHMIC_STEP, FloatArray
from dmlgbm.gbdt.objectives.targets import require_real, require_target

# exp(0.7): LightGBM's poisson_max_delta_step, which keeps steps short where the rate is close to zero.
_POISSON_HESSIAN_FACTOR = 2.0137527074704766
_GAMMA_POWER = 2.0


class _Rate(Smooth):
    """A mean that is above zero, of targets that are not below."""

    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange)
        require_real(self.name, target)
        self._require_range(target)
        self._mean = weighted_mean(target, weights.given, exchange)
        if self._mean == 0.0:
            raise ValueError(
                f"All targets (of rows with any weight) are 0, but objective {self.name!r} needs one above 0."
            )

    def _require_range(self, target: FloatArray) -> None:
        require_target(self.name, target, target >= 0.0, "targets of at least 0")

    def _base_score(self) -> float:
        return log_of(self._mean)


class Poisson(_Rate):
    """Counts and other rates that are never negative."""

    name = "poisson"

    def _loss(self) -> RecordArray:
        return np.array([(POISSON, _POISSON_HESSIAN_FACTOR, 1.0 / self.largest_step)], LOSS)


class Tweedie(_Rate):
    """Sums of a random number of positive amounts: often zero, otherwise spread out."""

    name = "tweedie"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange, power: float) -> None:
        self._power = power
        super().__init__(target, weights, exchange)

    def _loss(self) -> RecordArray:
        return np.array([(TWEEDIE, self._power, 1.0 / self.largest_step)], LOSS)


class Gamma(Tweedie):
    """Amounts above zero whose spread grows with their mean."""

    name = "gamma"

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        super().__init__(target, weights, exchange, _GAMMA_POWER)

    def _require_range(self, target: FloatArray) -> None:
        require_target(self.name, target, target > 0.0, "targets above 0")
