"""Latency and bandwidth of all_reduce by transport, size and number of ranks, beside other libraries in the same run.

Systems are measured in turns, so that a slow minute of the machine hits all of them; the median of the calls of the
best turn counts. `--hold-gil` measures how long an all_reduce takes while another thread of each rank holds the GIL:
`blocked` holds it inside a C call without using a core, `computing` runs Python, and `elsewhere` runs the same Python
in a process of its own, which takes as much of the cores but no GIL: what it shares with `computing` is the work of the
system's scheduler, not of the GIL.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import collective_peers as peers
from benchmarks.collective_kernels import time_again
from benchmarks.run import start_results
from dmlgbm.collectives import Communicator, JoinOptions
from dmlgbm.collectives.joining.launch import run_processes
from dmlgbm.collectives.kernels.layout import DONE
from dmlgbm.collectives.kernels.system_calls import new_scratch

COLLECTIVE, HELD_GIL = "collective", "held_gil"
HOLD_SECONDS = 0.02
# Until the holders of all ranks have started.
SETTLE_SECONDS = 1.0
HOLDERS = ("nobody", "blocked", "computing", "elsewhere")

Measure = Callable[[int, int, int], list[float]]


@dataclass(frozen=True)
class Figure:
    """One system at one size and number of ranks."""

    system: str
    ranks: int
    n_bytes: int
    median_seconds: float
    p99_seconds: float
    gigabytes_per_second: float


def systems() -> dict[str, Measure]:
    """Ours by transport, and every other library that is installed."""
    found: dict[str, Measure] = {
        "tcp": partial(peers.ours, "tcp", JoinOptions()),
        "tcp, python loop": partial(peers.ours, "tcp", JoinOptions(native=False)),
        "unix": partial(peers.ours, "unix", JoinOptions()),
        "shared memory": partial(peers.ours, "unix", JoinOptions(shared_memory=True)),
        "threads": partial(peers.ours, "memory", JoinOptions()),
    }
    others: dict[str, Measure] = {"xgboost": peers.xgboost, "torch": peers.gloo, "mpi4py": peers.mpi}
    return found | {library: measure for library, measure in others.items() if peers.installed(library)}


def measure_all(ranks: int, n_bytes: int, turns: int, most_calls: int, chosen: dict[str, Measure]) -> list[Figure]:
    n_calls = int(np.clip(2e8 / max(n_bytes, 1) / ranks, min(30, most_calls), most_calls))
    best: dict[str, npt.NDArray[np.float64]] = {}
    for _ in range(turns):
        for name, measure in chosen.items():
            seconds = np.array(measure(ranks, n_bytes, n_calls))
            if name not in best or np.median(seconds) < np.median(best[name]):
                best[name] = seconds
    return [
        Figure(
            name,
            ranks,
            n_bytes,
            float(np.median(seconds)),
            float(np.percentile(seconds, 99)),
            n_bytes / float(np.median(seconds)) / 1e9,
        )
        for name, seconds in best.items()
    ]


def time_in_kernel(communicator: Communicator, array: npt.NDArray[np.float64], n_calls: int) -> list[float]:
    times, scratch, position = np.zeros(n_calls, np.int64), new_scratch(), 0
    calls = communicator.kernel_calls()
    prepared = calls.all_reduce(array)
    with calls:
        while position < n_calls:
            until = time.monotonic_ns() + 30_000_000_000
            position, status = time_again(prepared.arguments, times, position, until, scratch)
            calls.finish(status)
            position += status != DONE
    return (times / 1e9).tolist()


@contextmanager
def held_gil(holder: str) -> Iterator[None]:
    """Another thread that holds the GIL for as long as the interpreter lets it."""
    stop = threading.Event()

    def block() -> None:
        library = ctypes.PyDLL(None)  # whose functions are called with the GIL held
        while not stop.is_set():
            library.usleep(int(HOLD_SECONDS * 1e6))

    def compute_elsewhere() -> None:
        process = multiprocessing.get_context("spawn").Process(target=compute, args=(None,), daemon=True)
        process.start()
        stop.wait()
        process.kill()
        process.join()

    ways: dict[str, Callable[[], object]] = {
        "nobody": stop.wait,
        "blocked": block,
        "computing": partial(compute, stop),
        "elsewhere": compute_elsewhere,
    }
    thread = threading.Thread(target=ways[holder])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def compute(stop: threading.Event | None) -> None:
    """Count in Python until told to stop, or for as long as the process lives."""
    count = 0
    while stop is None or not stop.is_set():
        count += 1


def held_rank(communicator: Communicator, n_bytes: int, n_calls: int, holder: str) -> tuple[list[float], list[float]]:
    array = np.ones(n_bytes // 8)
    time_in_kernel(communicator, array, 50)
    communicator.barrier()
    with held_gil(holder):
        time.sleep(SETTLE_SECONDS)
        communicator.barrier()
        in_kernel = time_in_kernel(communicator, array, n_calls)
        from_python = peers.time_calls(lambda: communicator.all_reduce(array), n_calls // 10)
    return in_kernel, from_python


def measure_held_gil(ranks: int, n_bytes: int, n_calls: int = 2000) -> Iterator[dict[str, Any]]:
    for holder in HOLDERS:
        answers = run_processes(held_rank, ranks, (n_bytes, n_calls, holder), timeout=peers.SECONDS_FOR_ONE)
        for caller, seconds in zip(("kernel", "python"), answers[0], strict=True):
            yield {
                "holder": holder,
                "caller": caller,
                "ranks": ranks,
                "n_bytes": n_bytes,
                "median_seconds": float(np.median(seconds)),
                "p99_seconds": float(np.percentile(seconds, 99)),
            }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_collectives", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="default: 2 4")
    parser.add_argument("--bytes", type=int, nargs="+", default=[64, 65_536, 4 << 20], help="default: 64 65536 4194304")
    parser.add_argument("--turns", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--calls", type=int, default=1000, help="at most; default: %(default)s")
    parser.add_argument("--systems", nargs="+", metavar="NAME", help="default: all that are installed")
    parser.add_argument("--hold-gil", action="store_true", help="measure with a thread that holds the GIL instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also append JSON lines to this file")
    arguments = parser.parse_args()
    results = None if arguments.json is None else start_results(arguments.json)
    if arguments.hold_gil:
        for ranks in arguments.ranks:
            for record in measure_held_gil(ranks, 65_536):
                print("{holder:<10} {caller:<7}{ranks:3} ranks".format(**record), end="")
                print(f"{1e6 * record['median_seconds']:10.0f} us, p99 {1e6 * record['p99_seconds']:10.0f} us")
                if results is not None:
                    results.append(HELD_GIL, record)
        return
    chosen = {
        name: measure for name, measure in systems().items() if not arguments.systems or name in arguments.systems
    }
    for ranks in arguments.ranks:
        for n_bytes in arguments.bytes:
            print(f"\nall_reduce of {n_bytes:,} bytes, {ranks} ranks")
            print(f"{'system':<18}{'median us':>10}{'p99 us':>10}{'GB/s':>8}")
            for figure in measure_all(ranks, n_bytes, arguments.turns, arguments.calls, chosen):
                times = f"{1e6 * figure.median_seconds:10.0f}{1e6 * figure.p99_seconds:10.0f}"
                print(f"{figure.system:<18}{times}{figure.gigabytes_per_second:8.2f}", flush=True)
                if results is not None:
                    results.append(COLLECTIVE, asdict(figure))


if __name__ == "__main__":
    main()
