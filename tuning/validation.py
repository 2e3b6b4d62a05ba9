"""`cross_validate` and `cross_val_score`: scikit-learn's functions, run by the executors of this package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import model_selection

from dmlgbm.tuning.collections import gathered
from dmlgbm.tuning.driver import DriverSettings
from dmlgbm.tuning.executors.registry import open_executor
from dmlgbm.tuning.executors.serial import SerialExecutor
from dmlgbm.tuning.progress import watchers_for
from dmlgbm.tuning.search_run import SearchRun, check_settings


def cross_validate(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    n_jobs: int | None = None,
    backend: Any = "auto",
    progress: bool = False,
    max_retries: int = 3,
    **options: Any,
) -> dict[str, Any]:
    """scikit-learn's cross_validate, which `options` are for, on `backend`."""
    X, y, options, in_pieces = gathered(estimator, X, y, options, backend)
    with _running(backend, n_jobs, progress, max_retries, in_pieces):
        return dict(model_selection.cross_validate(estimator, X, y, n_jobs=n_jobs, **options))


def cross_val_score(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    n_jobs: int | None = None,
    backend: Any = "auto",
    progress: bool = False,
    max_retries: int = 3,
    **options: Any,
) -> npt.NDArray[np.float64]:
    """scikit-learn's cross_val_score, which `options` are for, on `backend`."""
    X, y, options, in_pieces = gathered(estimator, X, y, options, backend)
    with _running(backend, n_jobs, progress, max_retries, in_pieces):
        return np.asarray(model_selection.cross_val_score(estimator, X, y, n_jobs=n_jobs, **options))


@contextlib.contextmanager
def _running(backend: Any, n_jobs: int | None, progress: bool, max_retries: int, in_pieces: bool) -> Iterator[None]:
    settings = DriverSettings(share_work=not in_pieces, max_retries=max_retries)
    check_settings(settings)
    # Data in pieces is trained on from here, by all workers together.
    executor = SerialExecutor() if in_pieces else open_executor(backend, n_jobs)
    run = SearchRun(executor, settings, watchers=watchers_for(progress))
    try:
        yield
    finally:
        run.close()
