"""HyperbandSearchCV: brackets of asynchronous successive halving.

Each bracket starts many candidates with few resources or few candidates with many. A candidate moves up as soon as it
is among the best 1/factor of those that finished its rung: no worker waits for the slowest fit of a round (Li et al.,
"A System for Massively Parallel Hyperparameter Tuning"). Which candidates move up can depend on the order in which
results arrive; with one job it does not.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import ParameterSampler
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils.validation import _num_samples

from dmlgbm.tuning.asynchronous import Step, Trial
from dmlgbm.tuning.search import PARAMETERS, PathLike
from dmlgbm.tuning.trial_search import TrialSearch


class Bracket:
    """Successive halving of one set of candidates, rung by rung, without waiting."""

    def __init__(self, amounts: Sequence[int], factor: float) -> None:
        self.amounts = amounts
        self._factor = factor
        self._scores: list[dict[int, float]] = [{} for _ in amounts]
        self._moved_up: list[set[int]] = [set() for _ in amounts]
        self._trials: dict[int, Trial] = {}

    def start(self, trials: Sequence[Trial]) -> list[Step]:
        return [Step(trial, 0, self.amounts[0]) for trial in trials]

    def completed(self, step: Step, score: float) -> list[Step]:
        """The candidates that move up now."""
        rung = step.rung
        self._trials[step.trial.number] = step.trial
        scores = self._scores[rung]
        scores[step.trial.number] = -math.inf if math.isnan(score) else score
        if rung + 1 == len(self.amounts):
            return []
        n_best = math.floor(len(scores) / self._factor)
        best = sorted(scores, key=lambda number: (-scores[number], number))[:n_best]
        rising = [number for number in best if number not in self._moved_up[rung]]
        self._moved_up[rung].update(rising)
        return [Step(self._trials[number], rung + 1, self.amounts[rung + 1]) for number in rising]


class Brackets:
    """The policy: every bracket on its own, all at the same time."""

    def __init__(self, brackets: Sequence[Bracket], trials: Sequence[Sequence[Trial]]) -> None:
        self._brackets = brackets
        self._trials = trials

    def start(self) -> list[Step]:
        return [
            step for bracket, trials in zip(self._brackets, self._trials, strict=True) for step in bracket.start(trials)
        ]

    def completed(self, step: Step, score: float) -> list[Step]:
        return self._brackets[step.trial.bracket].completed(step, score)

    def end(self) -> None:
        """Nobody else knows of the candidates."""


def bracket_sizes(min_resources: int, max_resources: int, factor: float) -> list[tuple[int, list[int]]]:
    """Candidates and amounts of each bracket, as in Hyperband: the one with the most candidates first."""
    # Rounding keeps log(243) / log(3) at 5.
    last = math.floor(round(math.log(max_resources / min_resources) / math.log(factor), 9))
    brackets = []
    for n_halvings in range(last, -1, -1):
        n_candidates = math.ceil(round((last + 1) / (n_halvings + 1) * factor**n_halvings, 9))
        amounts = [max(min_resources, int(max_resources / factor**left)) for left in range(n_halvings, -1, -1)]
        brackets.append((n_candidates, amounts))
    return brackets


class HyperbandSearchCV(TrialSearch, BaseSearchCV):
    __doc__ = f"""Search over random candidates by brackets of asynchronous successive halving.

    `cv_results_` has the columns `bracket`, `iter` (the rung) and `n_resources` beside scikit-learn's. The best
    candidate is chosen among those with the most resources. With several metrics the one that `refit` names decides
    who moves up, or the first. `n_brackets_`, `n_candidates_` and `n_resources_` describe the brackets.

    Parameters
    ----------
    param_distributions : dict or list of dicts
        As in RandomizedSearchCV.
    resource : str, default="n_samples"
        What grows from rung to rung: the rows of each fold, or a parameter of the estimator such as "n_estimators".
    max_resources : int or "auto", default="auto"
        The most a candidate gets. "auto" is the number of rows, for `resource="n_samples"` only.
    min_resources : int or "auto", default="auto"
        The least a candidate gets. "auto" is 1 for a parameter; for rows it is scikit-learn's choice for halving:
        twice the number of folds, times the number of classes.
    factor : float, default=3
        One in `factor` candidates moves up to a rung with `factor` times the resource.
{PARAMETERS}"""

    max_resources_: int
    min_resources_: int

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        resource: str = "n_samples",
        max_resources: int | str = "auto",
        min_resources: int | str = "auto",
        factor: float = 3,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        backend: Any = "auto",
        share_work: bool = True,
        time_budget: float | None = None,
        journal: PathLike | None = None,
        progress: bool = False,
        max_retries: int = 3,
    ) -> None:
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.param_distributions = param_distributions
        self.resource = resource
        self.max_resources = max_resources
        self.min_resources = min_resources
        self.factor = factor
        self.random_state = random_state
        self._set_running(backend, share_work, time_budget, journal, progress, max_retries)

    def _check_input_parameters(self, X: Any, y: Any, split_params: Any) -> None:
        # scikit-learn's fit comes by here with the data, before the first round.
        super()._check_input_parameters(X, y, split_params)
        if not (isinstance(self.factor, numbers.Real) and self.factor > 1):
            raise ValueError(f"factor must be a number above 1, got {self.factor!r}.")
        if self.resource != "n_samples" and self.resource not in self.estimator.get_params():
            raise ValueError(
                f"resource={self.resource!r} is neither 'n_samples' nor a parameter of {type(self.estimator).__name__}."
            )
        self._n_rows = _num_samples(X)
        self.max_resources_ = self._amount("max_resources", self.max_resources, self._most)
        n_folds = self._checked_cv_orig.get_n_splits(X, y, **split_params)
        smallest = self._least(n_folds, y)
        self.min_resources_ = self._amount("min_resources", self.min_resources, lambda: smallest)
        if self.resource == "n_samples" and self.max_resources_ > self._n_rows:
            raise ValueError(f"max_resources={self.max_resources_} is more than the {self._n_rows} rows of X.")
        if self.min_resources_ > self.max_resources_:
            raise ValueError(f"min_resources={self.min_resources_} is more than max_resources={self.max_resources_}.")

    def _amount(self, name: str, given: Any, automatic: Callable[[], int]) -> int:
        if given == "auto":
            return automatic()
        if isinstance(given, bool) or not isinstance(given, numbers.Integral) or given < 1:
            raise ValueError(f"{name} must be 'auto' or a whole number from 1, got {given!r}.")
        return int(given)

    def _most(self) -> int:
        if self.resource == "n_samples":
            return self._n_rows
        raise ValueError(f"max_resources='auto' needs resource='n_samples': say how much of {self.resource!r} is most.")

    def _least(self, n_folds: int, y: Any) -> int:
        if self.resource != "n_samples":
            return 1
        n_classes = len(np.unique(np.asarray(y))) if y is not None and is_classifier(self.estimator) else 1
        return min(2 * n_folds * n_classes, self.max_resources_)

    def _policy(self) -> Brackets:
        sizes = bracket_sizes(self.min_resources_, self.max_resources_, self.factor)
        self.n_brackets_ = len(sizes)
        sampled = list(
            ParameterSampler(self.param_distributions, sum(n for n, _ in sizes), random_state=self.random_state)
        )
        if self.resource != "n_samples" and any(self.resource in candidate for candidate in sampled):
            raise ValueError(f"resource={self.resource!r} is searched over too: leave it out of param_distributions.")
        # A small grid has fewer candidates than the brackets have room for.
        share = len(sampled) / sum(n for n, _ in sizes)
        trials: list[list[Trial]] = []
        for number, (n_candidates, _) in enumerate(sizes):
            first = sum(len(each) for each in trials)
            n_taken = max(1, round(n_candidates * share)) if number + 1 < len(sizes) else len(sampled) - first
            taken = sampled[first : first + n_taken]
            trials.append([Trial(first + position, each, number) for position, each in enumerate(taken)])
        self.n_candidates_ = [len(each) for each in trials]
        self.n_resources_ = [amounts for _, amounts in sizes]
        return Brackets([Bracket(amounts, self.factor) for _, amounts in sizes], trials)

    def _more_results(self, steps: Sequence[Step]) -> dict[str, list[Any]]:
        return {
            "bracket": [step.trial.bracket for step in steps],
            "iter": [step.rung for step in steps],
            "n_resources": [step.n_resources for step in steps],
        }
