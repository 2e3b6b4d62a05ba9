"""What other load costs: fits by two Dask workers beside busy processes, in turns with LightGBM and spinning ranks.

Ranks that spin whatever else runs on the machine are what `dmlgbm.collectives.spinning` keeps from happening.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from dmlgbm import DMLGBMRegressor
from dmlgbm.collectives import spinning

N_FEATURES, N_WORKERS = 20, 2


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Programs that want a core each."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def sense_load(is_sensed: bool) -> None:
    """On a worker: whether its ranks look at the load before they spin."""
    spinning.LOAD_FILE = "/proc/loadavg" if is_sensed else ""


def fits(client: Client, X: Any, y: Any, n_trees: int) -> dict[str, Callable[[], None]]:
    """What is compared, by name."""

    def ours(is_sensed: bool) -> None:
        client.run(sense_load, is_sensed)
        DMLGBMRegressor(n_estimators=n_trees).fit(X, y)

    found: dict[str, Callable[[], None]] = {"ours": lambda: ours(True), "ours, spinning": lambda: ours(False)}
    with contextlib.suppress(ImportError):
        from lightgbm.dask import DaskLGBMRegressor

        def lightgbm() -> None:
            DaskLGBMRegressor(client=client, n_estimators=n_trees, verbosity=-1).fit(X, y)

        found["LightGBM"] = lightgbm
    return found


def main() -> None:
    """Print the seconds of each fit, its fastest and its median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    values = rng.normal(size=(options.rows, N_FEATURES)).astype(np.float32)
    target = values[:, 0] * values[:, 1] + np.sin(values[:, 2]) + rng.normal(size=options.rows)
    with (
        LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        chunk = -(-options.rows // (2 * N_WORKERS))
        X, y = client.persist([da.from_array(values, chunks=(chunk, -1)), da.from_array(target, chunks=chunk)])
        for fit in fits(client, X, y, 2).values():
            fit()  # so that nothing is compiled or imported below
        for n_busy in options.busy:
            seconds: dict[str, list[float]] = {}
            with busy_processes(n_busy):
                for turn in range(options.turns):
                    compared = list(fits(client, X, y, options.trees).items())
                    first = turn % len(compared)  # nobody always comes after the same other one
                    for name, fit in compared[first:] + compared[:first]:
                        began = time.perf_counter()
                        fit()
                        seconds.setdefault(name, []).append(time.perf_counter() - began)
            for name, each in seconds.items():
                print(f"{n_busy} busy, {name}: fastest {min(each):.2f} s, median {statistics.median(each):.2f} s")


if __name__ == "__main__":
    main()
