"""A process of Spark Connect with a real server: searches and fits of local rows work, the rest is refused in words."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What pyspark's own clients of Connect import first.
MODULES = ("grpc", "grpc_status", "google.rpc", "zstandard")


def is_missing(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # the package above it
        return True


MISSING = [module for module in MODULES if is_missing(module)]
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        bool(MISSING), reason=f"Spark Connect needs {', '.join(MISSING)}: pip install 'pyspark[connect]'"
    ),
    pytest.mark.timeout(240),  # starting a server takes about 20 s, and far longer beside other work
]


@pytest.fixture(scope="module")
def told(python_of_spark: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    completed = subprocess.run(
        [sys.executable, str(HERE / "connect_program.py")],
        capture_output=True,
        text=True,
        timeout=220,
        cwd=tmp_path_factory.mktemp("connect"),
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    told: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    assert told["session"] == "pyspark.sql.connect.session.SparkSession"
    return told


def test_local_rows_are_fitted_beside_a_session_of_connect(told: dict[str, Any]) -> None:
    assert told["accuracy"] > 0.8


def test_auto_searches_here_beside_a_session_of_connect_and_after_it(told: dict[str, Any]) -> None:
    assert told["auto"] == told["stopped"] == "local"


@pytest.mark.parametrize("way", ["given", "named", "first"])
def test_a_search_on_a_session_of_connect_is_refused_in_one_sentence(way: str, told: dict[str, Any]) -> None:
    kind, text = told[way]
    assert kind == "TypeError"
    assert text.startswith("The session is one of Spark Connect, whose clients have no broadcasts: ")
    assert text.endswith('use a classic session (SparkSession.builder.master(...)), or backend="local".')


@pytest.mark.parametrize("way", ["frame", "predicted", "neural"])
def test_frames_of_connect_are_refused_with_the_way_out(way: str, told: dict[str, Any]) -> None:
    kind, text = told[way]
    assert kind == "TypeError"
    assert text.startswith("X is a DataFrame of Spark Connect")
    assert "X.toPandas()" in text


def test_a_search_over_a_frame_of_connect_does_not_point_to_executors(told: dict[str, Any]) -> None:
    kind, text = told["searched"]
    assert kind == "TypeError"
    assert "pass X.toPandas()" in text
    assert 'backend="spark"' not in text
