"""Searches over Dask collections: gathered where they fit into a worker, left in pieces where they do not.

Gathered data is searched through like any other: it goes to each worker once, and folds are row numbers. Data in
pieces stays on the cluster: one fit after the other runs from this process, each over all workers, through an
estimator that can train on Dask collections.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from dmlgbm.gbdt.system.cluster_types import is_dask_collection
from dmlgbm.tuning.sharing.hooks import trains_on_collections

# A worker holds the data, a copy of the rows of a fold and what the fit makes of them.
_SHARE_OF_MEMORY = 0.25


def gathered(
    estimator: Any, X: Any, y: Any, params: Mapping[str, Any], backend: Any
) -> tuple[Any, Any, dict[str, Any], bool]:
    """X, y and fit parameters as the search needs them, and whether X stays in pieces on a cluster."""
    _refuse_spark_frames({"X": X, "y": y, **params})
    nested = (each for value in params.values() if isinstance(value, Mapping) for each in value.values())
    if not any(map(is_dask_collection, (X, y, *params.values(), *nested))):
        return X, y, dict(params), False
    from dask.base import compute

    client = _client(backend)
    with contextlib.nullcontext() if client is None else _watched(client):
        if not is_dask_collection(X) or _n_bytes(X) <= _bytes_that_fit(client):
            X, y, given = compute(X, y, dict(params))
            return X, y, given, False
        y, given = compute(y, dict(params))
        return _indexed_by_rows(estimator, X), y, given, True


def _watched(client: Any) -> contextlib.AbstractContextManager[None]:
    from dmlgbm.tuning.executors.dask import watch_of_search

    return watch_of_search(client).running()


def _refuse_spark_frames(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        module = type(value).__module__
        if module.startswith("pyspark."):
            told = (
                f"{name} is a Spark {type(value).__name__}, and a search cuts its folds from rows of this process: "
                f"pass {name}.toPandas()"
            )
            if module.startswith("pyspark.sql.connect."):  # which trains neither searches nor models
                raise TypeError(f"{told}.")
            raise TypeError(
                f'{told}, with backend="spark" to fit on the executors. A single model of ours can be trained on a '
                'whole frame: DMLGBMClassifier().fit(frame, "column").'
            )


def _n_bytes(X: Any) -> float:
    if hasattr(X, "memory_usage"):
        return float(X.memory_usage(deep=True).sum().compute())
    known = X.nbytes
    if known == known:
        return float(known)
    return float(X.map_blocks(lambda block: block.nbytes, dtype=int, drop_axis=1).sum().compute())


def _bytes_that_fit(client: Any) -> float:
    """The largest data that every worker, and this process, can hold."""
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [float(here)]
    if client is not None:
        from dmlgbm.dask_backend.heartbeats import known_workers

        known = client.sync(known_workers, client).values()
        limits += [float(each["memory_limit"]) for each in known if each["memory_limit"]]
    return _SHARE_OF_MEMORY * min(limits)


def _client(backend: Any) -> Any:
    from distributed import Client, get_client

    if isinstance(backend, Client):
        return backend
    try:
        return get_client()
    except ValueError:
        return None


def _indexed_by_rows(estimator: Any, X: Any) -> Any:
    """A Dask array whose rows can be picked by number."""
    if not trains_on_collections(estimator):
        raise ValueError(
            f"X does not fit into a worker, and {type(estimator).__name__} cannot train on Dask collections: use a "
            "DMLGBM estimator, larger workers, or fewer rows."
        )
    if hasattr(X, "to_dask_array"):
        others = [str(name) for name, kind in X.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
        if others:
            raise ValueError(
                f"X does not fit into a worker, and its columns {', '.join(others)} are not numbers: encode them first."
            )
        from dask import config

        # Where it joins partitions of few columns, Dask counts the rows of others than it then makes chunks of.
        with config.set({"optimization.tune.active": False}):
            X = X.to_dask_array(lengths=True)
    elif any(size != size for size in X.shape):
        X = X.compute_chunk_sizes()
    return X
