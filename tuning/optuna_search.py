"""OptunaSearchCV: Optuna proposes the candidates, the executors of this package run them.

The study is asked for a trial whenever a fit can start, and told its score when all folds are there, so any sampler
works and several trials run at once. With a resource, a trial runs at growing amounts of it and the study's pruner is
asked after each whether to go on: a trial that is pruned costs only what it has used.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils.validation import _num_samples

from dmlgbm.tuning.asynchronous import Step, Trial
from dmlgbm.tuning.search import PARAMETERS, PathLike
from dmlgbm.tuning.trial_search import TrialSearch
from dmlgbm.tuning.trial_space import Space, TrialSpace


class StudyPolicy:
    """Ask, report, prune, tell."""

    def __init__(
        self, study: Any, space: TrialSpace, n_trials: int, n_at_once: int, amounts: Sequence[int | None]
    ) -> None:
        self._study = study
        self._space = space
        self._n_left = n_trials
        self._n_at_once = n_at_once
        self._amounts = amounts
        self._asked: dict[int, Any] = {}

    def start(self) -> list[Step]:
        best_before = self._best_of_earlier_searches()
        if _is_exhausted(self._study):
            self._n_left = 0
        steps = [step for _ in range(self._n_at_once) for step in self._next()]
        if not steps and not best_before:
            raise ValueError("The study's sampler has tried everything, and none of its trials is complete.")
        return steps + best_before

    def completed(self, step: Step, score: float) -> list[Step]:
        from optuna.trial import TrialState

        asked = self._asked.get(step.trial.number)
        if asked is None:  # of an earlier search: the study knows
            return []
        if math.isnan(score):
            self._tell(asked, state=TrialState.FAIL)
            return self._next()
        rung = step.rung + 1
        if rung < len(self._amounts):
            asked.report(score, int(self._amounts[step.rung] or 0))
            if not asked.should_prune():
                return [Step(step.trial, rung, self._amounts[rung])]
            self._tell(asked, state=TrialState.PRUNED)
            return self._next()
        self._tell(asked, score)
        return self._next()

    def end(self) -> None:
        """Trials without a score have failed, whatever ended the search: nobody else will tell the study."""
        from optuna.trial import TrialState

        for asked in list(self._asked.values()):
            self._tell(asked, state=TrialState.FAIL)

    def _next(self) -> list[Step]:
        if self._n_left == 0:
            return []
        self._n_left -= 1
        asked = self._space.ask(self._study)
        self._asked[asked.number] = asked
        return [Step(Trial(asked.number, self._space.parameters_of(asked)), 0, self._amounts[0])]

    def _tell(self, asked: Any, *score: float, **state: Any) -> None:
        del self._asked[asked.number]
        try:
            self._study.tell(asked, *score, **state)
        except RuntimeError as error:
            # A sampler that has tried everything stops the study. That is an error outside of `Study.optimize`, raised
            # when the trial is stored.
            if "Study.stop" not in str(error):
                raise
            self._n_left = 0

    def _best_of_earlier_searches(self) -> list[Step]:
        """The best trial the study has: run once more it has a row beside the others, from the same rows and folds."""
        from optuna.trial import TrialState

        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for trial in sorted(complete, key=lambda each: (-each.value, each.number)):
            parameters = self._space.parameters_of_earlier(trial)
            if parameters is not None:
                return [Step(Trial(trial.number, parameters), len(self._amounts) - 1, self._amounts[-1])]
        return []


def _is_exhausted(study: Any) -> bool:
    """Whether a sampler of finitely many points, as Optuna's GridSampler, has none left."""
    says = getattr(study.sampler, "is_exhausted", None)
    return callable(says) and bool(says(study))


