"""The joblib backend through which a search takes over scikit-learn's calls.

scikit-learn queues all calls of a round (`submit`) before it asks for the first result (`retrieve_result`): only then
is the round planned. The backend is in force for one `Parallel` object of one thread; nothing global is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from joblib.parallel import ParallelBackendBase, parallel_config

from dmlgbm.tuning.calls import FitCall, SharedArguments, Split
from dmlgbm.tuning.driver import Driver

_OWN = ("train", "test", "parameters", "split_progress", "candidate_progress", "caller", "callback_ctx")


class _Job:
    """What joblib waits for: a call of the driver's, or any other function, which runs here when asked for."""

    def __init__(self, batch: Any, callback: Callable[[Any], None] | None) -> None:
        self.batch = batch
        self.callback = callback
        self.numbers: list[int] | None = None


class SearchBackend(ParallelBackendBase):
    """Hands the calls of a search to its driver."""

    supports_retrieve_callback = False
    supports_timeout = True

    def __init__(self, driver: Driver) -> None:
        super().__init__(nesting_level=None)
        self._driver = driver
        self._queued: list[_Job] = []
        self._shared: SharedArguments | None = None
        self._left_out: set[str] = set()
        self._in_force = parallel_config(self)

    def release(self) -> None:
        """Give joblib's configuration back to whoever had it; what was built meanwhile keeps this backend."""
        if self._in_force is not None:
            self._in_force.unregister()
            self._in_force = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        # With one job joblib would run the calls itself, without asking the backend.
        return max(2, self._driver.executor.n_slots)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        # The first Parallel is the search's. Refits, scorers and splitters must find joblib as the user left it.
        self.release()
        # A round is planned as a whole. What pre_dispatch bounds elsewhere, copies of the data, does not exist here.
        parallel.pre_dispatch = "all"
        return super().configure(n_jobs, parallel, **options)

    def submit(self, func: Any, callback: Callable[[Any], None] | None = None) -> _Job:
        job = _Job(func, callback)
        self._queued.append(job)
        return job

    def retrieve_result(self, out: _Job, timeout: float | None = None) -> Any:
        self._plan_queued()
        if out.numbers is None:
            results = [function(*given, **arguments) for function, given, arguments in out.batch.items]
        else:
            results = [self._driver.result_of(number) for number in out.numbers]
        if out.callback is not None:
            out.callback(results)
        return results

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self._queued.clear()
        self._driver.abort()

    def _plan_queued(self) -> None:
        jobs, self._queued = self._queued, []
        calls: list[FitCall] = []
        splits: dict[str, Split] = {}
        names: dict[tuple[int, int], str] = {}
        for job in jobs:
            if not all(self._is_ours(item) for item in job.batch.items):
                continue
            job.numbers = []
            for _, _, arguments in job.batch.items:
                split = (arguments["train"], arguments["test"])
                identity = (id(split[0]), id(split[1]))
                if identity not in names:
                    names[identity] = split_name(split)
                name = names[identity]
                splits[name] = split
                call = self._call(arguments, name, position=len(calls))
                job.numbers.append(call.number)
                calls.append(call)
        if calls:
            self._driver.add(calls, splits)

    def _is_ours(self, item: tuple[Any, tuple[Any, ...], Mapping[str, Any]]) -> bool:
        """Whether this is a call of the search; the first one shows what all have in common."""
        function, given, arguments = item
        if getattr(function, "__name__", "") != "_fit_and_score" or len(given) != 3:
            return False
        estimator, X, y = given
        if self._shared is None:
            common = {name: value for name, value in arguments.items() if name not in _OWN}
            self._shared = SharedArguments(function, estimator, X, y, common)
            self._left_out = {"train", "test", "parameters"}
            if not _has_callbacks(arguments.get("callback_ctx"), estimator):
                self._left_out |= {"caller", "callback_ctx"}
            self._driver.begin(self._shared)
        return X is self._shared.X and y is self._shared.y

    def _call(self, arguments: Mapping[str, Any], split: str, position: int) -> FitCall:
        candidate, _ = arguments.get("candidate_progress") or (0, 1)
        fold, _ = arguments.get("split_progress") or (position, 0)
        own = {name: arguments[name] for name in _OWN if name in arguments and name not in self._left_out}
        return FitCall(self._driver.next_number(), arguments["parameters"], split, candidate, fold, own)


def split_name(split: Split) -> str:
    """A name made from the row numbers: equal folds have equal names."""
    digest = hashlib.blake2b(digest_size=16)
    for rows in split:
        array = np.ascontiguousarray(rows)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _has_callbacks(context: Any, estimator: Any) -> bool:
    """Whether anybody has registered callbacks with the search or with the estimator it searches over."""
    if getattr(context, "_callbacks", None):
        return True
    estimators = [estimator, *estimator.get_params(deep=True).values()]
    return any(getattr(each, "_skl_callbacks", None) for each in estimators)
