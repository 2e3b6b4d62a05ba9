"""Round trips to the parameter server on one machine, by size, copies, transport and where the servers run.

Every figure is the median and the 99th percentile of single blocking calls of one worker, after a few calls that do
not count. Beside them stands the same exchange over a bare socket pair between two threads: a floor for this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

from benchmarks.run import start_results
from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.parameter_server import Coordinator, Membership, ParameterServer, Store, StorePlan, asp

PARAMETER_SERVER = "parameter_server"
SIZES = (64, 4096, 65536, 1 << 20, 4 << 20)
LISTENERS: dict[str, Callable[[], Listener]] = {"tcp": Listener.tcp, "unix": Listener.unix}
UNCOUNTED = 20


@dataclass(frozen=True)
class Figure:
    """One kind of call; `calls` were measured."""

    operation: str
    transport: str
    servers: str
    copies: int
    size_bytes: int
    calls: int
    median_seconds: float
    p99_seconds: float


def serve(record: Mapping[str, Any], transport: str) -> None:
    with ParameterServer(Membership.from_dict(record), LISTENERS[transport]()):
        sleep(3600)


@contextmanager
def server_process(membership: Membership, transport: str) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(membership.as_dict(), transport), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()


@contextmanager
def store(transport: str, servers: str, copies: int) -> Iterator[Store]:
    """A worker in this process, with its servers in the same one or in others."""
    with ExitStack() as stack:
        plan = StorePlan(n_servers=copies, copies=copies, consistency=asp())
        membership = stack.enter_context(Coordinator(plan, LISTENERS[transport]())).membership
        for _ in range(copies):
            if servers == "process":
                stack.enter_context(server_process(membership, transport))
            else:
                stack.enter_context(ParameterServer(membership, LISTENERS[transport]()))
        yield stack.enter_context(Store(membership, timeout=60.0))


def times_of(call: Callable[[], object], n_calls: int) -> tuple[float, float]:
    times = []
    for _ in range(UNCOUNTED + n_calls):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    counted = times[UNCOUNTED:]
    return float(np.median(counted)), float(np.percentile(counted, 99))


def measure(transport: str, servers: str, copies: int, n_calls: int) -> Iterator[Figure]:
    """Pushes, pulls, a push and then a pull, and both in one call."""
    with store(transport, servers, copies) as worker:
        for size in SIZES:
            values = np.ones(size // 4, np.float32)
            key = f"{size} bytes"
            worker.init(key, values)

            def both(key: str = key, values: Any = values) -> None:
                worker.push(key, values)
                worker.pull(key)

            calls: dict[str, Callable[[], object]] = {
                "push": lambda key=key, values=values: worker.push(key, values),  # type: ignore[misc]
                "pull": lambda key=key: worker.pull(key),  # type: ignore[misc]
                "push, then pull": both,
                "push_pull": lambda key=key, values=values: worker.push_pull(key, values),  # type: ignore[misc]
            }
            for operation, call in calls.items():
                counted = n_calls if size <= 1 << 16 else max(20, n_calls // 8)
                yield Figure(operation, transport, servers, copies, size, counted, *times_of(call, counted))


def measure_floor(n_calls: int) -> Iterator[Figure]:
    """Bytes there and back between two threads over a socket pair."""
    ours, theirs = socket.socketpair()

    def echo() -> None:
        while data := theirs.recv(1 << 20):
            theirs.sendall(data)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    for size in SIZES[:3]:
        data, target = bytes(size), bytearray(size)

        def there_and_back(data: bytes = data, target: bytearray = target) -> None:
            ours.sendall(data)
            left = memoryview(target)
            while left:
                left = left[ours.recv_into(left) :]

        yield Figure("bare echo", "socket pair", "thread", 0, size, n_calls, *times_of(there_and_back, n_calls))
    ours.shutdown(socket.SHUT_WR)
    thread.join()
    ours.close()
    theirs.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_parameter_server", description=__doc__)
    parser.add_argument("--calls", type=int, default=400, help="default: %(default)s")
    parser.add_argument("--transports", nargs="+", choices=LISTENERS, default=["tcp"], help="default: tcp")
    parser.add_argument("--servers", nargs="+", choices=("process", "thread"), default=["process", "thread"])
    parser.add_argument("--copies", nargs="+", type=int, default=[1, 2], help="default: 1 2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also append JSON lines to this file")
    arguments = parser.parse_args()
    results = None if arguments.json is None else start_results(arguments.json)

    def report(figures: Iterator[Figure]) -> None:
        for figure in figures:
            where = f"{figure.transport:<12}{figure.servers:<9}{figure.copies:>3}  {figure.operation:<16}"
            times = f"{1e3 * figure.median_seconds:10.3f}{1e3 * figure.p99_seconds:10.3f}"
            print(f"{where}{figure.size_bytes:>9}{times}", flush=True)
            if results is not None:
                results.append(PARAMETER_SERVER, asdict(figure))

    print(f"{'transport':<12}{'servers':<8}copies {'call':<16}{'bytes':>9}{'median ms':>10}{'p99 ms':>10}")
    report(measure_floor(arguments.calls))
    for transport in arguments.transports:
        for servers in arguments.servers:
            for copies in arguments.copies:
                report(measure(transport, servers, copies, arguments.calls))


if __name__ == "__main__":
    main()
