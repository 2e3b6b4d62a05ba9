"""`scoring`: a scorer of scikit-learn's as the metric that early stopping watches.

A scorer asks an estimator for predictions. While a model learns, the scores of the evaluation rows are known already:
the estimator that the scorer gets predicts from these, and X is the column of row numbers. So a scorer works wherever
the rows are, and costs no prediction.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.metrics import Metric, default_metric, metrics_for
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.sklearn_api.tables.names import did_you_mean

if TYPE_CHECKING:
    from dmlgbm.sklearn_api.rows.labels import Labels
    from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray

LOSS = "loss"


def check_scoring(scoring: Any) -> None:
    """Whether `scoring` is None, "loss", a name that scikit-learn knows or a function."""
    if scoring is None or callable(scoring) or scoring == LOSS:
        return
    if not isinstance(scoring, str):
        raise TypeError(f"scoring must be None, 'loss', the name of a scorer or a function, got {scoring!r}.")
    _scorer_named(scoring)


def scorer_metrics(
    estimator: Any, objective: ObjectiveSettings, columns: Columns, classes: Labels | None
) -> list[Metric]:
    """What `scoring` asks early stopping to watch; empty if that is left to `eval_metric`."""
    scoring = getattr(estimator, "scoring", None)
    if scoring is None:
        return []
    if isinstance(scoring, str) and scoring == LOSS:
        if objective.name == "custom":
            raise ValueError("scoring='loss' needs a loss, and a custom objective has none: set eval_metric instead.")
        name = default_metric(objective.name)
        return metrics_for([name], objective_alpha=objective.alpha, eval_at=(), survival=objective.survival)
    scorer = _scorer_named(scoring) if isinstance(scoring, str) else scoring
    fitted = {
        "booster_": Booster((), np.zeros(objective.n_outputs), objective.name, columns),
        "best_iteration_": None,
        "n_features_in_": columns.n_features,
        **({} if classes is None else {"classes_": classes}),
    }
    score = _Score(scorer, type(estimator), {**estimator.get_params(deep=False), **fitted}, classes)
    return [Metric(_name(scoring), score, higher_is_better=True, of_raw_scores=True)]


@dataclass(frozen=True)
class _Score:
    """A metric function: the scorer's value for an estimator that predicts the given scores."""

    scorer: Callable[..., float]
    kind: type[Any]
    state: dict[str, Any]
    classes: Labels | None

    def __call__(
        self, target: FloatArray, score: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        model = object.__new__(self.kind)
        vars(model).update(self.state, _scores_in_fit=np.atleast_2d(score))
        y = target if self.classes is None else self.classes[target.astype(np.intp)]
        rows = np.arange(len(target))[:, None]
        weighted = {} if weight is None or not _takes_weight(self.scorer) else {"sample_weight": weight}
        value = self.scorer(model, rows, y, **weighted)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise TypeError(f"The scorer of scoring must return a number, got {value!r}.") from None


def _scorer_named(name: str) -> Callable[..., float]:
    from sklearn.metrics import get_scorer, get_scorer_names

    known = get_scorer_names()
    if name not in known:
        raise ParameterError(f"scoring={name!r} is no scorer of scikit-learn{did_you_mean(name, known)}.")
    return get_scorer(name)


def _takes_weight(scorer: Callable[..., Any]) -> bool:
    parameters = inspect.signature(scorer).parameters.values()
    return any(each.name == "sample_weight" or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def _name(scoring: Any) -> str:
    if isinstance(scoring, str):
        return scoring
    function = getattr(scoring, "_score_func", scoring)  # that of a scorer of make_scorer
    return str(getattr(function, "__name__", "score"))
