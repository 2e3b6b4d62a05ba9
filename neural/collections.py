"""Which inputs are Dask collections, without loading Dask for those that are not."""

from __future__ import annotations

import sys


def is_collection(value: object) -> bool:
    """Whether this is a Dask collection: nobody has one before importing Dask."""
    dask = sys.modules.get("dask.base")
    return dask is not None and bool(dask.is_dask_collection(value))
