"""A call on the shared rows of its fold: what scikit-learn's `_fit_and_score` does when all goes well, and no more.

That function checks, copies and announces things which are the same for all calls of a search; for a model of a few
small trees they take longer than the fit. `FoldCalls` says once whether a search has any of what only that function
knows: callbacks, output, parameters cut to the fold, scorers of the user's own. A call that fails is run again by it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import _validation

from dmlgbm.tuning.calls import FitCall, FitResult, SearchData
from dmlgbm.tuning.sharing.fold_rows import FoldRows, fold_rows, writes_to_nothing
from dmlgbm.tuning.sharing.hooks import has_hooks

_KNOWN = {
    "scorer", "verbose", "fit_params", "score_params", "error_score", "return_train_score", "return_parameters",
    "return_n_test_samples", "return_times", "return_estimator",
}  # fmt: skip
_PLAIN = {bool, int, float, str, type(None)}
_OF_NO_MATTER = {"split_progress", "candidate_progress"}  # for output only


class FoldCalls:
    """Whether and how the calls of one search run on shared rows."""

    def __init__(self, data: SearchData) -> None:
        self._function = _with_configuration(data) if _is_plain(data) else None
        self._unfitted = clone(data.shared.estimator)
        self._holds_plain_values = _holds_plain_values(self._unfitted)

    def rows_for(self, call: FitCall, data: SearchData) -> FoldRows | None:
        """The shared rows that a call can run on; None if scikit-learn's function has to run it."""
        if self._function is None or not _OF_NO_MATTER.issuperset(call.own_arguments):
            return None
        return fold_rows(call.split, data.shared.estimator, data)

    def new_estimator(self) -> Any:
        """A clone of the estimator; where that makes no difference, what it holds is not looked at again."""
        if not self._holds_plain_values:
            return clone(self._unfitted)
        estimator = object.__new__(type(self._unfitted))
        vars(estimator).update(vars(self._unfitted))
        return estimator

    def run(self, call: FitCall, data: SearchData, fold: FoldRows, estimator: Any) -> FitResult:
        """The result of a call; raises where the estimator or the scorer does."""
        assert self._function is not None
        result: FitResult = self._function(call.parameters, data.shared.arguments, fold, estimator)
        return result


def fold_calls(data: SearchData) -> FoldCalls:
    """The way in which this search runs, found out once on each worker."""
    calls = data.memory.get("fold calls")
    if calls is None:
        calls = data.memory["fold calls"] = FoldCalls(data)
    assert isinstance(calls, FoldCalls)
    return calls


def _holds_plain_values(estimator: Any) -> bool:
    """Whether an unfitted estimator is its parameters, all of them values that nobody can change."""
    held: dict[str, Any] = vars(estimator)
    is_all = held.keys() == estimator.get_params(deep=False).keys()
    return is_all and all(type(value) in _PLAIN for value in held.values())


def _is_plain(data: SearchData) -> bool:
    shared, arguments = data.shared, data.shared.arguments
    return (
        getattr(shared.function, "function", None) is _validation._fit_and_score
        and not getattr(shared.function, "config", {}).get("array_api_dispatch")
        and has_hooks(shared.estimator)
        and shared.y is not None
        and arguments.keys() <= _KNOWN
        and not arguments.get("fit_params")
        and not arguments.get("score_params")
        and arguments["verbose"] <= 1
        and writes_to_nothing(arguments["scorer"])
    )


def _with_configuration(data: SearchData) -> Any:
    """Our function in scikit-learn's wrapper, which puts configuration and warning filters of the client in force."""
    wrapper = copy.copy(data.shared.function)
    wrapper.function = _fit_and_score  # type: ignore[attr-defined]
    return wrapper


def _fit_and_score(
    parameters: Mapping[str, Any] | None, arguments: Mapping[str, Any], fold: FoldRows, estimator: Any
) -> FitResult:
    if parameters is not None:
        estimator.set_params(**clone(dict(parameters), safe=False))
    scorer, error_score = arguments["scorer"], arguments.get("error_score")
    started = time.time()
    estimator.fit(fold.train.X, fold.train.y)
    fitted = time.time()
    result: FitResult = {"fit_error": None, "test_scores": fold.test.score(estimator, scorer, error_score)}
    scored = time.time()
    if arguments.get("return_train_score"):
        result["train_scores"] = fold.train.score(estimator, scorer, error_score)
    if arguments.get("return_n_test_samples"):
        result["n_test_samples"] = _validation._num_samples(fold.test.X)
    if arguments.get("return_times"):
        result |= {"fit_time": fitted - started, "score_time": scored - fitted}
    if arguments.get("return_parameters"):
        result["parameters"] = None if parameters is None else dict(parameters)
    if arguments.get("return_estimator"):
        result["estimator"] = estimator
    return result
