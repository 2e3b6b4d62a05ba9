"""The `fit` of one call that uses what earlier calls have left.

`run_sharing` runs calls one after the other, each through scikit-learn's own function or, where that makes no
difference, through the short one of `fold_calls.py`. What differs is one attribute: an estimator that can share gets a
`fit` of its own for that call, which prepares the fold or finds it prepared, and starts a run or takes an earlier one
further. Whatever goes wrong on the way, the estimator's real `fit` has the last word, so errors and their texts are
its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from sklearn.base import clone

from dmlgbm.tuning.calls import FitCall, FitResult, SearchData, run_call
from dmlgbm.tuning.plan import Counters
from dmlgbm.tuning.sharing.fold_calls import fold_calls
from dmlgbm.tuning.sharing.fold_rows import FoldRows
from dmlgbm.tuning.sharing.hooks import FitDescription, described, has_hooks
from dmlgbm.tuning.sharing.limited_cache import rows_cache, runs_cache
from dmlgbm.tuning.sharing.prefixes import fit_pipeline, is_plain_pipeline

# Pickling a run leaves its scores behind, which with many rows are far larger than its trees, and makes these smaller.
_BYTES_KEPT_AS_THEY_ARE = 128 << 10


def run_sharing(calls: Sequence[FitCall], data: SearchData, counters: Counters) -> Iterator[FitResult]:
    """Calls of one unit; stages of one run come shortest first."""
    yield from _run(calls, data, counters, keep_runs=False)


def run_sharing_and_keep(calls: Sequence[FitCall], data: SearchData, counters: Counters) -> Iterator[FitResult]:
    """The same, for calls whose runs a later round may take further."""
    yield from _run(calls, data, counters, keep_runs=True)


def _run(calls: Sequence[FitCall], data: SearchData, counters: Counters, *, keep_runs: bool) -> Iterator[FitResult]:
    unit = UnitWork(data, counters)
    for call in calls:
        yield _run_on_fold(call, unit) or _run_by_scikit_learn(call, unit)
    if keep_runs:
        unit.keep_runs()


def _run_by_scikit_learn(call: FitCall, unit: UnitWork) -> FitResult:
    estimator = clone(unit.data.shared.estimator)
    unit.attach(estimator, call.split)
    result = run_call(call, unit.data, estimator)
    detach(estimator)
    return result


def _run_on_fold(call: FitCall, unit: UnitWork) -> FitResult | None:
    """The result of a call on the shared rows of its fold; None if scikit-learn's function has to run it."""
    before = unit.counters.copy()
    try:
        way = fold_calls(unit.data)
        fold = way.rows_for(call, unit.data)
        if fold is None:
            return None
        estimator = way.new_estimator()
        unit.attach_final(estimator, call.split, fold)
        result = way.run(call, unit.data, fold, estimator)
    except _NotSharedError:
        unit.take_back(before)
        return None
    except Exception:  # noqa: BLE001 - scikit-learn's function runs the call again and deals with the error
        unit.take_back(before)
        unit.counters["sharing_failed"] += 1
        return None
    detach(estimator)
    return result


class _NotSharedError(Exception):
    """A fit that cannot share was asked for on shared rows."""


