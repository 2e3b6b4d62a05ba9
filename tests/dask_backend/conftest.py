"""Fixtures of this folder."""

from __future__ import annotations

from tests.reference.dask_cluster import client, cluster, security

__all__ = ["client", "cluster", "security"]
