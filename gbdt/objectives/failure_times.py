"""Accelerated failure times: the logarithm of a time is the score and noise of a known distribution."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.kernels.survival import failure_time_gradients
from dmlgbm.gbdt.metrics.survival import DISTRIBUTIONS
from dmlgbm.gbdt.objectives.averages import weighted_mean
from dmlgbm.gbdt.objectives.pointwise import Pointwise
from dmlgbm.gbdt.objectives.protocol import LARGEST_LOGARITHMIC_STEP, FloatArray, SingleArray
from dmlgbm.gbdt.objectives.targets import require_events


class FailureTime(Pointwise):
    """The likelihood of times, and of times that were not reached; the score is the logarithm of a time."""

    name = "aft"
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(
        self, target: FloatArray, weights: RowWeights, exchange: Exchange, distribution: str, scale: float
    ) -> None:
        super().__init__(target, weights, exchange)
        require_events(self.name, target, exchange)
        self._kind = DISTRIBUTIONS[distribution]
        self._scale = scale

    def row_loss(self) -> None:
        return None

    def _base_score(self) -> float:
        return weighted_mean(logarithm(np.abs(self._target)), self.weights.given, self._exchange)

    def _write(
        self,
        target: FloatArray,
        weight: FloatArray,
        score: FloatArray,
        gradients: SingleArray,
        hessians: SingleArray,
    ) -> None:
        least_curvature = 1.0 / self.largest_step
        failure_time_gradients(target, weight, self._kind, self._scale, least_curvature, score, gradients, hessians)
