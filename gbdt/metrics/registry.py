"""Which metrics there are, by name.

Names are LightGBM's; the names of XGBoost and scikit-learn are accepted as aliases. NDCG and MAP become one metric
for each position they are asked for: `ndcg@1`, `ndcg@5`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.metrics import ranking, row_losses
from dmlgbm.gbdt.metrics.area_under_curve import area_under_curve
from dmlgbm.gbdt.metrics.ranking import QueryMean, QueryScore
from dmlgbm.gbdt.metrics.row_losses import RootRowMean, RowMean
from dmlgbm.gbdt.metrics.survival import Concordance, FailureTimeLoss, SurvivalModel, partial_likelihood_loss

FloatArray = npt.NDArray[np.float64]
MetricFunction = Callable[[FloatArray, FloatArray, FloatArray | None, npt.NDArray[np.int64] | None], float]


@dataclass(frozen=True)
class Metric:
    """A named function of (target, prediction, weight or None, group_starts or None).

    Targets are class numbers for classification. Predictions are probabilities or values on the scale of the target;
    for several classes they are class-major, [n_classes, n_rows]. A metric `of_raw_scores` gets what is before the
    link function instead.
    """

    name: str
    function: MetricFunction
    higher_is_better: bool
    of_raw_scores: bool = False


_ROW_METRICS: dict[str, MetricFunction] = {
    "binary_logloss": RowMean("binary_logloss", row_losses.binary_log_loss),
    "binary_error": RowMean("binary_error", row_losses.binary_error),
    "multi_logloss": RowMean("multi_logloss", row_losses.multiclass_log_loss, several_classes=True),
    "multi_error": RowMean("multi_error", row_losses.multiclass_error, several_classes=True),
    "rmse": RootRowMean("rmse", row_losses.squared_error),
    "l2": RowMean("l2", row_losses.squared_error),
    "l1": RowMean("l1", row_losses.absolute_error),
    "poisson": RowMean("poisson", row_losses.poisson_deviance),
}

_RANKING_METRICS = ("ndcg", "map")

_ALIASES = {
    "binary": "binary_logloss",
    "logloss": "binary_logloss",
    "log_loss": "binary_logloss",
    "error": "binary_error",
    "multiclass": "multi_logloss",
    "softmax": "multi_logloss",
    "mlogloss": "multi_logloss",
    "merror": "multi_error",
    "roc_auc": "auc",
    "l2_root": "rmse",
    "root_mean_squared_error": "rmse",
    "mse": "l2",
    "mean_squared_error": "l2",
    "regression": "l2",
    "mae": "l1",
    "mean_absolute_error": "l1",
    "regression_l1": "l1",
    "pinball": "quantile",
    "mean_poisson_deviance": "poisson",
    "cox": "cox_nloglik",
    "cox-nloglik": "cox_nloglik",
    "aft": "aft_nloglik",
    "aft-nloglik": "aft_nloglik",
    "concordance_index": "c_index",
    **dict.fromkeys(("lambdarank", "rank_xendcg", "xendcg", "xe_ndcg", "xe_ndcg_mart", "xendcg_mart"), "ndcg"),
    "mean_average_precision": "map",
}

_NAMES = (*_ROW_METRICS, "quantile", "cox_nloglik", "aft_nloglik", "c_index", "auc", *_RANKING_METRICS)
_USUAL_TIMES = SurvivalModel()

_DEFAULTS = {
    "binary": "binary_logloss",
    "multiclass": "multi_logloss",
    "regression": "l2",
    "regression_l1": "l1",
    "quantile": "quantile",
    "poisson": "poisson",
    "cox": "cox_nloglik",
    "aft": "aft_nloglik",
    "lambdarank": "ndcg",
    "pairwise": "ndcg",
    "rank_xendcg": "ndcg",
}


def default_metric(objective: str) -> str:
    """The name of the metric that is evaluated when none is asked for."""
    return _DEFAULTS[objective]


def metrics_for(
    names: Iterable[str],
    *,
    objective_alpha: float,
    eval_at: Iterable[int],
    label_gain: tuple[float, ...] | None = None,
    survival: SurvivalModel = _USUAL_TIMES,
) -> list[Metric]:
    """The metrics of the given names or aliases, each once, in the given order.

    `objective_alpha` is the level of "quantile"; `eval_at` are the numbers of positions of "ndcg" and "map", and
    `label_gain` what labels gain in "ndcg"; `survival` says what predictions are to metrics of times.
    """
    positions = list(dict.fromkeys(eval_at))
    metrics = []
    for name in dict.fromkeys(_canonical_name(name) for name in names):
        if name in _ROW_METRICS:
            metrics.append(Metric(name, _ROW_METRICS[name], higher_is_better=False))
        elif name == "quantile":
            loss = partial(row_losses.quantile_loss, alpha=objective_alpha)
            metrics.append(Metric(name, RowMean(name, loss), higher_is_better=False))
        elif name == "aft_nloglik":
            metrics.append(Metric(name, FailureTimeLoss(survival), higher_is_better=False))
        elif name == "cox_nloglik":
            metrics.append(Metric(name, partial_likelihood_loss, higher_is_better=False))
        elif name == "c_index":
            metrics.append(Metric(name, Concordance(survival), higher_is_better=True))
        elif name == "auc":
            metrics.append(Metric(name, area_under_curve, higher_is_better=True))
        else:
            score = partial(ranking.ndcg, label_gain=label_gain) if name == "ndcg" else ranking.average_precision
            metrics.extend(_at_positions(name, score, positions))
    return metrics


def _at_positions(name: str, score: QueryScore, positions: list[int]) -> list[Metric]:
    for position in positions:
        if position < 1:
            raise ValueError(f"eval_at must hold whole numbers of positions from 1 on, got {position}")
    return [Metric(f"{name}@{k}", QueryMean(f"{name}@{k}", score, k), higher_is_better=True) for k in positions]


def _canonical_name(name: str) -> str:
    canonical = _ALIASES.get(name, name)
    if canonical in _NAMES:
        return canonical
    close = difflib.get_close_matches(str(name), [*_NAMES, *_ALIASES], n=1)
    suggestion = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"eval_metric names an unknown metric {name!r}.{suggestion} Known metrics: {', '.join(_NAMES)}.")
