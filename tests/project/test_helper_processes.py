"""Processes that the project starts run no file of the current folder, and say why they cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmlgbm.gbdt.machine_code.elf_object import can_load_objects

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
DECOYS = (
    "json", "pickle", "struct", "socket", "tempfile", "selectors", "multiprocessing", "threading", "hashlib", "logging",
    "gbdt", "tuning", "neural", "collectives", "sklearn_api", "dmlgbm", "numpy", "numba", "llvmlite", "joblib",
    "cloudpickle", "sklearn", "scipy", "threadpoolctl", "sitecustomize", "encodings",
)  # fmt: skip

COMPILE = """
from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code import loader
bins, cuts = np.empty(4, np.int32), np.full(255, np.inf)
search_bins(np.array([0.5, np.nan, np.inf, 1.0]), cuts, 1, bins)
assert loader.counts.compiled == 1, loader.counts
"""
SEARCH = """
from sklearn.linear_model import Ridge
from dmlgbm import GridSearchCV
x = np.arange(40.0).reshape(20, 2)
search = GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, n_jobs=2, cv=2).fit(x, x[:, 0])
assert np.isfinite(search.cv_results_["mean_test_score"]).all()
assert "local" in str(search.search_report_), search.search_report_
"""
RANKS = """
from dmlgbm.collectives.joining.launch import run_processes
from collectives_of_the_user import rank_of
assert run_processes(rank_of, 2, timeout=100.0) == [0, 1]
"""


def run(
    program: str, folder: Path, *, first_path: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program whose own modules are imported before a folder may come first in its path, "" being the current one."""
    start = f"""
import sys, json, pickle, struct, socket, tempfile, selectors, multiprocessing, threading, hashlib, logging
sys.path.insert(0, {str(ROOT)!r})
import numpy as np, joblib, cloudpickle, sklearn, threadpoolctl, dmlgbm.collectives.joining.launch, dmlgbm.neural
import scipy.linalg, sklearn.linear_model, sklearn.model_selection
from dmlgbm.gbdt.machine_code.symbols import numba_extension
for name in ("_helperlib", "_dynfunc", "core.runtime._nrt_python"):
    numba_extension(name)
sys.path[:0] = {[] if first_path is None else [first_path]!r}
"""
    return subprocess.run(
        [sys.executable, "-P", "-c", start + program],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env=os.environ | environment,
        check=False,
    )


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    """A folder of files with the names of modules; each leaves a trace when it is run."""
    for name in DECOYS:
        (tmp_path / f"{name}.py").write_text(
            f"import os\nos.close(os.open({str(tmp_path / 'ran-')!r} + {name!r}, os.O_CREAT))\nraise SystemExit(3)\n"
        )
    (tmp_path / "collectives_of_the_user.py").write_text("def rank_of(communicator):\n    return communicator.rank\n")
    return tmp_path


@pytest.mark.parametrize(
    ("program", "first_path"),
    [
        pytest.param(COMPILE, "", marks=pytest.mark.skipif(not can_load_objects(), reason="numba compiles in place")),
        (SEARCH, None),
        pytest.param(RANKS, "", marks=pytest.mark.slow),
    ],
    ids=["compilation", "search", "ranks"],
)
def test_helper_process_runs_no_file_of_the_current_folder(program: str, first_path: str | None, decoys: Path) -> None:
    completed = run(program, decoys, first_path=first_path, PYTHONPATH="", NUMBA_CACHE_DIR=str(decoys / "cache"))
    assert completed.returncode == 0, completed.stderr
    assert not list(decoys.glob("ran-*"))


@pytest.mark.slow
def test_worker_of_a_search_finds_the_modules_beside_the_script(tmp_path: Path) -> None:
    """Also one that has the name of a library; the user's process has it from there."""
    (tmp_path / "joblib_of_the_user.py").write_text(
        "from sklearn.linear_model import Ridge\nclass Own(Ridge):\n    pass\n"
    )
    (tmp_path / "lightgbm.py").write_text("from joblib_of_the_user import Own\n\n\nclass Named(Own):\n    pass\n")
    program = SEARCH.replace("Ridge()", "Named()").replace("x = ", "from lightgbm import Named\nx = ", 1)
    completed = run(program, tmp_path, first_path="")
    assert completed.returncode == 0, completed.stderr


@pytest.mark.slow
def test_search_says_why_no_worker_can_start(tmp_path: Path) -> None:
    (tmp_path / "joblib.py").write_text("raise ImportError('a file of somebody has the name of a library')\n")
    completed = run(SEARCH, ROOT, first_path=str(tmp_path))
    assert completed.returncode != 0
    assert "ExecutorError: No worker process of this machine can start." in completed.stderr
    assert "a file of somebody has the name of a library" in completed.stderr


@pytest.mark.slow
@pytest.mark.skipif(not can_load_objects(), reason="numba compiles in place")
def test_kernel_is_compiled_all_the_same_and_the_reason_shown_when_no_process_that_compiles_can_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('a file of somebody has the name of a library')\n")
    program = COMPILE.replace("loader.counts.compiled == 1", "bins.tolist() == [0, 1, 0, 0]")
    completed = run(program, ROOT, first_path=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert completed.returncode == 0, completed.stderr
    assert "this process compiles its kernels itself" in completed.stderr
    assert "a file of somebody has the name of a library" in completed.stderr
