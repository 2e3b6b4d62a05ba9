"""As many threads as a process has cores to use: a container's quota counts, and a system may start no threads."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dmlgbm.gbdt.system import cores
from dmlgbm.gbdt.system.cores import available_threads, cpu_quota, usable_cores
from dmlgbm.gbdt.threads import Workers
from dmlgbm.neural.running.local import threads_of_a_rank
from dmlgbm.tuning.executors.registry import _n_workers

ROOT = Path(__file__).parents[3]
STRANGER = 54_321


def groups(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """The folder of all control groups, and what /proc/self/cgroup says."""
    for name, text in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "self").write_text(own)
    return folder / "cgroup", folder / "self"


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {}, math.inf),
        ("0::/\n", {"cpu.max": "nonsense\n"}, math.inf),
        ("0::/\n", {"cpu.max": "100000 0\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "400000 100000\n"}, 3.0),
        ("0::/host/only\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("4:memory:/x\n1:cpu,cpuacct:/a\n0::/\n", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000",
                                                   "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 2.5),
        ("1:cpu:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
    ],
)  # fmt: skip
def test_quota_is_the_least_of_the_group_and_those_around_it(
    own: str, files: dict[str, str], quota: float, tmp_path: Path
) -> None:
    assert cpu_quota(*groups(tmp_path, own, files)) == quota


def test_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path / "neither") == math.inf


@pytest.mark.parametrize(("quota", "n_cores"), [(0.2, 1), (1.0, 1), (1.5, 2), (3.0, 3), (100.0, 8), (math.inf, 8)])
def test_everything_that_counts_cores_sees_the_quota(
    quota: float, n_cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    monkeypatch.setattr(cores, "_own_quota", lambda: quota)
    assert (usable_cores(), available_threads(), _n_workers(-1), threads_of_a_rank(1)) == (n_cores,) * 4


def test_workers_start_the_threads_that_they_say() -> None:
    with Workers(3) as workers:
        assert workers.n_threads == 3
        assert workers.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]


def test_workers_start_no_thread_for_one_task() -> None:
    n_before = threading.active_count()
    with Workers(3) as workers:
        assert workers.run_ranges(lambda start, stop: stop - start, 10) == [10]
        assert workers.run_each(lambda item: item, [1]) == workers.run([lambda: 1]) == [1]
        assert threading.active_count() == n_before


FIT = """
import hashlib, os, resource, sys
import numpy as np
from dmlgbm import DMLGBMClassifier
x = np.sin(np.arange(400_000.0)).reshape(-1, 4)
y = (x[:, 0] > x[:, 1]).astype(int) + (x[:, 2] > 0.5)
if "limited" in sys.argv:
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
models = [DMLGBMClassifier(n_estimators=3, n_jobs=4).fit(x, labels) for labels in (y > 0, y)]
print(*(hashlib.sha256(model.booster_.to_bytes()).hexdigest() for model in models), models[0].predict(x).sum())
"""


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(400)
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="root has no limit and can become a user who has one",
)
def test_fit_where_no_thread_can_be_started_gives_the_same_model() -> None:
    only = "-all,+dac_read_search"
    may_read = (f"--inh-caps={only}", "--ambient-caps=+dac_read_search", f"--bounding-set={only}")
    as_user = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *may_read)
    free, limited = (
        subprocess.run(
            [*command, sys.executable, "-c", FIT, *word],
            capture_output=True,
            text=True,
            timeout=180,
            cwd=ROOT,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            check=False,
        )
        for command, word in (((), ()), (as_user, ("limited",)))
    )
    assert free.returncode == limited.returncode == 0, free.stderr + limited.stderr
    assert free.stdout == limited.stdout
    assert "the system starts no more threads: 1 do the work of 4" in limited.stderr
