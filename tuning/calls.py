"""One (candidate, fold) call of a search, and what all calls of a search have in common.

scikit-learn's searches end in a list of calls of its own `_fit_and_score`. Here such a call is taken apart: what is
the same in all of them (data, estimator, scorer, options) travels to each worker once, as `SharedArguments`; the rows
of a fold travel once too, under a name made from their content; a `FitCall` is the small rest. `run_call` puts the
pieces together again and calls scikit-learn's function, so that results are scikit-learn's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sklearn.base import clone

FitResult: TypeAlias = dict[str, Any]
"""What `_fit_and_score` returns: test_scores, fit_error, fit_time, score_time, and what else was asked for."""

Split: TypeAlias = tuple[Any, Any]
"""Row numbers to learn from and to test on."""


@dataclass(frozen=True)
class SharedArguments:
    """What every call of one search has in common."""

    function: Callable[..., FitResult]
    """scikit-learn's `_fit_and_score`, in the wrapper that carries its configuration and the warning filters."""
    estimator: Any
    """Not fitted, without a candidate's parameters; every call works on a clone."""
    X: Any
    y: Any
    arguments: Mapping[str, Any]
    """Keyword arguments that are the same in all calls: scorer, fit_params, score_params, error_score, verbose,
    return_train_score, return_n_test_samples, return_times, return_parameters, return_estimator."""


@dataclass(frozen=True)
class FitCall:
    """Fit one candidate on one fold and score it."""

    number: int
    """Its position among all calls of the search: what results are filed under."""
    parameters: Mapping[str, Any] | None
    split: str
    """The name of the fold's rows in `SearchData.splits`; equal rows have equal names, also in later rounds."""
    candidate: int
    """Number of the candidate in its round."""
    fold: int
    """Number of the fold in its round."""
    own_arguments: Mapping[str, Any] = field(default_factory=dict)
    """The other keyword arguments of this call: split_progress, candidate_progress, and, only where somebody has
    registered callbacks with scikit-learn, caller and callback_ctx."""


@dataclass
class SearchData:
    """What a worker has of a search while it runs a unit."""

    shared: SharedArguments
    splits: Mapping[str, Split]
    memory: dict[Any, Any] = field(default_factory=dict)
    """What this worker keeps from one unit to the next: empty at the start of a search, dropped at its end. A worker
    may run several units at once in threads and may be lost at any time; nothing here is ever needed, only useful."""
    n_threads: int = 1
    """Kernel threads that a fit may use: cores / concurrent fits."""
    prepared: Mapping[Any, Callable[[], Any]] = field(default_factory=dict)
    """How to get at rows that the client has prepared for all workers, by names that units give."""


def run_call(call: FitCall, data: SearchData, estimator: Any = None) -> FitResult:
    """The result of one call, by scikit-learn's own function; `estimator` takes the place of a new clone."""
    train, test = data.splits[call.split]
    shared = data.shared
    return shared.function(
        clone(shared.estimator) if estimator is None else estimator,
        shared.X,
        shared.y,
        train=train,
        test=test,
        parameters=None if call.parameters is None else dict(call.parameters),
        **shared.arguments,
        **call.own_arguments,
    )
