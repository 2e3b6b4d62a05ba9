"""What is predicted and how a prediction is scored: one headline metric for each task, the same for every system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from benchmarks.datasets import Array, Split

Task = Literal["binary", "multiclass", "regression", "poisson", "ranking"]


@dataclass(frozen=True)
class Metric:
    """A score of predictions on a test split; for classifiers the prediction is the matrix of probabilities."""

    name: str
    higher_is_better: bool
    score: Callable[[Split, Array], float]


def _area_under_curve(split: Split, prediction: Array) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(split.target, prediction[:, 1]))


def _log_loss(split: Split, prediction: Array) -> float:
    import numpy as np
    from sklearn.metrics import log_loss

    return float(log_loss(split.target, prediction, labels=np.arange(prediction.shape[1])))


def _root_mean_squared_error(split: Split, prediction: Array) -> float:
    from sklearn.metrics import root_mean_squared_error

    return float(root_mean_squared_error(split.target, prediction))


def _poisson_deviance(split: Split, prediction: Array) -> float:
    from sklearn.metrics import mean_poisson_deviance

    return float(mean_poisson_deviance(split.target, prediction, sample_weight=split.weight))


def _ndcg_at_10(split: Split, prediction: Array) -> float:
    """Mean over the queries that have something to order: two documents or more, one of them relevant."""
    import numpy as np
    from sklearn.metrics import ndcg_score

    assert split.query is not None
    query_starts = np.flatnonzero(np.diff(split.query)) + 1
    labels_of_queries, scores_of_queries = np.split(split.target, query_starts), np.split(prediction, query_starts)
    gains = [
        ndcg_score([np.exp2(labels) - 1.0], [scores], k=10)
        for labels, scores in zip(labels_of_queries, scores_of_queries, strict=True)
        if len(labels) > 1 and labels.any()
    ]
    return float(np.mean(gains))


METRICS: dict[Task, Metric] = {
    "binary": Metric("AUC", True, _area_under_curve),
    "multiclass": Metric("log loss", False, _log_loss),
    "regression": Metric("RMSE", False, _root_mean_squared_error),
    "poisson": Metric("Poisson deviance", False, _poisson_deviance),
    "ranking": Metric("NDCG@10", True, _ndcg_at_10),
}
