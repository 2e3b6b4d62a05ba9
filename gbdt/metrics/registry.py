"""Which metrics there are, by name.

Names are LightGBM's where it has the metric; the names of XGBoost, CatBoost and scikit-learn are accepted as aliases
where they mean the same number. Ranking metrics become one metric for each position they are asked for, by `eval_at`
or by name: `ndcg@1`, `ndcg@5`. A name may hold a level too: `pinball@0.1`, `top_3_error`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from dmlgbm.gbdt.metrics import area_under_curve, class_losses, confusion_counts, precision_recall, ranking, row_losses
from dmlgbm.gbdt.metrics.calibration import CalibrationError
from dmlgbm.gbdt.metrics.confusion_counts import ConfusionMetric
from dmlgbm.gbdt.metrics.determination import RSquared
from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.metrics.loss_metrics import LOSS_METRICS, loss_metric
from dmlgbm.gbdt.metrics.metric import Metric, Needs
from dmlgbm.gbdt.metrics.ranking import MeanOfAllQueries, QueryMean, QueryScore
from dmlgbm.gbdt.metrics.row_losses import RootRowMean, RowMean
from dmlgbm.gbdt.metrics.survival import SURVIVAL_METRICS, SurvivalModel, survival_metric
from dmlgbm.gbdt.parameters import ParameterError

# Losses, of which less is better.
_ROW_METRICS: dict[str, RowMean] = {
    "binary_logloss": RowMean("binary_logloss", row_losses.binary_log_loss),
    "binary_error": RowMean("binary_error", row_losses.binary_error),
    "multi_logloss": RowMean("multi_logloss", row_losses.multiclass_log_loss, several_classes=True),
    "multi_error": RowMean("multi_error", row_losses.multiclass_error, several_classes=True),
    "rmse": RootRowMean("rmse", row_losses.squared_error),
    "l2": RowMean("l2", row_losses.squared_error),
    "l1": RowMean("l1", row_losses.absolute_error),
    "poisson": RowMean("poisson", row_losses.poisson_deviance),
}

# Metrics of which more is better, and less.
_HIGHER = [
    Metric("auc", area_under_curve.area_under_curve, True, needs=Needs.ONE_PREDICTION, instead="auc_ovr or auc_ovo"),
    Metric("auc_ovr", area_under_curve.one_against_rest, True, needs=Needs.SEVERAL_CLASSES, instead="auc"),
    Metric("auc_ovo", area_under_curve.one_against_one, True, needs=Needs.SEVERAL_CLASSES, instead="auc"),
    Metric("average_precision", precision_recall.average_precision, True),
    Metric("aucpr", precision_recall.interpolated_area, True, needs=Needs.ONE_PREDICTION, instead="average_precision"),
    Metric("accuracy", RowMean("accuracy", class_losses.is_right, several_classes=None), True, needs=Needs.CLASSES),
    Metric(
        "f1",
        ConfusionMetric(confusion_counts.f1),
        True,
        needs=Needs.TWO_CLASSES,
        instead="f1_macro, f1_micro or f1_weighted for more classes",
    ),
    Metric("f1_macro", ConfusionMetric(confusion_counts.f1_macro), True, needs=Needs.CLASSES),
    Metric("f1_micro", ConfusionMetric(confusion_counts.f1_micro), True, needs=Needs.CLASSES),
    Metric("f1_weighted", ConfusionMetric(confusion_counts.f1_weighted), True, needs=Needs.CLASSES),
    Metric("balanced_accuracy", ConfusionMetric(confusion_counts.balanced_accuracy), True, needs=Needs.CLASSES),
    Metric("mcc", ConfusionMetric(confusion_counts.matthews_correlation), True, needs=Needs.CLASSES),
    Metric("r2", RSquared(), True, needs=Needs.ONE_PREDICTION),
]
_LOWER = [
    Metric("brier", RowMean("brier", class_losses.brier_loss, several_classes=None), False, needs=Needs.CLASSES),
    Metric("calibration_error", CalibrationError(), False, needs=Needs.CLASSES),
    Metric(
        "rmsle",
        RootRowMean("rmsle", row_losses.squared_log_error),
        False,
        needs=Needs.ONE_PREDICTION,
        targets_above=-1.0,
    ),
]
_OTHER_METRICS = {metric.name: metric for metric in [*_HIGHER, *_LOWER]}

_RANKING_METRICS: dict[str, QueryScore] = {
    "ndcg": ranking.ndcg,
    "map": ranking.average_precision,
    "mrr": ranking.reciprocal_rank,
    "err": ranking.expected_reciprocal_rank,
}
# Those whose score of a query depends on the labels of others.
_OF_ALL_QUERIES = ("err",)

_ALIASES = {
    "binary": "binary_logloss",
    "logloss": "binary_logloss",
    "log_loss": "binary_logloss",
    "Logloss": "binary_logloss",
    "error": "binary_error",
    "multiclass": "multi_logloss",
    "softmax": "multi_logloss",
    "mlogloss": "multi_logloss",
    "MultiClass": "multi_logloss",
    "merror": "multi_error",
    "roc_auc": "auc",
    "AUC": "auc",
    "roc_auc_ovr": "auc_ovr",
    "roc_auc_ovo": "auc_ovo",
    "average_precision_score": "average_precision",
    "Accuracy": "accuracy",
    "accuracy_score": "accuracy",
    "F1": "f1",
    "f1_score": "f1",
    "TotalF1": "f1_weighted",
    "BalancedAccuracy": "balanced_accuracy",
    "balanced_accuracy_score": "balanced_accuracy",
    "MCC": "mcc",
    "matthews_corrcoef": "mcc",
    "BrierScore": "brier",
    "brier_score_loss": "brier",
    "R2": "r2",
    "r2_score": "r2",
    "root_mean_squared_log_error": "rmsle",
    "l2_root": "rmse",
    "root_mean_squared_error": "rmse",
    "RMSE": "rmse",
    "mse": "l2",
    "mean_squared_error": "l2",
    "regression": "l2",
    "mae": "l1",
    "mean_absolute_error": "l1",
    "MAE": "l1",
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
    "mean_absolute_percentage_error": "mape",
    "MAPE": "mape",
    "xentropy": "cross_entropy",
    "log_cosh": "logcosh",
    "gamma-nloglik": "gamma",
    "gamma-deviance": "gamma_deviance",
    "mean_gamma_deviance": "gamma_deviance",
    "multiclassova": "multi_logloss",
}

_NAMES = (*_ROW_METRICS, "quantile", *_OTHER_METRICS, *_RANKING_METRICS, *LOSS_METRICS, *SURVIVAL_METRICS)

# Names that hold a number; they are shown as the names of metrics, and in what is said about an unknown one.
_PATTERNS = {
    "pinball@0.1": re.compile(r"(?:pinball|quantile)@(.*)"),
    "top_3_error": re.compile(r"top_(\d+)_error"),
    "ndcg@5": re.compile(rf"({'|'.join(_RANKING_METRICS)})@(.*)"),
}

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
    "multiclassova": "multi_logloss",
    **{name: name for name in LOSS_METRICS if name != "gamma_deviance"},
    "pairwise": "ndcg",
    "rank_xendcg": "ndcg",
}
_USUAL_CONSTANTS = LossConstants()
_USUAL_TIMES = SurvivalModel()


def default_metric(objective: str) -> str:
    """The name of the metric that is evaluated when none is asked for."""
    return _DEFAULTS[objective]


def is_metric(name: str) -> bool:
    """Whether a metric has this name, whatever may be wrong with the number in it."""
    return _ALIASES.get(name, name) in _NAMES or any(pattern.fullmatch(name) for pattern in _PATTERNS.values())


def metrics_for(
    names: Iterable[str],
    *,
    objective_alpha: float,
    eval_at: Iterable[int],
    constants: LossConstants = _USUAL_CONSTANTS,
    label_gain: tuple[float, ...] | None = None,
    survival: SurvivalModel = _USUAL_TIMES,
) -> list[Metric]:
    """The metrics of the given names or aliases, each once, in the given order.

    `objective_alpha` is that of "quantile", "huber" and "expectile"; `constants` are those of other losses, `eval_at`
    the numbers of positions of ranking metrics, and `label_gain` what labels gain in "ndcg"; `survival` says what
    predictions are to metrics of times.
    """
    settings = _Settings(objective_alpha, list(dict.fromkeys(eval_at)), constants, label_gain, survival)
    metrics: dict[str, Metric] = {}
    for name in names:
        for metric in _metrics_called(name, settings):
            metrics.setdefault(metric.name, metric)
    return list(metrics.values())


class _Settings(NamedTuple):
    """What metrics have to know besides their names."""

    alpha: float
    positions: Sequence[int]
    constants: LossConstants
    label_gain: tuple[float, ...] | None
    survival: SurvivalModel


def _metrics_called(given: str, settings: _Settings) -> list[Metric]:
    name = _ALIASES.get(given, given)
    if name in _OTHER_METRICS:
        return [_OTHER_METRICS[name]]
    if name in _RANKING_METRICS:
        return _at_positions(name, settings.positions, settings.label_gain)
    if name in LOSS_METRICS:
        return [loss_metric(name, settings.alpha, settings.constants)]
    if name in SURVIVAL_METRICS:
        return [survival_metric(name, settings.survival)]
    if name == "quantile":
        return [_pinball(name, settings.alpha)]
    if name in _ROW_METRICS:
        mean = _ROW_METRICS[name]
        needs = Needs.SEVERAL_CLASSES if mean.several_classes else Needs.ONE_PREDICTION
        return [Metric(name, mean, higher_is_better=False, needs=needs)]
    return [_with_number(str(given), settings.label_gain)]


def _with_number(name: str, label_gain: tuple[float, ...] | None) -> Metric:
    """The metric of a name that holds a number."""
    level, k, at = (pattern.fullmatch(name) for pattern in _PATTERNS.values())
    if level is not None:
        return _pinball(f"pinball@{level[1]}", _level(name, level[1]))
    if k is not None:
        n_ranks = int(k[1])
        if n_ranks < 1:
            raise ParameterError(f"eval_metric={name!r} must name a number of classes from 1 on, such as top_3_error.")
        loss = partial(class_losses.top_k_error, k=n_ranks)
        mean = RowMean(name, loss, several_classes=None)
        return Metric(name, mean, higher_is_better=False, needs=Needs.CLASSES, n_ranks=n_ranks)
    if at is not None:
        if not at[2].isdecimal():
            raise ParameterError(f"eval_metric={name!r} must name a number of positions, such as {at[1]}@5.")
        return _at_positions(at[1], [int(at[2])], label_gain)[0]
    raise ValueError(_unknown(name))


def _pinball(name: str, level: float) -> Metric:
    loss = RowMean(name, partial(row_losses.quantile_loss, alpha=level))
    return Metric(name, loss, higher_is_better=False, needs=Needs.ONE_PREDICTION)


def _level(name: str, text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    if not 0.0 < level < 1.0:
        raise ParameterError(f"eval_metric={name!r} must name a level above 0 and below 1, such as pinball@0.1.")
    return level


def _at_positions(name: str, positions: Sequence[int], label_gain: tuple[float, ...] | None) -> list[Metric]:
    for position in positions:
        if position < 1:
            raise ValueError(f"eval_at must hold whole numbers of positions from 1 on, got {position}")
    score = partial(ranking.ndcg, label_gain=label_gain) if name == "ndcg" else _RANKING_METRICS[name]
    metrics = []
    for k in positions:
        mean = QueryMean(f"{name}@{k}", score, k)
        function = MeanOfAllQueries(mean) if name in _OF_ALL_QUERIES else mean
        metrics.append(Metric(mean.name, function, higher_is_better=True, needs=Needs.QUERIES))
    return metrics


def _unknown(name: str) -> str:
    by_lower_case = {each.lower(): each for each in (*_ALIASES, *_PATTERNS, *_NAMES)}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    suggestion = f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""
    known = ", ".join([*_NAMES, *_PATTERNS])
    return f"eval_metric names an unknown metric {name!r}.{suggestion} Known metrics: {known}."
