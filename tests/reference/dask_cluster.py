"""Fixtures of tests on a Dask cluster: one of real processes that all tests share, and what one with TLS needs.

A folder of such tests imports them in its `conftest.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster, Security

from tests.reference.certificates import self_signed


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes with one thread each, for tests that leave them as they found them."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of its own for every test; it is the current one while the test runs."""
    with Client(cluster) as connected:
        yield connected


@pytest.fixture
def security(tmp_path: Path) -> Security:
    """Certificates of a cluster, which everybody in it must show."""
    certificate, key = self_signed(tmp_path)
    roles = ("client", "scheduler", "worker")
    files = {f"tls_{role}_{kind}": path for role in roles for kind, path in (("cert", certificate), ("key", key))}
    return Security(tls_ca_file=certificate, require_encryption=True, **files)
