"""One rank of each library that `bench_collectives` compares, all timing the same: repeated all_reduce of float64.

Functions here are started in new processes and return the seconds of each call. A library that is not installed is
left out.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dmlgbm.collectives import Communicator, JoinOptions
from dmlgbm.collectives.joining.launch import run_processes, run_threads

WARM_UP_CALLS = 10
SECONDS_FOR_ONE = 80.0

Seconds = list[float]


def time_calls(call: Callable[[], object], n_calls: int) -> Seconds:
    for _ in range(WARM_UP_CALLS):
        call()
    seconds = []
    for _ in range(n_calls):
        began = perf_counter()
        call()
        seconds.append(perf_counter() - began)
    return seconds


def our_rank(communicator: Communicator, n_bytes: int, n_calls: int) -> Seconds:
    array, out = np.ones(n_bytes // 8), np.empty(n_bytes // 8)
    return time_calls(lambda: communicator.all_reduce(array, out=out), n_calls)


def ours(transport: str, options: JoinOptions, ranks: int, n_bytes: int, n_calls: int) -> Seconds:
    if transport == "memory":
        return run_threads(our_rank, ranks, (n_bytes, n_calls), options=options)[0]
    return run_processes(
        our_rank, ranks, (n_bytes, n_calls), transport=transport, options=options, timeout=SECONDS_FOR_ONE
    )[0]


def _xgboost_rank(pipe: Any, rank: int, port: int, n_bytes: int, n_calls: int) -> None:
    from xgboost import collective

    tracker: dict[str, Any] = {"dmlc_tracker_uri": "127.0.0.1", "dmlc_tracker_port": port}
    with collective.CommunicatorContext(dmlc_communicator="rabit", dmlc_task_id=str(rank), **tracker):
        array = np.ones(n_bytes // 8)
        pipe.send(time_calls(lambda: collective.allreduce(array, collective.Op.SUM), n_calls))


def xgboost(ranks: int, n_bytes: int, n_calls: int) -> Seconds:
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=ranks, host_ip="127.0.0.1")
    tracker.start()
    port = int(tracker.worker_args()["dmlc_tracker_port"])
    return _first_of_processes(_xgboost_rank, ranks, (port, n_bytes, n_calls))


def _gloo_rank(pipe: Any, rank: int, ranks: int, store: str, n_bytes: int, n_calls: int) -> None:
    import torch
    from torch import distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    array = torch.ones(n_bytes // 8, dtype=torch.float64)
    pipe.send(time_calls(lambda: distributed.all_reduce(array), n_calls))
    distributed.destroy_process_group()


def gloo(ranks: int, n_bytes: int, n_calls: int) -> Seconds:
    with tempfile.TemporaryDirectory() as folder:
        return _first_of_processes(_gloo_rank, ranks, (ranks, str(Path(folder, "store")), n_bytes, n_calls))


def _first_of_processes(function: Callable[..., None], ranks: int, arguments: tuple[Any, ...]) -> Seconds:
    """The seconds that rank 0 measured; every process is ended before this returns."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(ranks)]
    processes = [
        context.Process(target=function, args=(pipes[rank][1], rank, *arguments), daemon=True) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        if not pipes[0][0].poll(SECONDS_FOR_ONE):
            raise TimeoutError(f"{function.__name__} did not end in time")
        return pipes[0][0].recv()
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def mpi(ranks: int, n_bytes: int, n_calls: int) -> Seconds:
    launcher = _mpi_launcher()
    assert launcher is not None
    command = [launcher, "-n", str(ranks), sys.executable, "-m", "benchmarks.collective_peers"]
    completed = subprocess.run(
        [*command, str(n_bytes), str(n_calls)], capture_output=True, text=True, timeout=SECONDS_FOR_ONE, check=True
    )
    seconds: Seconds = json.loads(completed.stdout)
    return seconds


def _mpi_launcher() -> str | None:
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _mpi_rank(n_bytes: int, n_calls: int) -> None:
    from mpi4py import MPI

    array, out = np.ones(n_bytes // 8), np.empty(n_bytes // 8)
    seconds = time_calls(lambda: MPI.COMM_WORLD.Allreduce(array, out), n_calls)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(seconds))


def installed(library: str) -> bool:
    if library == "mpi4py" and _mpi_launcher() is None:
        return False
    return importlib.util.find_spec(library) is not None


if __name__ == "__main__":
    _mpi_rank(int(sys.argv[1]), int(sys.argv[2]))
