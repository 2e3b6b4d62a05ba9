"""Where training starts: from nothing, from another model (`init_model`) or from what is there (`warm_start`).

A model that early stopping ended is taken up to its best iteration, as it predicts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import ParameterError, TrainParameters
from dmlgbm.sklearn_api.booster import Booster as FittedBooster
from dmlgbm.sklearn_api.saved_state import booster_from_file, saved_best_iteration, saved_classes


@dataclass(frozen=True)
class Start:
    """The model to add to, the labels of its classes, and how many of its iterations count towards n_estimators."""

    booster: Booster | None = None
    classes: list[Any] | None = None
    n_counted: int = 0

    def iterations_to_add(self, n_estimators: int) -> int:
        """`n_estimators` is how many to add to an init_model, and the total with warm_start."""
        if n_estimators <= self.n_counted:
            raise ParameterError(
                f"n_estimators={n_estimators} is not above the {self.n_counted} iterations that warm_start=True goes "
                "on from: set it higher."
            )
        return n_estimators - self.n_counted

    def require_same_classes(self, classes: npt.NDArray[Any]) -> None:
        """Scores of one set of classes cannot go on from those of another."""
        if self.classes is not None and self.classes != classes.tolist():
            raise ValueError(
                f"y holds the classes {classes.tolist()}, but the model to go on from was fitted with {self.classes}."
            )

    def require_same_sum(self, parameters: TrainParameters) -> None:
        """Trees that are averaged do not mix with trees that are added up."""
        before = self.booster
        if before is not None and before.averages != parameters.averages:
            raise ParameterError(
                f"boosting_type={parameters.boosting_type!r} cannot go on from a model "
                f"{'of' if before.averages else 'that is not of'} boosting_type='rf': trees are averaged in one, and "
                "added up in the other."
            )

    def require_same_objective(self, objective: ObjectiveSettings) -> None:
        """Trees for one kind of score cannot go on from trees for another."""
        before = self.booster
        if before is None:
            return
        name, n_outputs = objective.name, objective.n_outputs
        if before.n_outputs != n_outputs or (before.objective != name and "custom" not in (before.objective, name)):
            raise ValueError(
                f"The model to go on from was trained with objective {before.objective!r} and {before.n_outputs} "
                f"scores a row, but this fit has objective {name!r} and {n_outputs} scores a row."
            )


def starting_point(init_model: Any, own: Any) -> Start:
    """An explicit init_model comes before `own`, a fitted estimator with warm_start."""
    if init_model is not None:
        return _start_from(init_model)
    if own is None:
        return Start()
    start = _start_from(own)
    assert start.booster is not None
    return Start(start.booster, start.classes, start.booster.n_iterations)


def _start_from(model: Any) -> Start:
    if isinstance(model, str | os.PathLike):
        model = booster_from_file(model)
    if isinstance(model, Booster):
        if "estimator" not in model.metadata:
            best = model.best_iteration if isinstance(model, FittedBooster) else 0
            return Start(model.first(best) if best else model)
        booster, best_iteration, classes = model, saved_best_iteration(model), saved_classes(model)
    elif isinstance(getattr(model, "booster_", None), Booster):
        booster, best_iteration, classes = model.booster_, model.best_iteration_, getattr(model, "classes_", None)
    else:
        raise TypeError(
            f"init_model must be a fitted estimator, a Booster or the path of a model file, got {model!r:.80}."
        )
    known = None if classes is None else classes.tolist()
    return Start(booster if best_iteration is None else booster.first(best_iteration), known)
