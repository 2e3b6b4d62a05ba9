"""The same on executors in processes of their own, some of which are killed: Spark's local cluster and standalone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


def told_by_program(master: str) -> dict[str, Any]:
    completed = subprocess.run(
        [sys.executable, str(HERE / "cluster_program.py"), master, "fit", "search", "bins"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), str(HERE)])},
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    return json.loads(completed.stdout.splitlines()[-1])


def require_everything(told: dict[str, Any]) -> None:
    assert told.pop("n_ranks") == 2
    assert told.pop("restarts") == 1
    assert told.pop("seconds") < 200
    assert all(told.values()), told


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_killed_executors_of_a_local_cluster_change_nothing() -> None:
    require_everything(told_by_program("local-cluster[2,1,1024]"))


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(400)
def test_killed_executors_of_a_standalone_cluster_change_nothing(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        require_everything(told_by_program(master))


@contextlib.contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """A master and two workers from pyspark's own jars."""
    with contextlib.ExitStack() as stack:
        master = started(stack, folder / "master", "master.Master", ["--host", "127.0.0.1", "--port", "0"])
        address = found_in(folder / "master" / "log", r"Starting Spark master at (spark://\S+)", master)
        for number in range(2):
            own = folder / f"worker-{number}"
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(own), address]
            worker = started(stack, own, "worker.Worker", options)
            found_in(own / "log", r"Successfully registered with master", worker)
        yield address


def started(stack: contextlib.ExitStack, folder: Path, name: str, options: list[str]) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    folder.mkdir()
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options, "--webui-port", "0"]
    log = stack.enter_context((folder / "log").open("wb"))
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    stack.callback(ended, process)
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    """The process and those it started, which are in a group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def found_in(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        text = log.read_text(encoding="utf-8", errors="replace")
        match = re.search(pattern, text)
        if match is not None:
            return match[match.lastindex or 0]
        assert process.poll() is None, text
        time.sleep(0.2)
    raise AssertionError(f"{pattern} is not in {log} after 60 s:\n{text}")
