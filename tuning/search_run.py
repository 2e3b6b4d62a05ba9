"""One `fit` of a search: opens what it needs, puts the backend in force, and closes everything again.

The search classes are scikit-learn's. What they lack is here, in the one place where candidates pass by on their way
to be evaluated: names are checked before anything runs, and a search that was stopped asks for nothing more.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sklearn.base import clone

from dmlgbm.tuning.driver import Driver, DriverSettings, Journal, Watcher
from dmlgbm.tuning.executors.base import Executor
from dmlgbm.tuning.joblib_backend import SearchBackend

Evaluate = Callable[..., Any]


class SearchStoppedWarning(UserWarning):
    """A search ended before all candidates were evaluated; the best of those that were is used."""


class SearchStopped(Exception):  # noqa: N818 - not an error: the way out of scikit-learn's loop over rounds
    """Candidates were asked for after the search had been stopped."""


class SearchRun:
    """A driver behind a joblib backend, for the length of one fit."""

    def __init__(
        self,
        executor: Executor,
        settings: DriverSettings,
        journal: Journal | None = None,
        watchers: Iterable[Watcher] = (),
    ) -> None:
        self.driver = Driver(executor, settings, journal, list(watchers))
        self._backend = SearchBackend(self.driver)

    def close(self) -> None:
        """Free the executor; the report is complete after this."""
        self._backend.release()
        self.driver.close()

    def checking(self, estimator: Any, evaluate: Evaluate) -> Evaluate:
        """scikit-learn's `evaluate_candidates`, for candidates that exist and as long as the search goes on."""

        def evaluate_candidates(candidate_params: Iterable[Mapping[str, Any]], *given: Any, **options: Any) -> Any:
            if self.driver.stopped is not None:
                raise SearchStopped
            candidates = list(candidate_params)
            check_parameter_names(estimator, candidates)
            results = evaluate(candidates, *given, **options)
            if self.driver.stopped is not None and not self.driver.has_a_complete_candidate():
                raise TimeoutError(
                    "time_budget ended before any candidate was evaluated on all folds: give the search more time, "
                    "fewer folds or a journal to go on from."
                )
            return results

        return evaluate_candidates

    def warn_if_stopped(self) -> None:
        """Tell the user that the result is that of a part of the search."""
        if self.driver.stopped is not None:
            report = self.driver.report
            warnings.warn(
                f"The search was stopped by {self.driver.stopped} after {report.calls_asked - report.calls_not_run} of "
                f"{report.calls_asked} fits: candidates that were not evaluated on all folds have no score.",
                SearchStoppedWarning,
                stacklevel=4,
            )


def check_settings(settings: DriverSettings) -> None:
    """What the user may say about the running of a search."""
    budget, retries = settings.time_budget, settings.max_retries
    if budget is not None and not (isinstance(budget, numbers.Real) and math.isfinite(budget) and budget > 0):
        raise ValueError(f"time_budget must be None or a number of seconds above 0, got {budget!r}.")
    if isinstance(retries, bool) or not isinstance(retries, numbers.Integral) or retries < 0:
        raise ValueError(f"max_retries must be a whole number from 0, got {retries!r}.")


def check_parameter_names(estimator: Any, candidates: list[Mapping[str, Any]]) -> None:
    """Let the estimator refuse names it does not have, before anything runs."""
    known = set(estimator.get_params(deep=True))
    seen = set()
    for candidate in candidates:
        # Names that are not listed may be aliases, or belong to a step that the candidate itself puts in: the
        # estimator knows. The classes of such steps matter.
        unlisted = tuple(name for name in candidate if name not in known)
        steps = tuple((name, type(value)) for name, value in candidate.items() if hasattr(value, "get_params"))
        if unlisted and (unlisted, steps) not in seen:
            seen.add((unlisted, steps))
            clone(estimator).set_params(**clone(dict(candidate), safe=False))
