"""Cox's proportional hazards: the score is the logarithm of a row's hazard, relative to the others.

The loss is the negative partial log-likelihood: of those at risk when an event came, how likely was it that it came to
this row. A row's derivatives are its risk times sums over the events up to its time.
"""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.metrics.risk_sets import RiskSets
from dmlgbm.gbdt.objectives.protocol import (
    LARGEST_LOGARITHMIC_STEP,
    FloatArray,
    RareClassLimits,
    SingleArray,
    no_limits,
)
from dmlgbm.gbdt.objectives.targets import require_events
from dmlgbm.gbdt.threads import Workers


class Cox:
    """The partial likelihood over the rows of all processes; ties are Breslow's."""

    name = "cox"
    n_outputs = 1
    constant_hessian = False
    leaf_percentile = None
    largest_step = LARGEST_LOGARITHMIC_STEP

    def __init__(self, target: FloatArray, weights: RowWeights, exchange: Exchange) -> None:
        require_events(self.name, target, exchange)
        self.weights = weights
        self._event = target > 0.0
        self._sets = RiskSets(target, weights, exchange)

    def rare_class_limits(self) -> RareClassLimits:
        return no_limits(self.n_outputs)

    def base_scores(self) -> FloatArray:
        return np.zeros(1)

    def row_loss(self) -> None:
        return None

    def compute_gradients(
        self, score: FloatArray, gradients: SingleArray, hessians: SingleArray, workers: Workers, noise_key: np.uint64
    ) -> None:
        own, at_risk = self._sets.at_risk(score[0])
        events = self._sets.event_weight
        # From the last time on there may be nobody who weighs anything, and no event then.
        inverse = np.divide(1.0, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0.0)
        until, squared_until = np.cumsum(events * inverse), np.cumsum(events * inverse * inverse)
        expected = own * until[self._sets.time_of_row]
        slope = expected - np.where(self._event, self._sets.weight, 0.0)
        curvature = expected - own * own * squared_until[self._sets.time_of_row]
        gradients[0] = slope
        hessians[0] = np.maximum(curvature, np.abs(slope) / self.largest_step)
