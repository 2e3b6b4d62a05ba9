"""From `backend=` to an executor: names, live clients and sessions, and what "auto" means.

Backends are imported when they are asked for, so that a local search loads neither Dask nor Spark.
"""

from __future__ import annotations

import importlib
import numbers
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from dmlgbm.gbdt.system.cores import available_threads
from dmlgbm.tuning.executors.base import Executor, ExecutorError
from dmlgbm.tuning.executors.worker_threads import inside_a_unit

# Module and function of each distributed backend, and the packages it needs. The function takes the client or session
# (None: find one) and n_jobs (None: all workers).
_DISTRIBUTED = {
    "dask": ("dmlgbm.tuning.executors.dask", "open_dask", "dask and distributed", "pip install dask distributed"),
    "spark": ("dmlgbm.tuning.executors.spark", "open_spark", "pyspark", 'pip install "dmlgbm[spark]"'),
}
NAMES = ("auto", "local", *_DISTRIBUTED)


# How many times the cores of this machine an application must have before "auto" sends a search there.
_TIMES_WORTH_SPARK = 2


@dataclass(frozen=True)
class Choice:
    """Where a search runs."""

    name: str
    client: Any = None
    """The client or session where one was given."""
    reason: str | None = None
    """Why "auto" came to this, where that is not plain."""


def open_executor(backend: Any, n_jobs: int | None, notes: list[str] | None = None) -> Executor:
    """The executor for `backend=` and `n_jobs=` of a search; why "auto" chose it is added to `notes`."""
    choice = resolve(backend)
    name, client = choice.name, choice.client
    if choice.reason is not None and notes is not None:
        notes.append(choice.reason)
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


def resolve(backend: Any) -> Choice:
    """The backend that a value of `backend=` means."""
    if not isinstance(backend, str):
        root = type(backend).__module__.partition(".")[0]
        known = {"distributed": "dask", "dask": "dask", "pyspark": "spark"}
        if root not in known:
            raise TypeError(
                f"backend must be one of {', '.join(map(repr, NAMES))}, a distributed.Client, a SparkSession or a "
                f"SparkContext, got {backend!r:.80} of type {type(backend).__name__}."
            )
        return Choice(known[root], backend)
    if backend not in NAMES:
        raise ValueError(f"backend must be one of {', '.join(map(repr, NAMES))}, got {backend!r}.")
    return _found() if backend == "auto" else Choice(backend)


def _found() -> Choice:
    """The cluster that this process is connected to, if any; nobody is connected before importing the library."""
    if inside_a_unit():
        return Choice("local")
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            distributed.get_client()
        except ValueError:
            pass
        else:
            return Choice("dask")
    # A session of Spark Connect, which cannot run searches, has no context.
    spark = sys.modules.get("pyspark")
    context = getattr(getattr(spark, "SparkContext", None), "_active_spark_context", None)
    return Choice("local") if context is None else _on_spark_or_here(context)


def _on_spark_or_here(context: Any) -> Choice:
    """Many sessions are opened to read and write tables: an application is used where it clearly pays."""
    told = 'backend="auto" chose'
    if str(context.master).partition("[")[0] == "local":
        return Choice("local", None, f'{told} "local": the Spark application runs on this machine, too.')
    try:
        scala = context._jsc.sc()
        n_slots = int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
        is_busy = bool(context.statusTracker().getActiveJobsIds())
    except Exception:  # noqa: BLE001 - whatever way Spark has to say that an application was stopped
        return Choice("local", None, f'{told} "local": the Spark application does not answer.')
    n_cores = available_threads()
    counted = f"{n_slots} slots, this machine {n_cores} cores"
    if is_busy or n_slots < _TIMES_WORTH_SPARK * n_cores:
        because = "is busy with other jobs" if is_busy else f"has {counted}"
        return Choice("local", None, f'{told} "local": the Spark application {because}; backend="spark" uses it.')
    return Choice("spark", context, f'{told} "spark": the application has {counted}; backend="local" stays here.')


def _open_local(n_jobs: int | None) -> Executor:
    _, configured = get_active_backend()
    n_workers = _n_workers(configured if n_jobs is None else n_jobs)
    if n_workers == 1 or inside_a_unit():
        from dmlgbm.tuning.executors.serial import SerialExecutor

        return SerialExecutor()
    from dmlgbm.tuning.executors.local import LocalExecutor

    return LocalExecutor(n_workers, max(1, available_threads() // n_workers))


def _n_workers(n_jobs: int | None) -> int:
    """scikit-learn's meaning: None is what joblib is configured for, or one; -1 all cores, -2 all but one, ..."""
    if n_jobs is None:
        return 1
    return n_jobs if n_jobs > 0 else max(1, min(joblib.cpu_count(), available_threads()) + 1 + n_jobs)
