"""Compiled kernels are found in every folder that may hold them, and never run if others could have written them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmlgbm.gbdt.machine_code import cache_folders
from dmlgbm.gbdt.machine_code.elf_object import can_load_objects

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
STRANGER = 54_321  # a user without a name and a home

needs_loader = pytest.mark.skipif(not can_load_objects(), reason="machine code is loaded on Linux with x86-64 only")
needs_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can become another user (setpriv)",
)

# Not the types of any other test: a kernel that nobody has compiled yet.
COUNTS = """
import numpy as np
from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code import loader
bins, cuts = np.empty(4, np.uint64), np.full(255, np.inf)
cuts[:2] = 1.0, 2.0
search_bins(np.array([0.5, 1.5, 2.5, np.nan]), cuts, 3, bins)
print(bins.tolist(), loader.counts.compiled, loader.counts.from_disk, end=" ")
"""
SEARCH = f"""{COUNTS}
from dmlgbm.gbdt.machine_code import cache_folders
print(cache_folders.folder_to_write())
"""
FIT = """
import numpy as np
from dmlgbm import DMLGBMRegressor
x = np.arange(400.0).reshape(100, 4)
print(DMLGBMRegressor(n_estimators=2, n_jobs=2).fit(x, x[:, 0]).predict(x).shape)
"""


def run(program: str, *command: str, sources: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    completed = subprocess.run(
        [*command, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=sources,
        env=kept | environment,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed


def as_stranger(program: str, sources: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run as a user who can read everything, so that the interpreter is found, and write next to nothing."""
    only = "-all,+dac_read_search"
    may_read = (f"--inh-caps={only}", "--ambient-caps=+dac_read_search", f"--bounding-set={only}")
    user = (f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
    return run(program, "setpriv", *user, *may_read, sources=sources, **environment)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the machine code of one kernel."""
    folder = tmp_path_factory.mktemp("warmed")
    assert run(SEARCH, NUMBA_CACHE_DIR=str(folder)).stdout == f"[0, 1, 2, 3] 1 0 {folder / 'dmlgbm'}\n"
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


@needs_loader
@needs_root
def test_user_without_home_name_and_writable_folder_compiles_in_memory_and_is_told_once() -> None:
    completed = as_stranger(SEARCH)
    assert completed.stdout == "[0, 1, 2, 3] 1 0 None\n"
    assert completed.stderr.count("compiled kernels stay in memory") == 1
    assert "NUMBA_CACHE_DIR" in completed.stderr


@needs_loader
@needs_root
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("home", [None, "/proc"])
def test_user_without_a_place_on_disk_can_fit(home: str | None) -> None:
    without = (
        "from dmlgbm.gbdt.machine_code import cache_folders\ncache_folders._SOURCES = cache_folders.Path('/proc')\n"
    )
    completed = as_stranger(without + FIT, **({} if home is None else {"HOME": home}))
    assert completed.stdout == "(100,)\n"
    assert completed.stderr.count("compiled kernels stay in memory") == 1


@needs_root
@pytest.mark.slow
def test_numba_in_place_works_without_a_place_on_disk_and_says_so_once() -> None:
    in_place = "import dmlgbm.gbdt.machine_code.loader as it\nit.can_load_objects = lambda: False\n"
    completed = as_stranger(in_place + SEARCH)
    assert completed.stdout == "[0, 1, 2, 3] 0 0 None\n"
    assert completed.stderr.count("compiled kernels stay in memory") == 1


@needs_loader
@needs_root
def test_code_in_a_folder_that_cannot_be_written_is_used_and_new_code_goes_to_the_next(
    warmed: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, STRANGER, STRANGER)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    found = as_stranger(SEARCH, NUMBA_CACHE_DIR=str(warmed), XDG_CACHE_HOME=str(own))
    assert found.stdout == f"[0, 1, 2, 3] 0 1 {own / 'dmlgbm'}\n"
    assert found.stderr == ""
    other_types = SEARCH.replace("np.uint64", "np.int8")
    stored = as_stranger(other_types, NUMBA_CACHE_DIR=str(warmed), XDG_CACHE_HOME=str(own))
    assert stored.stdout == f"[0, 1, 2, 3] 1 0 {own / 'dmlgbm'}\n"
    assert len(list(own.rglob("*.o"))) == 1


@needs_loader
@needs_root
def test_code_beside_the_sources_of_a_read_only_installation_is_used(tmp_path: Path) -> None:
    without_code = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gbdt", tmp_path / "installed" / "gbdt", ignore=without_code)
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, STRANGER, STRANGER)
    sources, places = tmp_path / "installed", {"PYTHONPATH": str(tmp_path / "installed"), "XDG_CACHE_HOME": str(own)}
    assert run(COUNTS, sources=sources, **places).stdout == "[0, 1, 2, 3] 1 0 "
    assert as_stranger(COUNTS, sources, **places).stdout == "[0, 1, 2, 3] 0 1 "
    assert list(own.rglob("*.o")) == []


@needs_loader
@needs_root
def test_code_in_the_last_folder_is_found_from_a_process_with_another_first_one(warmed: Path, tmp_path: Path) -> None:
    found = run(SEARCH, NUMBA_CACHE_DIR=str(tmp_path), XDG_CACHE_HOME=str(warmed))
    assert found.stdout == f"[0, 1, 2, 3] 0 1 {tmp_path / 'dmlgbm'}\n"


@needs_loader
@pytest.mark.parametrize("spoilt", ["file", "folder", "base"])
@pytest.mark.parametrize("how", ["others can write it", "it belongs to another user"])
def test_code_that_others_could_have_written_is_not_run(
    spoilt: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "it belongs to another user" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    monkeypatch.setattr(cache_folders, "base_folders", lambda: (tmp_path / "dmlgbm",))
    monkeypatch.setattr(cache_folders, "folder_to_write", cache_folders.folder_to_write.__wrapped__)
    assert cache_folders.write_file("version", "kernel.o", b"code")
    path = tmp_path / "dmlgbm" / "version" / "kernel.o"
    assert cache_folders.read_file("version", "kernel.o") == b"code"
    place = {"file": path, "folder": path.parent, "base": path.parent.parent}[spoilt]
    if how == "others can write it":
        place.chmod(0o777)
    else:
        os.chown(place, STRANGER, STRANGER)
    assert cache_folders.read_file("version", "kernel.o") is None


def test_files_are_kept_for_the_user_alone_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folders, "base_folders", lambda: (tmp_path / "dmlgbm",))
    monkeypatch.setattr(cache_folders, "folder_to_write", cache_folders.folder_to_write.__wrapped__)
    usual = os.umask(0o000)
    try:
        assert cache_folders.write_file("version", "kernel.o", b"code")
    finally:
        os.umask(usual)
    path = tmp_path / "dmlgbm" / "version" / "kernel.o"
    assert [stat.st_mode & 0o022 for stat in (path.stat(), path.parent.stat(), path.parent.parent.stat())] == [0, 0, 0]
    path.chmod(0o666)
    assert cache_folders.read_file("version", "kernel.o") is None
    assert cache_folders.write_file("version", "kernel.o", b"code again")
    assert cache_folders.read_file("version", "kernel.o") == b"code again"


@needs_loader
@needs_root
def test_folder_of_another_user_is_named_and_its_code_compiled_again(warmed: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(warmed, tmp_path / "copy"))
    for path in copy.rglob("*"):
        os.chown(path, STRANGER, STRANGER)
    beside_sources = cache_folders.base_folders.__wrapped__()[-2]
    before = set(beside_sources.rglob("*.o"))
    completed = run(SEARCH, NUMBA_CACHE_DIR=str(copy), XDG_CACHE_HOME=str(tmp_path))
    # What is kept beside the sources would be found by the tests above when they run again.
    for path in set(beside_sources.rglob("binning.search_bins-*.o")) - before:
        path.unlink()
    assert completed.stdout.startswith("[0, 1, 2, 3] 1 0 ")
    assert str(copy) not in completed.stdout
    assert f"compiled kernels in {copy}" in completed.stderr


def test_no_relative_folder_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert all(folder.is_absolute() for folder in cache_folders.base_folders.__wrapped__())
