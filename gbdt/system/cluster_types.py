"""Which values lie on a cluster, without importing Dask or Spark for those that do not."""

from __future__ import annotations

import sys


def is_dask_collection(value: object) -> bool:
    """Whether this is a Dask collection: nobody has one before importing Dask."""
    dask = sys.modules.get("dask.base")
    return dask is not None and bool(dask.is_dask_collection(value))


def is_spark_frame(value: object) -> bool:
    """Whether this is a Spark DataFrame: nobody has one before importing pyspark."""
    module = sys.modules.get("pyspark.sql.dataframe")
    return module is not None and isinstance(value, module.DataFrame)


def is_collection(value: object) -> bool:
    """Whether the rows lie on a cluster."""
    return is_dask_collection(value) or is_spark_frame(value)
