"""What an estimator sorts out before a call runs here or on a cluster: its own state, and what the place ignores."""

from __future__ import annotations

import warnings
from typing import Any


def snapshot(estimator: Any) -> Any:
    """The estimator as it is now, read at once.

    A fit meanwhile, in another thread, must not mix with a prediction, nor a later fit change one that has not been
    computed yet.
    """
    own = object.__new__(type(estimator))
    vars(own).update(vars(estimator))
    return own


def refuse_client(client: object) -> None:
    """A fit of local rows has no use for a client: say so, before anybody takes the result for a cluster's."""
    if client is not None:
        raise ValueError(
            "client was passed, but X is not a Dask collection, so the fit would run in this process: pass Dask data, "
            "or leave client out."
        )


# Parameters that only a fit on a cluster looks at, with their defaults.
_CLUSTER_PARAMETERS = {
    "tree_learner": "auto",
    "top_k": 20,
    "max_restarts": 3,
    "worker_timeout": 30.0,
    "checkpoint_dir": None,
}


def warn_of_cluster_parameters(estimator: Any) -> None:
    """Say which parameters a fit in this process does not use."""
    unused = [name for name, default in _CLUSTER_PARAMETERS.items() if getattr(estimator, name) != default]
    if unused:
        warnings.warn(
            f"{', '.join(unused)} {'has' if len(unused) == 1 else 'have'} no effect here: X is no Dask collection or "
            "Spark DataFrame, so the fit runs in this process.",
            stacklevel=4,
        )


def warn_of_dask_parameters(estimator: Any) -> None:
    """Say what a fit on Spark leaves to Spark."""
    if estimator.worker_timeout != _CLUSTER_PARAMETERS["worker_timeout"]:
        warnings.warn(
            "worker_timeout has no effect on Spark, which notices lost executors itself: set spark.network.timeout and "
            "spark.executor.heartbeatInterval.",
            stacklevel=4,
        )
