"""What searches share that decide as results come in: run all trials, then let scikit-learn write them down.

scikit-learn is first asked to evaluate the steps that start the search, which brings the data to the workers and
gives the trials a call to copy from. The rest happens between its results. In the end it is asked for the other
steps, one group of equal amounts after the other, and finds all of them answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from sklearn.model_selection._validation import _warn_or_raise_about_fit_failures

from dmlgbm.tuning.asynchronous import Policy, Resource, Step, Trials
from dmlgbm.tuning.search import SearchOnExecutors


class TrialSearch(SearchOnExecutors):
    """A search whose candidates come from a policy."""

    resource: str | None
    random_state: Any
    refit: Any
    error_score: Any
    n_splits_: int
    _checked_cv_orig: Any
    _n_rows: int

    def _policy(self) -> Policy:
        raise NotImplementedError

    def _more_results(self, steps: Sequence[Step]) -> dict[str, list[Any]]:
        raise NotImplementedError

    def _run_search(self, evaluate_candidates: Any, *, callback_ctx: Any = None) -> None:
        assert self._search_run is not None
        driver = self._search_run.driver
        policy = self._policy()
        resource = Resource(self.resource, self._checked_cv_orig, self._n_rows, self.random_state)
        metric = self.refit if isinstance(self.refit, str) else None
        trials = Trials(driver, policy, resource, self.n_splits_, metric)
        if callback_ctx is not None:
            callback_ctx = callback_ctx.subcontext(task_name="search", max_subtasks=None)
            callback_ctx.call_on_fit_task_begin(estimator=self)
        try:
            steps = policy.start()
            first = [step for step in steps if step.n_resources == steps[0].n_resources]
            trials.expect(first, [step for step in steps if step not in first])
            evaluate_checked = self._search_run.checking(self.estimator, evaluate_candidates)
            self._evaluate(evaluate_checked, resource, first, callback_ctx)
            results = driver.run_to_the_end()
        finally:
            policy.end()
        _warn_or_raise_about_fit_failures(results, self.error_score)
        others = sorted((step for step in trials.completed if step not in first), key=_sort_key)
        for _, group in groupby(others, key=lambda step: (step.trial.bracket, step.rung)):
            self._evaluate(evaluate_candidates, resource, list(group), callback_ctx)
        if callback_ctx is not None:
            callback_ctx.call_on_fit_task_end(estimator=self)
        self._search_run.close()

    def _evaluate(self, evaluate: Any, resource: Resource, steps: Sequence[Step], callback_ctx: Any) -> None:
        options = {}
        if callback_ctx is not None:
            options["callback_ctx"] = callback_ctx.subcontext(
                task_name=f"bracket {steps[0].trial.bracket}, rung {steps[0].rung}",
                max_subtasks=len(steps) * self.n_splits_,
                sequential_subtasks=False,
            ).call_on_fit_task_begin(estimator=self)
        candidates = [resource.parameters(step) for step in steps]
        evaluate(candidates, resource.splitter(steps[0]), more_results=self._more_results(steps), **options)
        if callback_ctx is not None:
            options["callback_ctx"].call_on_fit_task_end(estimator=self)

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: Any) -> int:
        """The best of the candidates with the most resources; scores with less are of another kind."""
        if callable(refit):
            return int(refit(results))
        scores = results[f"mean_test_{refit_metric}"]
        amounts = np.where(np.isnan(scores), -1, results.get("n_resources", np.zeros(len(scores))))
        last = np.flatnonzero(amounts == amounts.max())
        return int(last[np.argmax(scores[last])])


def _sort_key(step: Step) -> tuple[int, int, int]:
    return (step.trial.bracket, step.rung, step.trial.number)
