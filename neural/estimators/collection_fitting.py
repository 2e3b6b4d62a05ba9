"""`fit` on Dask collections: the workers describe their partitions and make numbers of them where they lie."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from dmlgbm.dask_backend.cluster import connected
from dmlgbm.dask_backend.row_inputs import partition_inputs
from dmlgbm.neural.estimators.parameters import checked_choice, checked_number
from dmlgbm.neural.estimators.partition_plan import PartitionPlan, described, encoded, read_part
from dmlgbm.neural.running.dask_workers import train_on_cluster

if TYPE_CHECKING:
    from dmlgbm.neural.estimators.base import NeuralEstimator


def fit_collection(estimator: NeuralEstimator, X: Any, y: Any, sample_weight: Any = None) -> None:
    """Train on the workers of the current client (or in this process), and store the result."""
    session = secrets.token_hex(8)
    checked_choice("backend", estimator.backend, ("auto", "dask"))
    vectors = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
    # Heartbeats come about once a second.
    seconds = max(1.0, checked_number("rank_timeout", estimator.rank_timeout, above=0))
    collections = [X, *vectors.values()]
    with connected(collections, session, worker_timeout=seconds, timeout_parameter="rank_timeout") as cluster:
        raw = cluster.read(read_part, partition_inputs(X, vectors), "neural-read")
        describe = partial(described, classifies=estimator._classifies, chosen=estimator.categorical_columns)
        plan = PartitionPlan.of(
            estimator, cluster.gather(cluster.map(describe, [(part,) for part in raw], "neural-described"))
        )
        parts = cluster.map(encoded, [(part, plan.encoding) for part in raw], "neural-encode")
        del raw
        trained = train_on_cluster(cluster, session, plan.job, parts, plan.table, plan.survivor, plan.max_ranks)
    plan.store(trained)
