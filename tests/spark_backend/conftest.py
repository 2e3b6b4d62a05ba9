"""One Spark session for all tests of a file: starting one takes longer than any of them.

It ends with the file: searches of other tests would find it and run there.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEED_NO_SPARK = ("test_spark_parts.py",)


def why_spark_is_missing() -> str | None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed: pip install '.[spark]'"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no Java was found: install Java 17, or set JAVA_HOME"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_spark_is_missing()
    if reason is not None:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents and item.path.name not in NEED_NO_SPARK:
                item.add_marker(pytest.mark.skip(reason=reason))


def new_session(master: str) -> Any:
    """A session whose workers run this interpreter and find this checkout."""
    from pyspark.sql import SparkSession

    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    session = (
        SparkSession.builder.master(master)
        .appName("dmlgbm-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.PYTHONPATH", path)
        .config("spark.executorEnv.NUMBA_CACHE_DIR", os.environ.get("NUMBA_CACHE_DIR", ""))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module", autouse=True)
def python_of_spark() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        # Workers of a local session inherit this; they unpickle functions of the test modules.
        known = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, known)))
        yield


@pytest.fixture(scope="module")
def spark(python_of_spark: None) -> Iterator[Any]:
    session = new_session("local[2]")
    yield session
    session.stop()
