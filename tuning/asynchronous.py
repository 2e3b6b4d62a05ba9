"""Trials that go on as their results come in, without waiting for a round to end.

A trial is one set of parameters, run at growing amounts of a resource. A policy says which steps (trial, amount) to
start with and, each time a step has results of all folds, which steps come next: successive halving and Optuna differ
only there. The steps run through the driver; afterwards scikit-learn is asked to evaluate the same steps, and gets
the results that are there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sklearn.model_selection._search_successive_halving import _SubsampleMetaSplitter

from dmlgbm.tuning.calls import FitCall, FitResult, Split
from dmlgbm.tuning.driver import Driver
from dmlgbm.tuning.joblib_backend import split_name


@dataclass(frozen=True)
class Trial:
    """One set of parameters."""

    number: int
    parameters: Mapping[str, Any]
    bracket: int = 0


@dataclass(frozen=True)
class Step:
    """A trial with so much of the resource; `n_resources=None` is a trial without a resource."""

    trial: Trial
    rung: int
    n_resources: int | None


class Policy(Protocol):
    """Decides what runs."""

    def start(self) -> Sequence[Step]:
        """The steps to begin with."""

    def completed(self, step: Step, score: float) -> Sequence[Step]:
        """A step has its mean score, not a number if any fold failed: the steps that follow."""

    def end(self) -> None:
        """No more results come, also because the search was stopped or failed."""


class Resource:
    """How much of `name` a step gets: a parameter of the estimator, or the share of the rows of each fold."""

    def __init__(self, name: str | None, base_cv: Any, n_rows: int, random_state: Any) -> None:
        self.name = name
        self._base_cv = base_cv
        self._n_rows = n_rows
        self._random_state = random_state
        self._split_arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._splits: dict[int, list[Split]] = {}

    def parameters(self, step: Step) -> dict[str, Any]:
        own = {} if self.name in (None, "n_samples") else {str(self.name): step.n_resources}
        return {**step.trial.parameters, **own}

    def splitter(self, step: Step) -> _Remembering:
        """What scikit-learn is given as `cv` for a step."""
        return _Remembering(self, step)

    def splits(self, step: Step) -> list[Split]:
        """The folds of a step, after scikit-learn has asked for those of another."""
        given, options = self._split_arguments
        return self.split(step, *given, **options)

    def split(self, step: Step, *given: Any, **options: Any) -> list[Split]:
        self._split_arguments = (given, options)
        amount = step.n_resources if self.name == "n_samples" and step.n_resources is not None else self._n_rows
        if amount not in self._splits:
            cv = self._base_cv
            if amount < self._n_rows:
                fraction = amount / self._n_rows
                cv = _SubsampleMetaSplitter(
                    base_cv=cv, fraction=fraction, subsample_test=True, random_state=self._random_state
                )
            self._splits[amount] = list(cv.split(*given, **options))
        return self._splits[amount]


@dataclass(frozen=True)
class _Remembering:
    """A splitter for scikit-learn that gives every step of the same size the same folds."""

    resource: Resource
    step: Step

    def split(self, *given: Any, **options: Any) -> list[Split]:
        return self.resource.split(self.step, *given, **options)


@dataclass
class _Running:
    step: Step
    scores: dict[int, float] = field(default_factory=dict)


class Trials:
    """The steps of a search on their way through the driver."""

    def __init__(self, driver: Driver, policy: Policy, resource: Resource, n_folds: int, metric: str | None) -> None:
        self.completed: list[Step] = []
        self._driver = driver
        self._policy = policy
        self._resource = resource
        self._n_folds = n_folds
        self._metric = metric
        self._of_call: dict[int, _Running] = {}
        self._waiting: list[Step] = []

    def expect(self, first: Sequence[Step], others: Iterable[Step]) -> None:
        """scikit-learn is about to ask for `first`; the others start as soon as there is a call to copy from."""
        n_calls = len(first) * self._n_folds
        numbers = range(self._driver.n_calls, self._driver.n_calls + n_calls)
        for position, number in enumerate(numbers):
            if position % self._n_folds == 0:
                running = _Running(first[position // self._n_folds])
            self._of_call[number] = running
        self._waiting = list(others)
        self._driver.follow(self._take)

    def _take(self, call: FitCall, result: FitResult) -> None:
        running = self._of_call.pop(call.number, None)
        if running is None:
            return
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._start(waiting, call)
        running.scores[call.fold] = _score(result, self._metric)
        if len(running.scores) == self._n_folds:
            # The mean scikit-learn will show: folds in order, whatever came first.
            mean = math.fsum(running.scores[fold] for fold in range(self._n_folds)) / self._n_folds
            self.completed.append(running.step)
            self._start(self._policy.completed(running.step, mean), call)

    def _start(self, steps: Sequence[Step], example: FitCall) -> None:
        calls: list[FitCall] = []
        splits: dict[str, Split] = {}
        for step in steps:
            running = _Running(step)
            parameters = self._resource.parameters(step)
            for fold, split in enumerate(self._resource.splits(step)):
                name = split_name(split)
                splits[name] = split
                number = self._driver.next_number()
                self._of_call[number] = running
                own = {**example.own_arguments, "split_progress": (fold, self._n_folds)}
                calls.append(FitCall(number, parameters, name, step.trial.number, fold, own))
        if calls:
            self._driver.add(calls, splits, asked=False)


def _score(result: FitResult, metric: str | None) -> float:
    """The score that decides: the only one, the one that is named, else the first."""
    scores = result["test_scores"]
    if not isinstance(scores, Mapping):
        return float(scores)
    return float(next(iter(scores.values())) if metric is None else scores[metric])
