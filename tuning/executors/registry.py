"""From `backend=` to an executor: names, live clients and sessions, and what "auto" means.

Backends are imported when they are asked for, so that a local search loads neither Dask nor Spark.
"""

from __future__ import annotations

import importlib
import numbers
import sys
from collections.abc import Callable
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from gbdt.threads import available_threads
from tuning.executors.base import Executor, ExecutorError
from tuning.executors.worker_threads import inside_a_unit

# Module and function of each distributed backend, and the packages it needs. The function takes the client or session
# (None: find one) and n_jobs (None: all workers).
_DISTRIBUTED = {
    "dask": ("tuning.executors.dask", "open_dask", "dask and distributed", "pip install dask distributed"),
    "spark": ("tuning.executors.spark", "open_spark", "pyspark", 'pip install "dmlgbm[spark]"'),
}
NAMES = ("auto", "local", *_DISTRIBUTED)


def open_executor(backend: Any, n_jobs: int | None) -> Executor:
    """The executor for `backend=` and `n_jobs=` of a search."""
    name, client = resolve(backend)
    if inside_a_unit():
        name = "local"  # a task that waits for tasks of its own cluster may wait for ever
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral)):
        raise TypeError(f"n_jobs must be None or a whole number, got {n_jobs!r} of type {type(n_jobs).__name__}.")
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning: write a number of workers, or -1 for all cores.")
    if name == "local":
        return _open_local(n_jobs)
    module, function, packages, remedy = _DISTRIBUTED[name]
    try:
        opened: Callable[[Any, int | None], Executor] = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ExecutorError(
            f"backend={name!r} needs {packages}, which cannot be imported ({error}): {remedy}."
        ) from error
    return opened(client, n_jobs)


def resolve(backend: Any) -> tuple[str, Any]:
    """The name of the backend, and the client or session where one was given."""
    if not isinstance(backend, str):
        root = type(backend).__module__.partition(".")[0]
        known = {"distributed": "dask", "dask": "dask", "pyspark": "spark"}
        if root not in known:
            raise TypeError(
                f"backend must be one of {', '.join(map(repr, NAMES))}, a distributed.Client or a SparkSession, "
                f"got {backend!r:.80} of type {type(backend).__name__}."
            )
        return known[root], backend
    if backend not in NAMES:
        raise ValueError(f"backend must be one of {', '.join(map(repr, NAMES))}, got {backend!r}.")
    return (_found(), None) if backend == "auto" else (backend, None)


def _found() -> str:
    """The cluster that this process is connected to, if any; nobody is connected before importing the library."""
    if inside_a_unit():
        return "local"
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            distributed.get_client()
        except ValueError:
            pass
        else:
            return "dask"
    spark = sys.modules.get("pyspark.sql")
    if spark is not None and spark.SparkSession.getActiveSession() is not None:
        return "spark"
    return "local"


def _open_local(n_jobs: int | None) -> Executor:
    _, configured = get_active_backend()
    n_workers = _n_workers(configured if n_jobs is None else n_jobs)
    if n_workers == 1 or inside_a_unit():
        from tuning.executors.serial import SerialExecutor

        return SerialExecutor()
    from tuning.executors.local import LocalExecutor

    return LocalExecutor(n_workers, max(1, available_threads() // n_workers))


def _n_workers(n_jobs: int | None) -> int:
    """scikit-learn's meaning: None is what joblib is configured for, or one; -1 all cores, -2 all but one, ..."""
    if n_jobs is None:
        return 1
    return n_jobs if n_jobs > 0 else max(1, joblib.cpu_count() + 1 + n_jobs)