class OptunaSearchCV(TrialSearch, BaseSearchCV):
    __doc__ = f"""Search with an Optuna study.

    `study_` is the study; trials that a stopped search leaves without a score are marked as failed. With several
    metrics the study is told the one that `refit` names, or the first. `cv_results_` has the column `trial` and, with a
    resource, `iter` and `n_resources`; the best candidate is chosen among those with the most resources.

    Parameters
    ----------
    param_distributions : dict of name -> distribution, or function(trial) -> dict of parameters
        The space: distributions of Optuna or scipy, and lists of choices. A function may ask the trial for one
        parameter depending on another.
    study : optuna.Study, default=None
        The study to ask and tell; its direction must be "maximize", as scikit-learn's scores are. None creates one with
        Optuna's default sampler, seeded with `random_state`. The best trial of a study that has some is run again, so
        that the best of the search is that of the whole study.
    n_trials : int, default=10
        How many new trials to ask for; fewer are run if the sampler has tried everything.
    resource : str, default=None
        A parameter of the estimator, or "n_samples", that grows from `min_resources` by `factor` up to `max_resources`,
        with the study's pruner deciding after each amount. None runs every trial once.
    n_at_once : int, default=None
        Trials in flight at a time; None is as many as there are fits that can run at once. With one, the sampler knows
        all earlier results each time it is asked.
{PARAMETERS}"""

    # A study may be in a data base: trials of a copy would be lost with it.
    parameters_of_this_process = ("backend", "study")

    def __init__(
        self,
        estimator: Any,
        param_distributions: Space,
        *,
        study: Any = None,
        n_trials: int = 10,
        resource: str | None = None,
        max_resources: int | None = None,
        min_resources: int = 1,
        factor: float = 3,
        n_at_once: int | None = None,
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
        self.study = study
        self.n_trials = n_trials
        self.resource = resource
        self.max_resources = max_resources
        self.min_resources = min_resources
        self.factor = factor
        self.n_at_once = n_at_once
        self.random_state = random_state
        self._set_running(backend, share_work, time_budget, journal, progress, max_retries)

    def _check_input_parameters(self, X: Any, y: Any, split_params: Any) -> None:
        super()._check_input_parameters(X, y, split_params)
        self._n_rows = _num_samples(X)
        for name in ("n_trials", "n_at_once"):
            value = getattr(self, name)
            if value is None and name == "n_at_once":
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1, got {value!r}.")

    def _policy(self) -> StudyPolicy:
        assert self._search_run is not None
        self.study_ = _maximising(self.study, self.random_state)
        space = TrialSpace(self.param_distributions)
        n_at_once = self.n_at_once or math.ceil(self._search_run.driver.executor.n_slots / self.n_splits_)
        n_first = min(self.n_trials, n_at_once)
        return StudyPolicy(self.study_, space, self.n_trials, n_first, self._amounts())

    def _amounts(self) -> list[int | None]:
        if self.resource is None:
            return [None]
        most = self._n_rows if self.resource == "n_samples" and self.max_resources is None else self.max_resources
        if most is None or not 1 <= self.min_resources <= most or not self.factor > 1:
            raise ValueError(
                f"resource={self.resource!r} needs 1 <= min_resources <= max_resources and factor > 1, got "
                f"min_resources={self.min_resources!r}, max_resources={most!r}, factor={self.factor!r}."
            )
        amounts: list[int | None] = []
        amount = float(self.min_resources)
        while amount < most:
            amounts.append(int(amount))
            amount *= self.factor
        return [*amounts, int(most)]

    def _more_results(self, steps: Sequence[Step]) -> dict[str, list[Any]]:
        more: dict[str, list[Any]] = {"trial": [step.trial.number for step in steps]}
        if self.resource is not None:
            more["iter"] = [step.rung for step in steps]
            more["n_resources"] = [step.n_resources for step in steps]
        return more


def _maximising(study: Any, random_state: Any) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError('OptunaSearchCV needs optuna: pip install "dmlgbm[optuna]".') from error
    if study is None:
        drawn = hasattr(random_state, "randint")  # a generator of numpy, as scikit-learn takes it
        seed = int(random_state.randint(np.iinfo(np.int32).max)) if drawn else random_state
        return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    if study.direction != optuna.study.StudyDirection.MAXIMIZE:
        raise ValueError('study must have direction="maximize": scikit-learn\'s scores are better when greater.')
    return study
