"""The adapters offer the same calls with the same bits, where their libraries are installed."""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgbm.collectives.adapters.gloo import gloo_communicator
from dmlgbm.collectives.adapters.mpi import mpi_communicator
from tests.collectives import oracle, ranks

TYPES = [np.dtype("l"), np.dtype("d"), oracle.SPLIT]
ROOT = Path(__file__).resolve().parents[3]
BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")


def check(communicator: Any) -> None:
    with communicator:
        ranks.check_reductions(communicator, TYPES, [0, 1, 1000])
        ranks.check_movements(communicator, TYPES, [0, 1, 1000])
        ranks.check_the_rest(communicator)


def gloo_rank(rank: int, world_size: int, store: str, results: Any) -> None:
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    check(gloo_communicator())
    distributed.barrier()
    distributed.destroy_process_group()
    results.put(rank)


@pytest.mark.processes
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_gloo_gives_the_bits_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=gloo_rank, args=(rank, 3, str(tmp_path / "store"), results), daemon=True)
        for rank in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(50)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(results.get(timeout=5) for _ in range(3)) == [0, 1, 2]


@pytest.mark.processes
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None or MPIEXEC is None, reason="mpi4py is not installed")
def test_mpi_gives_the_bits_of_the_reference() -> None:
    program = "from tests.collectives import test_adapters as t; t.check(t.mpi_communicator()); print('right')"
    completed = subprocess.run(
        [str(MPIEXEC), "-n", "3", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=ROOT,
        check=False,
    )
    assert completed.stdout.count("right") == 3, completed.stderr


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_a_missing_torch_is_named() -> None:
    with pytest.raises(ImportError, match="pip install torch"):
        gloo_communicator()


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is not None, reason="mpi4py is installed")
def test_a_missing_mpi4py_is_named() -> None:
    with pytest.raises(ImportError, match="pip install mpi4py"):
        mpi_communicator()
