"""Metrics of survival times, which are negative where the event had not come when the row was last seen.

They need all rows in one place. The concordance index is Harrell's, as lifelines and scikit-survival have it: the share
of pairs in the right order among those of which it is known who lived longer, equal predictions counting half. It
counts pairs and knows no weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.kernels.survival import EXTREME, LOGISTIC, NORMAL, concordant_pairs, failure_time_losses
from dmlgbm.gbdt.metrics.exact_mean import ExactMean
from dmlgbm.gbdt.metrics.risk_sets import RiskSets

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DISTRIBUTIONS = {"normal": NORMAL, "logistic": LOGISTIC, "extreme": EXTREME}


@dataclass(frozen=True)
class SurvivalModel:
    """What a prediction says of a time."""

    distribution: str = "normal"  # of the logarithm of a time
    scale: float = 1.0
    predicts_risk: bool = False  # a higher prediction means a shorter time


@dataclass(frozen=True)
class FailureTimeLoss:
    """The mean negative log-likelihood of accelerated failure times."""

    model: SurvivalModel

    def __call__(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        losses = np.empty(len(target))
        kind = DISTRIBUTIONS[self.model.distribution]
        failure_time_losses(target, prediction, kind, self.model.scale, losses)
        return _mean(losses, weight)


def partial_likelihood_loss(
    target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
) -> float:
    """Cox's negative partial log-likelihood per event, for predicted hazards."""
    event = target > 0.0
    if not event.any():
        return math.nan
    score = logarithm(prediction)
    sets = RiskSets(target, RowWeights(weight))
    own, at_risk = sets.at_risk(score)
    rows = np.flatnonzero(event if weight is None else event & (weight > 0.0))
    everybody = np.ldexp(at_risk, sets.weight_bits)[sets.time_of_row[rows]]
    losses = logarithm(everybody) - logarithm(own[rows] / sets.share[rows])
    return _mean(losses, None if weight is None else weight[rows])


@dataclass(frozen=True)
class Concordance:
    """Harrell's concordance index; 0.5 if there is no pair of which the order is known."""

    model: SurvivalModel

    def __call__(
        self, target: FloatArray, prediction: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        if np.isnan(prediction).any():
            return math.nan
        risk = prediction if self.model.predicts_risk else -prediction
        order = np.argsort(np.abs(target), kind="stable")
        _, time_rank = np.unique(np.abs(target[order]), return_inverse=True)
        distinct, risk_rank = np.unique(risk[order], return_inverse=True)
        pairs, counts = np.zeros(3, np.int64), np.zeros(len(distinct) + 1, np.int64)
        event = (target[order] > 0.0).astype(np.uint8)
        concordant_pairs(time_rank.astype(np.int64), risk_rank.astype(np.int64), event, counts, pairs)
        right, tied, known = pairs.tolist()
        return (2 * right + tied) / (2 * known) if known else 0.5


def _mean(values: FloatArray, weight: FloatArray | None) -> float:
    """The exact mean of values of either sign."""
    positive, negative = ExactMean(), ExactMean()
    positive.add(np.maximum(values, 0.0), weight)
    negative.add(np.maximum(-values, 0.0), weight)
    return positive.value() - negative.value()
