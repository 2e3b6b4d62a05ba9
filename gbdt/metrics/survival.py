"""Metrics of survival times, which are negative where the event had not come when the row was last seen.

The likelihood of failure times is a mean over rows; the others need all rows in one place. The concordance index is
Harrell's, as lifelines and scikit-survival have it: the share of pairs in the right order among those of which it is
known who lived longer, equal predictions counting half. It counts pairs and knows no weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.row_weights import RowWeights
from dmlgbm.gbdt.kernels.metric_loops import logarithm
from dmlgbm.gbdt.kernels.survival import EXTREME, LOGISTIC, NORMAL, concordant_pairs, failure_time_losses
from dmlgbm.gbdt.metrics.exact_mean import ExactMean
from dmlgbm.gbdt.metrics.loss_metrics import SignedRowMean
from dmlgbm.gbdt.metrics.metric import Metric, Needs
from dmlgbm.gbdt.metrics.risk_sets import RiskSets

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SURVIVAL_METRICS = ("cox_nloglik", "aft_nloglik", "c_index")
DISTRIBUTIONS = {"normal": NORMAL, "logistic": LOGISTIC, "extreme": EXTREME}


@dataclass(frozen=True)
class SurvivalModel:
    """What a prediction says of a time."""

    distribution: str = "normal"  # of the logarithm of a time
    scale: float = 1.0
    predicts_risk: bool = False  # a higher prediction means a shorter time


def failure_time_loss(target: FloatArray, prediction: FloatArray, *, model: SurvivalModel) -> FloatArray:
    """Each row's negative log-likelihood of accelerated failure times, of either sign."""
    losses = np.empty(len(target))
    failure_time_losses(target, prediction, DISTRIBUTIONS[model.distribution], model.scale, losses)
    return losses


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
    mean = ExactMean()
    mean.add_signed(losses, None if weight is None else weight[rows])
    return mean.value()


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


def survival_metric(name: str, model: SurvivalModel) -> Metric:
    """The metric of that name for predictions of this model."""
    if name == "c_index":
        return Metric(name, Concordance(model), higher_is_better=True, needs=Needs.SURVIVAL)
    if name == "aft_nloglik":
        mean = SignedRowMean(name, partial(failure_time_loss, model=model))
        return Metric(name, mean, higher_is_better=False, needs=Needs.FAILURE_TIMES)
    return Metric(name, partial_likelihood_loss, higher_is_better=False, needs=Needs.HAZARDS)
