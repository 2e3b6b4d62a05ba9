"""GridSearchCV, RandomizedSearchCV and the two halving searches: scikit-learn's own, run by the executors of this
package.

Each class is scikit-learn's with six parameters more. `fit`, the candidates, the ranking and `cv_results_` stay
scikit-learn's; `SearchOnExecutors` only surrounds `fit` and lets scikit-learn's loop run on the driver.
"""

from __future__ import annotations

import copy
import os
from typing import Any, Self

import numpy as np
from sklearn import model_selection
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - scikit-learn asks for this before the import
from sklearn.model_selection import _search_successive_halving as halving

from dmlgbm.tuning.collections import gathered
from dmlgbm.tuning.driver import DriverSettings
from dmlgbm.tuning.executors.registry import open_executor
from dmlgbm.tuning.executors.serial import SerialExecutor
from dmlgbm.tuning.journal import FileJournal
from dmlgbm.tuning.progress import watchers_for
from dmlgbm.tuning.report import SearchReport
from dmlgbm.tuning.search_run import SearchRun, SearchStopped, check_settings
from dmlgbm.tuning.spark_sklearn import takes_context_first

PathLike = str | os.PathLike[str]

# Headings that numpydoc knows: scikit-learn's HTML view warns of any other.
PARAMETERS = """\
    backend : {"auto", "local", "dask", "spark"}, Client, SparkSession or SparkContext, default="auto"
        Where fits run. "local" is this machine: `n_jobs` worker processes, or this process with one job. "dask" is the
        cluster of the current client, "spark" that of the active session; `n_jobs=None` then means all workers.
        "auto" takes the Dask client that this process is connected to, or an idle Spark application on a cluster with
        at least twice the cores of this machine, else "local"; `search_report_` says why.
    share_work : bool, default=True
        Whether estimators that can share work between candidates do so. The results are the same.
    time_budget : float, default=None
        Seconds after which no more results are waited for. Candidates without results of all folds have no score.
    journal : path, default=None
        A file that every result is written to. A search that finds its journal goes on from there.
    progress : bool, default=False
        Whether to show a line with the fits done, the best score and the time left on the standard error stream.
    max_retries : int, default=3
        How often a fit whose worker was lost is run again, before it counts as failed.

    Attributes
    ----------
    search_report_ : SearchReport
        What was asked for, what was run and what was saved.
"""


class SearchOnExecutors:
    """What a search class of scikit-learn needs to run on this package's executors."""

    backend: Any
    share_work: bool
    time_budget: float | None
    journal: PathLike | None
    progress: bool
    max_retries: int
    search_report_: SearchReport
    n_jobs: int | None
    estimator: Any
    _search_run: SearchRun | None = None
    parameters_of_this_process: tuple[str, ...] = ("backend",)
    """Parameters whose values belong to the process that made them: copies share them, and no copy leaves the process
    with them."""

    def _set_running(
        self,
        backend: Any,
        share_work: bool,
        time_budget: float | None,
        journal: PathLike | None,
        progress: bool,
        max_retries: int,
    ) -> None:
        self.backend = backend
        self.share_work = share_work
        self.time_budget = time_budget
        self.journal = journal
        self.progress = progress
        self.max_retries = max_retries

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Run the search and refit the best candidate; the parameters are scikit-learn's."""
        X, y, params, in_pieces = gathered(self.estimator, X, y, params, self.backend)
        settings = DriverSettings(self.share_work and not in_pieces, self.max_retries, self.time_budget)
        check_settings(settings)
        journal = None if self.journal is None else FileJournal(self.journal)
        try:
            # Data in pieces is trained on from here, by all workers together.
            notes: list[str] = []
            executor = SerialExecutor() if in_pieces else open_executor(self.backend, self.n_jobs, notes)
            self._search_run = SearchRun(executor, settings, journal, watchers_for(self.progress))
            self._search_run.driver.report.notes += notes
            try:
                super().fit(X, y, **params)  # type: ignore[misc]
            finally:
                self._search_run.close()
            self.search_report_ = self._search_run.driver.report
            self._search_run.warn_if_stopped()
        finally:
            self._search_run = None
            vars(self).pop("_select_best_index", None)
            if journal is not None:
                journal.close()
        return self

    def _run_search(self, evaluate_candidates: Any, *, callback_ctx: Any = None) -> None:
        assert self._search_run is not None
        context = {} if callback_ctx is None else {"callback_ctx": callback_ctx}
        try:
            super()._run_search(  # type: ignore[misc]
                self._search_run.checking(self.estimator, evaluate_candidates), **context
            )
        except SearchStopped:
            self._finish_stopped_search()
        if self._search_run.driver.stopped is not None:
            self._use_what_is_complete()
        self._search_run.close()  # the refit needs the cores and the memory

    def _finish_stopped_search(self) -> None:
        """Set what scikit-learn would have set after its last round."""

    def _use_what_is_complete(self) -> None:
        """Make the choice of the best candidate cope with candidates that have no score; ranks do by themselves."""

    def __dir__(self) -> list[str]:
        # Code that compares searches of different classes goes through all public names here that end so.
        return [name for name in super().__dir__() if name != "search_report_"]

    def __sklearn_clone__(self) -> Self:
        bare = object.__new__(type(self))
        vars(bare).update(vars(self) | dict.fromkeys(self.parameters_of_this_process))
        copied: Self = super(SearchOnExecutors, bare).__sklearn_clone__()  # type: ignore[misc]
        vars(copied).update({name: getattr(self, name) for name in self.parameters_of_this_process})
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        held = [getattr(self, name) for name in self.parameters_of_this_process]
        copied = object.__new__(type(self))
        memo |= {id(self): copied, **{id(each): each for each in held}}
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        state.pop("_search_run", None)
        if not isinstance(state.get("backend"), str):
            state["backend"] = "auto"  # clients and sessions belong to the process that made them
        return state


