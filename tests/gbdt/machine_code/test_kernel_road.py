"""`DMLGBM_KERNELS` chooses how kernels are compiled; models have the same bytes either way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gbdt.machine_code.small_fits import ROOT, WITH_DASK, run_small_fits

pytestmark = pytest.mark.processes

SEARCH = """
import pathlib, sys
import numpy as np
from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code.compilation_counts import compilation_counts
bins, cuts = np.empty(4, np.uint8), np.full(255, np.inf)
cuts[:2] = 1.0, 2.0
search_bins.prepare(np.zeros(4), cuts, 3, bins)
search_bins(np.array([0.5, 1.5, 2.5, np.nan]), cuts, 3, bins)
children = "".join(path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/children"))
print(bins.tolist(), compilation_counts(), "numba" in sys.modules, repr(children))
"""


def run(chosen: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Kernels are read and kept in the given folder alone."""
    alone = f"""
from dmlgbm.gbdt.machine_code import cache_folders
cache_folders.base_folders = lambda: (cache_folders.Path({str(cache)!r}),)
"""
    return subprocess.run(
        [sys.executable, "-c", alone + SEARCH],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
        env=os.environ | {"DMLGBM_KERNELS": chosen},
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
def test_numba_is_chosen_without_helper_processes_object_files_and_warnings(tmp_path: Path) -> None:
    first, second = (run("numba", tmp_path) for _ in range(2))
    assert (
        first.stdout == f"[0, 1, 2, 3] CompilationCounts(compiled=1, from_disk=0, folder={str(tmp_path)!r}) True ''\n"
    )
    assert second.stdout == first.stdout.replace("compiled=1, from_disk=0", "compiled=0, from_disk=1")
    assert first.stderr.splitlines() == [
        "dmlgbm: numba compiles kernels in this process; the first time this takes a minute or two"
    ]
    assert second.stderr == ""
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".numba"]


def test_damaged_result_of_numba_is_compiled_again(tmp_path: Path) -> None:
    first = run("numba", tmp_path)
    (path,) = tmp_path.rglob("*.numba")
    for damaged in (b"", path.read_bytes()[:-300], b"\x80\x05cno_such_module\nname\n."):
        path.write_bytes(damaged)
        assert run("numba", tmp_path).stdout == first.stdout


def test_unknown_choice_is_an_error_that_names_the_variable_and_its_values(tmp_path: Path) -> None:
    completed = run("llvm", tmp_path)
    assert completed.returncode != 0
    assert "ValueError: the environment variable DMLGBM_KERNELS is 'llvm': set it to 'machine_code'" in completed.stderr
    assert "'numba'" in completed.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_numba_in_place_trains_and_predicts_the_same_bytes_here_and_on_dask() -> None:
    plain = run_small_fits(WITH_DASK, DMLGBM_KERNELS="machine_code")
    in_place = run_small_fits(WITH_DASK, DMLGBM_KERNELS="numba")
    assert plain.digests == in_place.digests
    assert plain.digests["model"] == plain.digests["model on Dask"]
    assert plain.digests["predictions"] == plain.digests["predictions on Dask"]
    assert (plain.has_numba, in_place.has_numba) == (False, True)
    assert plain.warnings == in_place.warnings == []