class UnitWork:
    """What the calls of one unit share with each other and, through the caches, with other units of this worker."""

    def __init__(self, data: SearchData, counters: Counters) -> None:
        self.data = data
        self.counters = counters
        self._runs: dict[Hashable, tuple[Any, int]] = {}

    def take_back(self, counters: Counters) -> None:
        """Count as before a call that has to run once more."""
        self.counters.clear()
        self.counters.update(counters)

    def attach(self, estimator: Any, rows: Hashable) -> None:
        """Give an estimator that can share a `fit` for one call; `rows` names what it learns from."""
        if is_plain_pipeline(estimator):
            vars(estimator)["fit"] = lambda X, y=None, **params: fit_pipeline(estimator, X, y, params, self, rows)
        elif has_hooks(estimator):
            self.attach_final(estimator, rows)

    def attach_final(self, estimator: Any, rows: Hashable, fold: FoldRows | None = None) -> None:
        """Give an estimator with hooks a `fit` for one call; `rows` names what it learns from.

        On the shared rows of a fold the estimator's own `fit` is not called: it may be anybody's, and write to them.
        """

        def fit(X: Any, y: Any = None, **fit_params: Any) -> Any:
            detach(estimator)
            if y is None or not self._fit_shared(estimator, X, y, fit_params, rows, fold):
                if fold is not None:
                    raise _NotSharedError
                self.counters["fits"] += 1
                return estimator.fit(X, **fit_params) if y is None else estimator.fit(X, y, **fit_params)
            return estimator

        vars(estimator)["fit"] = fit

    def keep_runs(self) -> None:
        """Leave the models of this unit for later rounds: as they are, with what makes going on fast, or as bytes."""
        cache = runs_cache(self.data)
        for key, (estimator, stage) in self._runs.items():
            n_bytes = getattr(estimator, "run_bytes", None)
            if n_bytes is not None and (n_bytes <= _BYTES_KEPT_AS_THEY_ARE or cache.is_half_empty_with(n_bytes)):
                cache.put(key, (estimator, stage), n_bytes)
            else:
                saved = pickle.dumps((estimator, stage), pickle.HIGHEST_PROTOCOL)
                cache.put(key, saved, len(saved))

    def _fit_shared(
        self, estimator: Any, X: Any, y: Any, fit_params: Mapping[str, Any], rows: Hashable, fold: FoldRows | None
    ) -> bool:
        """Fit with shared work; False if the estimator's own `fit` has to do it."""
        fit = described(estimator, fit_params)
        if fit is None:
            return False
        try:
            prepared = self._prepared(estimator, X, y, fit_params, (rows, fit.preparation))
            if fold is not None and hasattr(prepared, "expect"):
                prepared.expect(fold.train.X, fold.test.X)
            self._train(estimator, prepared, fit, (rows, fit.preparation, fit.run))
        except Exception:
            if fold is not None:
                raise
            # The estimator's own fit raises the error that users know.
            self.counters["sharing_failed"] += 1
            return False
        return True

    def _prepared(self, estimator: Any, X: Any, y: Any, fit_params: Mapping[str, Any], key: Hashable) -> Any:
        received = self.data.prepared.get(key)

        def prepare() -> tuple[Any, int]:
            prepared = estimator.prepare(X, y, **fit_params) if received is None else received()
            return prepared, int(getattr(prepared, "n_bytes", 0))

        prepared, is_new = rows_cache(self.data).get_or_make(key, prepare)
        self.counters["folds_prepared" if is_new and received is None else "preparations_saved"] += 1
        return prepared

    def _train(self, estimator: Any, prepared: Any, fit: FitDescription, key: Hashable) -> None:
        before, n_before = (None, 0) if fit.run is None else self._earlier(key)
        if before is None or n_before > fit.stage:
            n_before = 0
            estimator.fit_prepared(prepared)
            self.counters["fits"] += 1
        else:
            estimator.advance(prepared, fit.stage, since=before)
            self.counters["fits_continued"] += 1
        if fit.run is not None:
            self._runs[key] = (estimator, fit.stage)
            self.counters["trees_grown"] += fit.stage - n_before
            self.counters["trees_saved"] += n_before

    def _earlier(self, key: Hashable) -> tuple[Any, int]:
        if key in self._runs:
            return self._runs[key]
        saved = runs_cache(self.data).take(key)
        if isinstance(saved, bytes):
            saved = pickle.loads(saved)  # noqa: S301 - written by this process
        return (None, 0) if saved is None else saved


def detach(estimator: Any) -> None:
    """Take the `fit` of a call away again, if it is still there."""
    fit: Callable[..., Any] | None = vars(estimator).get("fit")
    if fit is not None:
        del vars(estimator)["fit"]
