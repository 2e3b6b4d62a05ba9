"""A cluster of real processes, started once for the tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes with one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of its own for every test; it is the current one while the test runs."""
    with Client(cluster) as connected:
        yield connected
