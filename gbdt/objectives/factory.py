"""From the name of an objective, or a user's function, to the objective itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_numbers import Segment, whole_table
from dmlgbm.gbdt.data.row_weights import RowWeights, settled_weights
from dmlgbm.gbdt.metrics.survival import DISTRIBUTIONS, SurvivalModel
from dmlgbm.gbdt.objectives.cox import Cox
from dmlgbm.gbdt.objectives.custom import Custom, ObjectiveFunction, count_arguments
from dmlgbm.gbdt.objectives.multiclass import Multiclass
from dmlgbm.gbdt.objectives.pointwise import AbsoluteError, Binary, FailureTime, Poisson, Quantile, SquaredError
from dmlgbm.gbdt.objectives.position_biases import PositionBiases
from dmlgbm.gbdt.objectives.protocol import NO_LARGEST_STEP, FloatArray, IntArray, Objective
from dmlgbm.gbdt.objectives.ranking import CrossEntropy, LambdaRank, Pairwise, require_pairs
from dmlgbm.gbdt.parameters import ParameterError

_CONSTANT_HESSIANS = ("regression", "regression_l1", "quantile")
OBJECTIVE_NAMES = (
    *("binary", "multiclass", "regression", "regression_l1", "quantile", "poisson", "cox", "aft"),
    *("lambdarank", "pairwise", "rank_xendcg"),
)


@dataclass(frozen=True)
class ObjectiveSettings:
    """Which objective, and what it needs to know besides the data."""

    name_or_callable: str | ObjectiveFunction
    n_classes: int = 1
    alpha: float = 0.9
    truncation_level: int = 30
    normalised_pairs: bool = True
    label_gain: tuple[float, ...] | None = None  # of labels 0, 1, ...; None for 2^l - 1
    learning_rate_of_biases: float = 0.1
    position_bias_regularization: float = 0.0
    distribution: str = "normal"
    distribution_scale: float = 1.0
    max_delta_step: float | None = None

    def __post_init__(self) -> None:
        step = self.max_delta_step
        if step is not None and not 0.0 <= step < math.inf:
            raise ParameterError(
                f"max_delta_step={step!r} is out of range: it must be None (chosen by the objective), 0 (no limit) or "
                "a positive number."
            )
        if self.distribution not in DISTRIBUTIONS:
            raise ParameterError(
                f"aft_loss_distribution={self.distribution!r} is not one of {', '.join(map(repr, DISTRIBUTIONS))}."
            )
        if not 0.0 < self.distribution_scale < math.inf:
            raise ParameterError(
                f"aft_loss_distribution_scale={self.distribution_scale!r} is out of range: it must be positive and "
                "finite."
            )

    @property
    def name(self) -> str:
        """The objective's name, "custom" for a function."""
        return "custom" if callable(self.name_or_callable) else self.name_or_callable

    @property
    def survival(self) -> SurvivalModel:
        """What predictions say of times."""
        return SurvivalModel(self.distribution, self.distribution_scale, predicts_risk=self.name == "cox")

    @property
    def n_outputs(self) -> int:
        """Scores a row: one for each class, where there are more than two."""
        several = self.name == "multiclass" or (self.name == "custom" and self.n_classes > 2)
        return self.n_classes if several else 1


def objective_for(
    settings: ObjectiveSettings,
    *,
    target: FloatArray,
    weight: FloatArray | None,
    group_starts: IntArray | None,
    most_repeated_rows: float = 0,
    segments: Sequence[Segment] | None = None,
    position: IntArray | None = None,
    exchange: Exchange = ALONE,
) -> Objective:
    """The objective over these rows, and those that other processes hold.

    `n_classes` matters to "multiclass" and functions, `alpha` to "quantile", `truncation_level` to "lambdarank" and
    "pairwise", and so do the places at which rows were shown, `position`; `segments`, the rows' numbers (without, they
    are all rows), to "rank_xendcg", and `group_starts`, the first row of each query and then the number of rows, to all
    that rank and to functions. Weights that are whole numbers stand for repeated rows up to `most_repeated_rows` of
    them, and always where hessians would be constant without them, which saves their rounding.
    """
    target = np.ascontiguousarray(target, np.float64)
    weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
    if callable(settings.name_or_callable):
        most = most_repeated_rows if count_arguments(settings.name_or_callable) == 2 else 0
        weights = settled_weights(weight, exchange, most_repeated_rows=most)
        objective: Objective = Custom(
            settings.name_or_callable, target, weight, weights, group_starts, settings.n_outputs
        )
    else:
        most = math.inf if settings.name_or_callable in _CONSTANT_HESSIANS else most_repeated_rows
        weights = settled_weights(weight, exchange, most_repeated_rows=most)
        if segments is None:
            segments = whole_table(len(target))
        objective = _named(settings, target, weights, group_starts, segments, exchange)
    if position is not None:
        require_pairs(settings.name)
        assert isinstance(objective, LambdaRank)
        rate, regularization = settings.learning_rate_of_biases, settings.position_bias_regularization
        objective.biases = PositionBiases(position, objective.weights, rate, regularization, exchange)
    if settings.max_delta_step is not None:
        objective.largest_step = settings.max_delta_step or NO_LARGEST_STEP
    return objective


def _named(
    settings: ObjectiveSettings,
    target: FloatArray,
    weights: RowWeights,
    group_starts: IntArray | None,
    segments: Sequence[Segment],
    exchange: Exchange,
) -> Objective:
    match settings.name_or_callable:
        case "binary":
            return Binary(target, weights, exchange)
        case "multiclass":
            return Multiclass(target, weights, exchange, settings.n_classes)
        case "regression":
            return SquaredError(target, weights, exchange)
        case "regression_l1":
            return AbsoluteError(target, weights, exchange)
        case "quantile":
            return Quantile(target, weights, exchange, settings.alpha)
        case "poisson":
            return Poisson(target, weights, exchange)
        case "cox":
            return Cox(target, weights, exchange)
        case "aft":
            return FailureTime(target, weights, exchange, settings.distribution, settings.distribution_scale)
        case "lambdarank" | "pairwise" as name:
            kind = LambdaRank if name == "lambdarank" else Pairwise
            pairs = settings.truncation_level, settings.normalised_pairs, settings.label_gain
            return kind(target, weights, group_starts, *pairs)
        case "rank_xendcg":
            return CrossEntropy(target, weights, group_starts, segments)
    raise ParameterError(
        f"objective={settings.name_or_callable!r} is not one of {', '.join(map(repr, OBJECTIVE_NAMES))} or a function."
    )
