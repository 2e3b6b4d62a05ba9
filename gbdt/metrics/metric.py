"""What a metric is: a function with a name and a direction, and what it needs of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.parameters import ParameterError

FloatArray = npt.NDArray[np.float64]
MetricFunction = Callable[[FloatArray, FloatArray, FloatArray | None, npt.NDArray[np.int64] | None], float]


class Needs(Enum):
    """What a metric needs of a model, in the words that are said where it is missing."""

    ANYTHING = ""
    ONE_PREDICTION = "one prediction for each row"
    SEVERAL_CLASSES = "the probabilities of several classes"
    TWO_CLASSES = "a classifier of two classes"
    CLASSES = "a classifier"
    QUERIES = "a ranker, which knows the rows of a query"
    HAZARDS = "objective 'cox', which predicts hazards"
    FAILURE_TIMES = "objective 'aft', which predicts times"
    SURVIVAL = "survival times, with objective 'cox' or 'aft'"


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
    needs: Needs = Needs.ANYTHING
    targets_above: float | None = None  # what targets must be above
    n_ranks: int = 0  # of classes by probability that it looks at: it needs more classes
    instead: str = ""  # metrics for models that this one is not for

    def require(self, *, n_outputs: int, n_classes: int, has_queries: bool, objective: str) -> None:
        """Refuse a model that this metric is not for; `n_classes` is below two where there are none."""
        met = {
            Needs.ANYTHING: True,
            Needs.ONE_PREDICTION: n_outputs == 1,
            Needs.SEVERAL_CLASSES: n_outputs > 1,
            Needs.TWO_CLASSES: n_outputs == 1 and n_classes == 2,
            Needs.CLASSES: n_classes > 1,
            Needs.QUERIES: has_queries,
            Needs.HAZARDS: objective == "cox",
            Needs.FAILURE_TIMES: objective == "aft",
            Needs.SURVIVAL: objective in ("cox", "aft"),
        }
        if not met[self.needs]:
            instead = self.instead or "another metric"
            raise ParameterError(f"eval_metric={self.name!r} needs {self.needs.value}: choose {instead}.")
        if met[Needs.SURVIVAL] and self.needs is Needs.ONE_PREDICTION:
            # It would take the minus sign of a censored row for a part of the value.
            raise ParameterError(
                f"eval_metric={self.name!r} cannot read survival times, whose sign says whether the event came: choose "
                f"c_index or {objective}_nloglik."
            )
        if self.n_ranks >= max(n_classes, 1):
            raise ParameterError(
                f"eval_metric={self.name!r} is always 0 for {n_classes} classes: ask for fewer than {n_classes}."
            )

    def require_targets(self, lowest: float, set_name: str) -> None:
        """Refuse targets for which this metric has no value."""
        if self.targets_above is not None and not lowest > self.targets_above:
            raise ValueError(
                f"eval_metric={self.name!r} needs targets above {self.targets_above:g}, but the evaluation set "
                f"{set_name!r} has one of {lowest:g}: choose another metric."
            )
