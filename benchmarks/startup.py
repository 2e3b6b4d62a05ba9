"""What a user waits for at the start: the first fit with an empty kernel cache, with a full one, and small data.

Cold and warm times are those of a whole process, from its start to its end: interpreter, import, 1,000 x 20 rows,
100 trees. The cold one runs against an empty temporary cache; that the kernels really were compiled into it is checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from benchmarks.environment import ForeignLoad
from benchmarks.measure import Method
from benchmarks.peers import OURS, Settings
from benchmarks.record_arguments import record_to_arguments
from benchmarks.records import SMALL_DATA, STARTUP, Record, ResultFile
from benchmarks.run import DEFAULT_RESULTS, PROJECT, RunSettings, run_dataset, start_results

SMALL_SETTINGS = Settings(n_estimators=100, num_leaves=31)
SMALL_FITS = 10
RIVAL = "lightgbm"
COLD, WARM = "cold", "warm"

# Machine code is also read from beside the sources, where that of earlier runs is.
_WITH_ONE_CACHE = """
import pathlib, runpy
from dmlgbm.gbdt.machine_code import cache_folders
cache_folders.base_folders = lambda: (pathlib.Path({cache!r}),)
runpy.run_module("benchmarks.first_fit", run_name="__main__", alter_sys=True)
"""


def measure_startup(results: ResultFile, repeat: int, threads: int, timeout: float) -> None:
    """One cold start, then warm starts and small data, ours and LightGBM in turn."""
    settings = replace(SMALL_SETTINGS, threads=threads)
    with tempfile.TemporaryDirectory(prefix="dmlgbm-empty-cache-") as folder:
        cache = Path(folder)
        _append(results, OURS, COLD, first_fit(OURS, settings, cache, timeout))
        for _ in range(repeat):
            for system in (OURS, RIVAL):
                _append(results, system, WARM, first_fit(system, settings, cache, timeout))
    run = RunSettings(settings, Method(fits=SMALL_FITS), None, repeat, timeout)
    run_dataset("generated", (OURS, RIVAL), run, results, SMALL_DATA)


def first_fit(system: str, settings: Settings, cache: Path, timeout: float) -> Record:
    """The whole process's seconds, what it printed besides its answer, and how many kernels it added to the cache."""
    program = _WITH_ONE_CACHE.format(cache=str(cache))
    command = [sys.executable, "-c", program, f"--system={system}", *record_to_arguments(settings)]
    cached_before = _count_kernels(cache)
    foreign_load = ForeignLoad()
    started = perf_counter()
    try:
        finished = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "reason": f"no answer after {timeout:.0f} s"}
    process_seconds = perf_counter() - started
    messages = finished.stderr.strip().splitlines()
    if finished.returncode != 0:
        return {"status": "refused", "reason": (messages or ["no message"])[-1]}
    *printed, answer = finished.stdout.strip().splitlines()
    return {
        "status": "ok",
        "process_seconds": process_seconds,
        "foreign_cores": foreign_load.cores(),
        "messages": printed + messages,
        "kernels_compiled": _count_kernels(cache) - cached_before,
        **json.loads(answer),
    }


def _count_kernels(cache: Path) -> int:
    return sum(1 for _ in cache.rglob("*.o"))


def _append(results: ResultFile, system: str, scenario: str, record: Record) -> None:
    if scenario == COLD and record["status"] == "ok" and record["kernels_compiled"] == 0:
        record = {"status": "refused", "reason": "no kernel reached the empty cache: the start was not a cold one"}
    results.append(STARTUP, {"system": system, "scenario": scenario, **record})
    outcome = f"{record['process_seconds']:.2f} s" if record["status"] == "ok" else record["reason"]
    print(f"{scenario} first fit, {system}: {outcome}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a process (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_RESULTS, help="appended to (default: %(default)s)")
    arguments = parser.parse_args()
    measure_startup(start_results(arguments.out), arguments.repeat, arguments.threads, arguments.timeout)


if __name__ == "__main__":
    main()
