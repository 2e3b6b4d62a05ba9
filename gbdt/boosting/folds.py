"""Fits of several folds of the same rows, iteration by iteration: the means of their metrics say when to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import numpy as np

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.early_stopping import EarlyStopping
from dmlgbm.gbdt.boosting.started_fit import StartedFit
from dmlgbm.gbdt.callbacks import Callback, Evaluation, TrainingState
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.threads import Workers


@dataclass(frozen=True)
class FoldsResult:
    """The models, and of each iteration the mean of each metric over the folds and its standard deviation."""

    boosters: list[Booster]
    means: list[list[Evaluation]]
    deviations: list[list[float]]
    best_iteration: int | None


def boost_folds(
    fits: Sequence[StartedFit],
    grow: Callable[[int, int], Sequence[Tree]],
    parameters: TrainParameters,
    callbacks: Sequence[Callback],
    workers: Workers,
) -> FoldsResult:
    """Add iterations to all folds; `grow(iteration, fold)` adds one to a fold's run.

    `workers` are those among which the folds of an iteration are shared out.
    """
    stopping = EarlyStopping(parameters) if parameters.early_stopping_rounds else None
    trees: list[list[Tree]] = [[] for _ in fits]
    means: list[list[Evaluation]] = []
    deviations: list[list[float]] = []
    for iteration in range(1, parameters.n_estimators + 1):
        grown = workers.run_each(partial(grow, iteration - 1), range(len(fits)))
        measured = []
        for fit, own_trees, new_trees in zip(fits, trees, grown, strict=True):
            own_trees.extend(new_trees)
            changes = replace(fit.start, trees=tuple(fit.run.changes(new_trees)))
            measured.append([each for evaluator in fit.evaluators for each in evaluator.evaluate(changes)])
        by_metric = list(zip(*measured, strict=True))
        means.append([same[0]._replace(value=float(np.mean([each.value for each in same]))) for same in by_metric])
        deviations.append([float(np.std([each.value for each in same])) for same in by_metric])
        reason = stopping.update(iteration, means[-1]) if stopping is not None and means[-1] else None
        state = TrainingState(iteration, parameters.n_estimators, means[-1], _no_single_model, reason)
        for callback in callbacks:
            callback(state)
        if state.stop_reason is not None:
            break
    pairs = zip(fits, trees, strict=True)
    boosters = [replace(fit.start, trees=tuple(fit.run.settled(own_trees))) for fit, own_trees in pairs]
    return FoldsResult(boosters, means, deviations, None if stopping is None else stopping.best_iteration)


def _no_single_model() -> NoReturn:
    raise ValueError("A callback of cv asks for the model so far, but there is one for each fold: leave it out.")
