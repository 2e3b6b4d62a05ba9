"""From the name of an objective, or a user's function, to the objective itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dmlgbm.gbdt.data.exchange import ALONE, Exchange
from dmlgbm.gbdt.data.row_numbers import Segment, whole_table
from dmlgbm.gbdt.data.row_weights import RowWeights, settled_weights
from dmlgbm.gbdt.metrics.loss_constants import LossConstants
from dmlgbm.gbdt.metrics.survival import DISTRIBUTIONS, SurvivalModel
from dmlgbm.gbdt.objectives.binary import NO_BALANCE, Balance, Binary, CrossEntropy, Focal
from dmlgbm.gbdt.objectives.cox import Cox
from dmlgbm.gbdt.objectives.custom import Custom, ObjectiveFunction, count_arguments
from dmlgbm.gbdt.objectives.failure_times import FailureTime
from dmlgbm.gbdt.objectives.multiclass import Multiclass, OneVsAll
from dmlgbm.gbdt.objectives.pointwise import AbsoluteError, Quantile, SquaredError
from dmlgbm.gbdt.objectives.position_biases import PositionBiases
from dmlgbm.gbdt.objectives.protocol import NO_LARGEST_STEP, FloatArray, IntArray, Objective
from dmlgbm.gbdt.objectives.ranking import LambdaRank, ListwiseCrossEntropy, Pairwise, require_pairs
from dmlgbm.gbdt.objectives.rates import Gamma, Poisson, Tweedie
from dmlgbm.gbdt.objectives.robust import AbsolutePercentageError, Expectile, Fair, Huber, LogCosh
from dmlgbm.gbdt.parameters import ParameterError

_CONSTANT_HESSIANS = ("regression", "regression_l1", "quantile", "huber", "mape")
_BALANCED = ("binary", "focal", "multiclassova")
_SEVERAL_OUTPUTS = ("multiclass", "multiclassova")
CLASSIFIER_OBJECTIVES = ("binary", "focal", *_SEVERAL_OUTPUTS)
SURVIVAL_OBJECTIVES = ("cox", "aft")
REGRESSOR_OBJECTIVES = (
    *("regression", "regression_l1", "quantile", "huber", "fair", "logcosh", "expectile", "mape"),
    *("poisson", "gamma", "tweedie", "cross_entropy", *SURVIVAL_OBJECTIVES),
)
RANKER_OBJECTIVES = ("lambdarank", "rank_xendcg", "pairwise")
OBJECTIVE_NAMES = (*CLASSIFIER_OBJECTIVES, *REGRESSOR_OBJECTIVES, *RANKER_OBJECTIVES)
_USUAL_CONSTANTS = LossConstants()


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
    constants: LossConstants = _USUAL_CONSTANTS
    balance: Balance = NO_BALANCE

    def __post_init__(self) -> None:
        self.balance.require_valid(self.name, _BALANCED)
        self._require_alpha()
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

    def _require_alpha(self) -> None:
        if self.name == "huber":
            if not 0.0 < self.alpha < math.inf:
                raise ParameterError(f"alpha={self.alpha!r} is out of range: Huber's threshold must be above 0.")
        elif not 0.0 < self.alpha < 1.0:
            raise ParameterError(f"alpha={self.alpha!r} is out of range: a level must be above 0 and below 1.")

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
        several = self.name in _SEVERAL_OUTPUTS or (self.name == "custom" and self.n_classes > 2)
        return self.n_classes if several else 1


_WeighedRows = tuple[FloatArray, RowWeights, Exchange]
_OF_ROWS: dict[str, Callable[[ObjectiveSettings, _WeighedRows], Objective]] = {
    "binary": lambda own, rows: Binary(*rows, own.balance),
    "focal": lambda own, rows: Focal(*rows, own.balance, own.constants.focal_gamma, own.constants.focal_alpha),
    "multiclass": lambda own, rows: Multiclass(*rows, own.n_classes),
    "multiclassova": lambda own, rows: OneVsAll(*rows, own.n_classes, own.balance),
    "regression": lambda _, rows: SquaredError(*rows),
    "regression_l1": lambda _, rows: AbsoluteError(*rows),
    "quantile": lambda own, rows: Quantile(*rows, own.alpha),
    "huber": lambda own, rows: Huber(*rows, own.alpha),
    "fair": lambda own, rows: Fair(*rows, own.constants.fair_c),
    "logcosh": lambda _, rows: LogCosh(*rows),
    "expectile": lambda own, rows: Expectile(*rows, own.alpha),
    "mape": lambda _, rows: AbsolutePercentageError(*rows),
    "poisson": lambda _, rows: Poisson(*rows),
    "gamma": lambda _, rows: Gamma(*rows),
    "tweedie": lambda own, rows: Tweedie(*rows, own.constants.tweedie_variance_power),
    "cross_entropy": lambda _, rows: CrossEntropy(*rows),
    "cox": lambda _, rows: Cox(*rows),
    "aft": lambda own, rows: FailureTime(*rows, own.distribution, own.distribution_scale),
}


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

    `n_classes` matters to "multiclass", "multiclassova" and functions, `alpha` to "quantile", "huber" and "expectile",
    `truncation_level` to "lambdarank" and "pairwise", and so do the places at which rows were shown, `position`;
    `segments`, the rows' numbers (without, they are all rows), to "rank_xendcg", and `group_starts`, the first row of
    each query and then the number of rows, to all that rank and to functions. Weights that are whole numbers stand for
    repeated rows up to `most_repeated_rows` of them, and always where hessians would be constant without them, which
    saves their rounding.
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
    name = str(settings.name_or_callable)
    if name in ("lambdarank", "pairwise"):
        kind = LambdaRank if name == "lambdarank" else Pairwise
        pairs = settings.truncation_level, settings.normalised_pairs, settings.label_gain
        return kind(target, weights, group_starts, *pairs)
    if name == "rank_xendcg":
        return ListwiseCrossEntropy(target, weights, group_starts, segments)
    if name in _OF_ROWS:
        return _OF_ROWS[name](settings, (target, weights, exchange))
    raise ParameterError(
        f"objective={settings.name_or_callable!r} is not one of {', '.join(map(repr, OBJECTIVE_NAMES))} or a function."
    )
