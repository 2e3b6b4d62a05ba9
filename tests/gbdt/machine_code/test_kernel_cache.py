"""Compiled kernels are found in every folder that may hold them, and never run if others could have written them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlgbm.gbdt.machine_code import cache_folders
from dmlgbm.gbdt.machine_code.elf_object import can_load_objects
from dmlgbm.gbdt.system.atomic_file import write_atomically

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
FIND_FOLDER_TO_WRITE = cache_folders.folder_to_write.__wrapped__  # each time, instead of once a process
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


@pytest.fixture(autouse=True, scope="module")
def _kernel_is_new() -> Iterator[None]:
    forget_beside_sources()
    yield
    forget_beside_sources()


def forget_beside_sources() -> None:
    """Remove the kernel that tests compile anew; another test, or a run that was interrupted, may have left it."""
    for path in cache_folders.base_folders.__wrapped__()[-2].rglob("binning.search_bins-*.o"):
        path.unlink()


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the machine code of one kernel."""
    forget_beside_sources()
    folder = tmp_path_factory.mktemp("warmed")
    assert run(SEARCH, NUMBA_CACHE_DIR=str(folder)).stdout == f"[0, 1, 2, 3] 1 0 {folder / 'dmlgbm'}\n"
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


@pytest.fixture
def own() -> Iterator[Path]:
    """A folder of the stranger's. Not below pytest's own: whatever starts pytest closes that to everybody else."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, STRANGER, STRANGER)
        yield Path(folder)


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
    completed = as_stranger(SEARCH, DMLGBM_KERNELS="numba")
    assert completed.stdout == "[0, 1, 2, 3] 1 0 None\n"
    assert completed.stderr.count("compiled kernels stay in memory") == 1


@needs_loader
@needs_root
def test_code_in_a_folder_that_cannot_be_written_is_used_and_new_code_goes_to_the_next(warmed: Path, own: Path) -> None:
    found = as_stranger(SEARCH, NUMBA_CACHE_DIR=str(warmed), XDG_CACHE_HOME=str(own))
    assert found.stdout == f"[0, 1, 2, 3] 0 1 {own / 'dmlgbm'}\n"
    assert found.stderr == ""
    other_types = SEARCH.replace("np.uint64", "np.int8")
    stored = as_stranger(other_types, NUMBA_CACHE_DIR=str(warmed), XDG_CACHE_HOME=str(own))
    assert stored.stdout == f"[0, 1, 2, 3] 1 0 {own / 'dmlgbm'}\n"
    assert len(list(own.rglob("*.o"))) == 1


@needs_loader
@needs_root
def test_code_beside_the_sources_of_a_read_only_installation_is_used(tmp_path: Path, own: Path) -> None:
    without_code = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gbdt", tmp_path / "installed" / "gbdt", ignore=without_code)
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
    keep_below(tmp_path / "dmlgbm", monkeypatch)
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
    keep_below(tmp_path / "dmlgbm", monkeypatch)
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


def keep_below(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folders, "base_folders", lambda: (base,))
    monkeypatch.setattr(cache_folders, "folder_to_write", FIND_FOLDER_TO_WRITE)


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_code_below_a_folder_in_which_others_can_rename_is_neither_used_nor_kept(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_below(tmp_path / "shared" / "cache" / "dmlgbm", monkeypatch)
    assert cache_folders.write_file("version", "kernel.o", b"code")
    (tmp_path / "shared").chmod(mode)
    assert cache_folders.read_file("version", "kernel.o") is None
    assert not cache_folders.write_file("version", "other.o", b"code")
    (tmp_path / "shared").chmod(mode | 0o1000)  # as /tmp is: only owners rename
    assert cache_folders.read_file("version", "kernel.o") == b"code"


@needs_root
@pytest.mark.parametrize("place", ["base", "parent", "version"])
def test_code_behind_a_strangers_link_is_not_used_even_if_the_files_are_the_users(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_below(tmp_path / "elsewhere" / "cache" / "dmlgbm", monkeypatch)
    assert cache_folders.write_file("version", "kernel.o", b"code")
    base = tmp_path / "seen" / "cache" / "dmlgbm"
    link = {"base": base, "parent": base.parent, "version": base / "version"}[place]
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere" / link.relative_to(tmp_path / "seen"))
    keep_below(base, monkeypatch)
    if place != "version":  # a symbolic link of the user's own may lead to another disk
        assert cache_folders.read_file("version", "kernel.o") == b"code"
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert cache_folders.read_file("version", "kernel.o") is None
    assert not cache_folders.write_file("version", "other.o", b"code")


@needs_root
def test_links_that_lead_on_to_a_strangers_link_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_below(tmp_path / "elsewhere", monkeypatch)
    assert cache_folders.write_file("version", "kernel.o", b"code")
    (tmp_path / "strangers").symlink_to("elsewhere")
    (tmp_path / "own").symlink_to(Path("strangers") / ".." / "strangers")
    keep_below(tmp_path / "own", monkeypatch)
    assert cache_folders.read_file("version", "kernel.o") == b"code"
    os.chown(tmp_path / "strangers", STRANGER, STRANGER, follow_symlinks=False)
    assert cache_folders.read_file("version", "kernel.o") is None


def test_links_in_a_circle_are_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    keep_below(tmp_path / "one" / "dmlgbm", monkeypatch)
    assert cache_folders.read_file("version", "kernel.o") is None
    assert not cache_folders.write_file("version", "kernel.o", b"code")


@needs_root
@pytest.mark.parametrize("is_link", [False, True])
def test_nothing_is_kept_in_a_folder_that_a_stranger_made_first(
    is_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "dmlgbm"
    base.mkdir()
    base.chmod(0o1777)
    (tmp_path / "target").mkdir()
    if is_link:
        (base / "version").symlink_to(tmp_path / "target")
    else:
        (base / "version").mkdir()
    os.chown(base / "version", STRANGER, STRANGER, follow_symlinks=False)
    keep_below(base, monkeypatch)
    assert not cache_folders.write_file("version", "kernel.o", b"code")
    assert not list(tmp_path.rglob("*.o"))


def test_folders_made_on_the_way_are_closed_to_others_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "home" / ".cache" / "dmlgbm"
    keep_below(base, monkeypatch)
    usual = os.umask(0o000)
    try:
        assert cache_folders.write_file("version", "kernel.o", b"code")
    finally:
        os.umask(usual)
    assert [folder.stat().st_mode & 0o022 for folder in (base, base.parent, base.parent.parent)] == [0, 0, 0]
    assert cache_folders.read_file("version", "kernel.o") == b"code"


def test_file_with_a_wanted_mode_can_never_be_opened_by_others_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it open could still write after the mode has changed."""
    modes = []
    open_file = os.open

    def note_mode(path: Path, flags: int, mode: int = 0o777, **options: int) -> int:
        descriptor = open_file(path, flags, mode, **options)
        modes.append(os.fstat(descriptor).st_mode & 0o777 if flags & os.O_CREAT else None)
        return descriptor

    monkeypatch.setattr(os, "open", note_mode)
    usual = os.umask(0o000)
    try:
        write_atomically(tmp_path / "kernel.o", b"code", mode=0o644)
    finally:
        os.umask(usual)
    assert 0o600 in modes
    assert 0o666 not in modes
    assert (tmp_path / "kernel.o").stat().st_mode & 0o777 == 0o644


