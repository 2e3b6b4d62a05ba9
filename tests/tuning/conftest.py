"""Data for the searches, and the end of their worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification

from dmlgbm.tuning.executors.worker_pool import stop_idle_workers


@pytest.fixture(scope="session", autouse=True)
def _end_of_workers() -> Iterator[None]:
    yield
    stop_idle_workers()


@pytest.fixture(scope="session")
def rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    X, y = make_classification(300, 6, n_informative=4, flip_y=0.2, random_state=0)
    return X, y
