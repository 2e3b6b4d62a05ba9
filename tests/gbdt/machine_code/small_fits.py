"""Fits in a process of their own that tells the digests of its models and predictions, and what it warned of.

Two processes that take different roads to their kernels, or have different versions of numba, must tell the same.
`python -m tests.gbdt.machine_code.small_fits [--dask]` prints them as JSON.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[3]
WITH_DASK = "--dask"


@dataclass(frozen=True)
class Told:
    """What such a process told."""

    digests: dict[str, str]
    warnings: list[str]
    compiled: int
    from_disk: int
    has_numba: bool
    numba: str


def run_small_fits(*arguments: str, first: str = "", cache: Path | None = None, **environment: str) -> Told:
    """Run the fits in a new process after a piece of program; with `cache`, kernels are read and kept there alone."""
    alone = f"""
from dmlgbm.gbdt.machine_code import cache_folders
cache_folders.base_folders = lambda: (cache_folders.Path({str(cache)!r}),)
"""
    program = (
        (alone if cache is not None else "") + first + "\nfrom tests.gbdt.machine_code.small_fits import main\nmain()\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=540,
        cwd=ROOT,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"} | environment,
        check=False,
    )
    assert completed.returncode == 0, f"exit status {completed.returncode}\n{completed.stderr}"
    return Told(**json.loads(completed.stdout.splitlines()[-1]))


class _Collected(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    """Fit, predict, and tell."""
    collected = _Collected()
    logging.getLogger("dmlgbm").addHandler(collected)
    from dmlgbm.gbdt.machine_code.compilation_counts import counts

    digests = _local_digests()
    has_numba = "numba" in sys.modules  # Dask may import it for reasons of its own
    if WITH_DASK in sys.argv:
        digests |= _dask_digests()
    told = Told(digests, collected.messages, counts.compiled, counts.from_disk, has_numba, version("numba"))
    sys.stdout.write(json.dumps(told.__dict__) + "\n")


def _rows() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1501, 5))
    x[::7, 1] = np.nan
    return x, (x[:, 0] + x[:, 2] ** 2 + generator.normal(size=len(x))).round(6)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _local_digests() -> dict[str, str]:
    from dmlgbm import DMLGBMRegressor

    x, y = _rows()
    model = DMLGBMRegressor(n_estimators=6).fit(x, y)
    return {"model": _digest(model.booster_.to_bytes()), "predictions": _digest(model.predict(x).tobytes())}


def _dask_digests() -> dict[str, str]:
    import dask.array as da
    from distributed import Client, LocalCluster

    from dmlgbm import DMLGBMRegressor

    x, y = (da.from_array(values, chunks=(500, *values.shape[1:])) for values in _rows())
    settings: dict[str, Any] = {"dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=2, threads_per_worker=1, **settings) as cluster, Client(cluster):
        model = DMLGBMRegressor(n_estimators=6).fit(x, y)
        predictions = model.predict(x).compute()
    return {"model on Dask": _digest(model.booster_.to_bytes()), "predictions on Dask": _digest(predictions.tobytes())}


if __name__ == "__main__":
    main()