def test_chosen_folder_that_is_not_used_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    chosen.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(chosen))
    monkeypatch.setattr(cache_folders, "base_folders", cache_folders.base_folders.__wrapped__)
    for _ in range(2):
        folder = cache_folders.folder_to_write.__wrapped__()
        assert folder is None or not folder.is_relative_to(chosen)
    (message,) = (record.getMessage() for record in caplog.records)
    assert str(chosen) in message


def test_relative_folder_means_nothing_in_a_deleted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "kernels")
    with_chosen = len(cache_folders.base_folders.__wrapped__())
    gone.rmdir()
    assert len(cache_folders.base_folders.__wrapped__()) == with_chosen - 1


@needs_root
@pytest.mark.parametrize("spoilt", ["file", "folder"])
def test_results_of_numba_that_others_could_have_written_are_not_unpickled(spoilt: str, tmp_path: Path) -> None:
    environment = {"DMLGBM_KERNELS": "numba", "NUMBA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "own")}
    beside = (
        "from dmlgbm.gbdt.machine_code import cache_folders\ncache_folders._SOURCES = cache_folders.Path('/proc')\n"
    )
    program = beside + SEARCH
    assert run(program, **environment).stdout.startswith("[0, 1, 2, 3] 1 0 ")
    assert run(program, **environment).stdout.startswith("[0, 1, 2, 3] 0 1 ")
    (path,) = tmp_path.rglob("*.numba")
    trace = tmp_path / "trace"
    # protocol 0: os.mkdir(trace)
    path.write_bytes(f"cos\nmkdir\n(V{trace}\ntR.".encode())
    os.chown({"file": path, "folder": path.parent}[spoilt], STRANGER, STRANGER)
    assert run(program, **environment).stdout.startswith("[0, 1, 2, 3] 1 0 ")
    assert not trace.exists()


@needs_loader
@needs_root
def test_folder_of_another_user_is_named_and_its_code_compiled_again(warmed: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(warmed, tmp_path / "copy"))
    for path in copy.rglob("*"):
        os.chown(path, STRANGER, STRANGER)
    forget_beside_sources()
    completed = run(SEARCH, NUMBA_CACHE_DIR=str(copy), XDG_CACHE_HOME=str(tmp_path))
    assert completed.stdout.startswith("[0, 1, 2, 3] 1 0 ")
    assert str(copy) not in completed.stdout
    assert f"compiled kernels in {copy}" in completed.stderr


def test_no_relative_folder_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert all(folder.is_absolute() for folder in cache_folders.base_folders.__wrapped__())