class _Halving(SearchOnExecutors):
    n_resources_: list[int]
    n_candidates_: list[int]
    factor: float
    max_resources_: int
    min_resources_: int

    def _finish_stopped_search(self) -> None:
        self.n_iterations_ = len(self.n_resources_)
        self.n_remaining_candidates_ = self.n_candidates_[-1]
        self.n_required_iterations_ = 1 + int(np.log(self.n_candidates_[0]) / np.log(self.factor))
        self.n_possible_iterations_ = 1 + int(np.log(self.max_resources_ // self.min_resources_) / np.log(self.factor))

    def _use_what_is_complete(self) -> None:
        # For this fit only; scikit-learn calls its static method through the instance.
        vars(self)["_select_best_index"] = _best_of_last_complete_round


def _best_of_last_complete_round(refit: Any, refit_metric: str, results: Any) -> int:
    if callable(refit):
        return int(refit(results))
    scores = results[f"mean_test_{refit_metric}"]
    iterations = np.where(np.isnan(scores), -1, results["iter"])
    last = np.flatnonzero(iterations == iterations.max())
    return int(last[np.argmax(scores[last])])


class GridSearchCV(SearchOnExecutors, model_selection.GridSearchCV):
    @takes_context_first
    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
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
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self._set_running(backend, share_work, time_budget, journal, progress, max_retries)


class RandomizedSearchCV(SearchOnExecutors, model_selection.RandomizedSearchCV):
    @takes_context_first
    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
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
            param_distributions,
            n_iter=n_iter,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            random_state=random_state,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self._set_running(backend, share_work, time_budget, journal, progress, max_retries)


class HalvingGridSearchCV(_Halving, halving.HalvingGridSearchCV):
    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        factor: float = 3,
        resource: str = "n_samples",
        max_resources: int | str = "auto",
        min_resources: int | str = "exhaust",
        aggressive_elimination: bool = False,
        cv: Any = 5,
        scoring: Any = None,
        refit: Any = True,
        error_score: Any = np.nan,
        return_train_score: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        backend: Any = "auto",
        share_work: bool = True,
        time_budget: float | None = None,
        journal: PathLike | None = None,
        progress: bool = False,
        max_retries: int = 3,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            factor=factor,
            resource=resource,
            max_resources=max_resources,
            min_resources=min_resources,
            aggressive_elimination=aggressive_elimination,
            cv=cv,
            scoring=scoring,
            refit=refit,
            error_score=error_score,
            return_train_score=return_train_score,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self._set_running(backend, share_work, time_budget, journal, progress, max_retries)


class HalvingRandomSearchCV(_Halving, halving.HalvingRandomSearchCV):
    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_candidates: int | str = "exhaust",
        factor: float = 3,
        resource: str = "n_samples",
        max_resources: int | str = "auto",
        min_resources: int | str = "smallest",
        aggressive_elimination: bool = False,
        cv: Any = 5,
        scoring: Any = None,
        refit: Any = True,
        error_score: Any = np.nan,
        return_train_score: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        backend: Any = "auto",
        share_work: bool = True,
        time_budget: float | None = None,
        journal: PathLike | None = None,
        progress: bool = False,
        max_retries: int = 3,
    ) -> None:
        super().__init__(
            estimator,
            param_distributions,
            n_candidates=n_candidates,
            factor=factor,
            resource=resource,
            max_resources=max_resources,
            min_resources=min_resources,
            aggressive_elimination=aggressive_elimination,
            cv=cv,
            scoring=scoring,
            refit=refit,
            error_score=error_score,
            return_train_score=return_train_score,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self._set_running(backend, share_work, time_budget, journal, progress, max_retries)


for _class in (GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV):
    _class.__doc__ = f"""scikit-learn's {_class.__name__}, run by workers that share work.

    Parameters and attributes are scikit-learn's, and these.

    Parameters
    ----------
{PARAMETERS}"""
