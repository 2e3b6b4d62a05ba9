"""Scorers of scikit-learn's as metrics: that of `scoring`, which early stopping watches, and those in `eval_metric`.

A scorer asks an estimator for predictions. While a model learns, the scores of the evaluation rows are known already:
the estimator that the scorer gets predicts from these, and X is the column of row numbers. So a scorer works wherever
the rows are, and costs no prediction.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.metrics import Metric, default_metric, is_metric, metrics_for
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import ParameterError
from dmlgbm.sklearn_api.tables.names import did_you_mean

if TYPE_CHECKING:
    from dmlgbm.sklearn_api.rows.labels import Labels
    from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray

LOSS = "loss"
# Ranking metrics are refused by name where there are no queries, whatever their positions are.
_POSITIONS_WITHOUT_QUERIES = (1,)


def check_scoring(scoring: Any) -> None:
    """Whether `scoring` is None, "loss", a name that scikit-learn knows or a function."""
    if scoring is None or callable(scoring) or scoring == LOSS:
        return
    if not isinstance(scoring, str):
        raise TypeError(f"scoring must be None, 'loss', the name of a scorer or a function, got {scoring!r}.")
    _scorer_named(scoring)


@dataclass(frozen=True)
class WatchedModel:
    """What metrics have to know of the model that learns."""

    estimator: Any
    objective: ObjectiveSettings
    columns: Columns
    classes: Labels | None

    @property
    def eval_at(self) -> Sequence[int]:
        """The numbers of positions of ranking metrics."""
        return getattr(self.estimator, "eval_at", _POSITIONS_WITHOUT_QUERIES)

    def metrics_named(self, names: Sequence[str]) -> list[Metric]:
        """Our metrics of these names, as they are for this objective."""
        objective = self.objective
        return metrics_for(
            names,
            objective_alpha=objective.alpha,
            eval_at=self.eval_at,
            constants=objective.constants,
            label_gain=objective.label_gain,
            survival=objective.survival,
        )

    def asked_by_scoring(self) -> list[Metric]:
        """What `scoring` asks early stopping to watch; empty if that is left to `eval_metric`."""
        scoring = getattr(self.estimator, "scoring", None)
        if scoring is None:
            return []
        if isinstance(scoring, str) and scoring == LOSS:
            if self.objective.name == "custom":
                raise ValueError(
                    "scoring='loss' needs a loss, and a custom objective has none: set eval_metric instead."
                )
            return self.metrics_named([default_metric(self.objective.name)])
        scorer = _scorer_named(scoring) if isinstance(scoring, str) else scoring
        return [self._metric(scorer, _name(scoring), "scoring")]

    def metric_of(self, scorer: Any) -> Metric:
        """The metric of a scorer in `eval_metric`, which is given as it is or by its name."""
        found = _scorer_named(scorer) if isinstance(scorer, str) else scorer
        asked = getattr(found, "_response_method", "predict")
        methods = [asked] if isinstance(asked, str) else list(asked)
        if not any(hasattr(self.estimator, method) for method in methods):
            raise ParameterError(
                f"eval_metric={_name(scorer)!r} needs {' or '.join(methods)}, which {type(self.estimator).__name__} "
                "does not have: choose another metric."
            )
        return self._metric(found, _name(scorer), "eval_metric")

    def require_fit(self, metrics: Sequence[Metric]) -> None:
        """Refuse metrics that are not for this model."""
        has_queries = bool(self.estimator._needs_queries)
        for metric in metrics:
            metric.require(
                n_outputs=self.objective.n_outputs,
                n_classes=self.objective.n_classes,
                has_queries=has_queries,
                objective=self.objective.name,
            )

    def _metric(self, scorer: Callable[..., float], name: str, parameter: str) -> Metric:
        estimator, classes = self.estimator, self.classes
        fitted = {
            "booster_": Booster((), np.zeros(self.objective.n_outputs), self.objective.name, self.columns),
            "best_iteration_": None,
            "n_features_in_": self.columns.n_features,
            **({} if classes is None else {"classes_": classes}),
        }
        score = _Score(name, scorer, type(estimator), {**estimator.get_params(deep=False), **fitted}, classes)
        if classes is not None and len(classes) == 2 and is_scorer(scorer):
            _require_positive_class(score, classes, parameter)
        return Metric(name, score, higher_is_better=True, of_raw_scores=True)


def is_scorer(entry: Any) -> bool:
    """Whether an entry of `eval_metric` is a scorer of scikit-learn's, or the name of one that is no metric of ours."""
    if not isinstance(entry, str):
        return type(entry).__module__ == "sklearn.metrics._scorer"
    if is_metric(entry):
        return False
    from sklearn.metrics import get_scorer_names

    return entry in get_scorer_names()


@dataclass(frozen=True)
class _Score:
    """A metric function: the scorer's value for an estimator that predicts the given scores."""

    name: str
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
            raise TypeError(f"The scorer {self.name!r} must return a number, got {value!r}.") from None


def _require_positive_class(score: _Score, classes: Labels, parameter: str) -> None:
    """Refuse a scorer that takes 1 for the positive class where there is no such label: one call tells."""
    try:
        score(np.array([0.0, 1.0]), np.zeros(2), None, None)
    except ValueError as error:
        if "pos_label" not in str(error):
            raise
        first, second = (str(label) for label in classes)
        raise ParameterError(
            f"{parameter}={score.name!r} cannot tell which of the classes {first!r} and {second!r} is the positive "
            f"one: make the scorer with pos_label={second!r}, or name the classes 0 and 1."
        ) from None


def _scorer_named(name: str) -> Callable[..., float]:
    from sklearn.metrics import get_scorer, get_scorer_names

    known = get_scorer_names()
    if name not in known:
        raise ParameterError(f"scoring={name!r} is no scorer of scikit-learn{did_you_mean(name, known)}.")
    return get_scorer(name)


def _takes_weight(scorer: Callable[..., Any]) -> bool:
    # A scorer of make_scorer hands weights on to its function, which may know none.
    try:
        parameters = inspect.signature(getattr(scorer, "_score_func", scorer)).parameters.values()
    except ValueError:  # compiled functions may have none
        return False
    return any(each.name == "sample_weight" or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def _name(scorer: Any) -> str:
    if isinstance(scorer, str):
        return scorer
    function = getattr(scorer, "_score_func", scorer)  # that of a scorer of make_scorer
    return str(getattr(function, "__name__", "score"))
