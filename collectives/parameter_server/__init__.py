"""A sharded, replicated store of arrays that workers push to and pull from."""

from __future__ import annotations

from dmlgbm.collectives.parameter_server.coded_values import PushCoder
from dmlgbm.collectives.parameter_server.consistency import Consistency, asp, bsp, ssp
from dmlgbm.collectives.parameter_server.coordinator_core import StorePlan
from dmlgbm.collectives.parameter_server.errors import (
    KeyMismatchError,
    RefusedError,
    SnapshotError,
    StoreClosedError,
    StoreError,
    StoreTimeout,
    UnknownKeyError,
    WorkerExpiredError,
)
from dmlgbm.collectives.parameter_server.membership import Membership
from dmlgbm.collectives.parameter_server.mirror import Mirror
from dmlgbm.collectives.parameter_server.nodes import Coordinator, ParameterServer
from dmlgbm.collectives.parameter_server.optimisers import SGD, Adagrad, Adam, Momentum, Optimiser, Sum
from dmlgbm.collectives.parameter_server.store import Store

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Consistency",
    "Coordinator",
    "KeyMismatchError",
    "Membership",
    "Mirror",
    "Momentum",
    "Optimiser",
    "ParameterServer",
    "PushCoder",
    "RefusedError",
    "SnapshotError",
    "Store",
    "StoreClosedError",
    "StoreError",
    "StorePlan",
    "StoreTimeout",
    "Sum",
    "UnknownKeyError",
    "WorkerExpiredError",
    "asp",
    "bsp",
    "ssp",
]
