"""`fit` on Dask collections: the workers describe their partitions and make numbers of them where they lie."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from dmlgbm.dask_backend.cluster import connected
from dmlgbm.dask_backend.row_inputs import partition_inputs
from dmlgbm.neural.estimators.parameters import checked_choice, checked_number
from dmlgbm.neural.estimators.partitioned_fit import PartitionedFit, described, encoded, read_part
from dmlgbm.neural.running.dask_workers import train_on_cluster

if TYPE_CHECKING:
    from dmlgbm.neural.estimators.base import NeuralEstimator


def fit_collection(estimator: NeuralEstimator, X: Any, y: Any, sample_weight: Any = None) -> None:
    """Train on the workers of the current client (or in this process), and store the result."""
    fit_id = secrets.token_hex(8)
    checked_choice("backend", estimator.backend, ("auto", "dask"))
    vectors = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
    # Heartbeats come about once a second.
    seconds = max(1.0, checked_number("rank_timeout", estimator.rank_timeout, above=0))
    collections = [X, *vectors.values()]
    with connected(collections, fit_id, worker_timeout=seconds, timeout_parameter="rank_timeout") as cluster:
        raw = cluster.read(read_part, partition_inputs(X, vectors), "neural-read")
        describe = partial(described, classifies=estimator._classifies, chosen=estimator.categorical_columns)
        fit = PartitionedFit.of(
            estimator, cluster.gather(cluster.map(describe, [(part,) for part in raw], "neural-described"))
        )
        parts = cluster.map(encoded, [(part, fit.encoding) for part in raw], "neural-encode")
        del raw
        trained = train_on_cluster(cluster, fit_id, fit.job, parts, fit.table, fit.survivor, fit.max_ranks)
    fit.store(trained)
