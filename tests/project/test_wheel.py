"""What is built and installed: one package with all its rooms, which no file of the user's can take the place of."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from dmlgbm.gbdt.machine_code.cache_folders import folder_to_write
from tests.reference.built_wheels import (
    ROOT,
    SECONDS,
    WITHOUT_MACHINE_CODE,
    build,
    files_of_wheel,
    install,
    new_environment,
    run,
)
from tests.reference.page_blocks import write_program

ROOMS = ("collectives", "dask_backend", "gbdt", "neural", "sklearn_api", "spark_backend", "tuning")
pytestmark = [pytest.mark.processes, pytest.mark.timeout(2 * SECONDS)]

# Fits, a search and ranks, each with processes of their own; with an empty cache also those that compile.
STARTS_PROCESSES = """
import numpy as np
from ranks_of_the_user import rank_of
from sklearn.linear_model import Ridge
from dmlgbm import GridSearchCV, collectives
from dmlgbm.collectives.joining.launch import run_processes
from dmlgbm.gbdt.kernels.binning import search_bins
from dmlgbm.gbdt.machine_code import loader
from dmlgbm.gbdt.machine_code.elf_object import can_load_objects

if __name__ == "__main__":
    search_bins(np.array([0.5, np.nan, np.inf, 1.0]), np.full(255, np.inf), 1, np.empty(4, np.int32))
    assert loader.counts.compiled == can_load_objects(), loader.counts
    x = np.arange(40.0).reshape(20, 2)
    search = GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, n_jobs=2, cv=2).fit(x, x[:, 0])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert run_processes(rank_of, 2, timeout=100.0) == [0, 1]
"""


def files_of_package() -> dict[str, bytes]:
    """What the checkout holds below `dmlgbm`, its symbolic links followed."""
    found = {}
    for folder, folders, names in os.walk(ROOT / "dmlgbm", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(folder) / name
            found[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel", **WITHOUT_MACHINE_CODE)


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def python_with_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = new_environment(tmp_path_factory.mktemp("environment"))
    install(python, wheel)
    return python


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder for scripts. In it and in the one above, where they run, are files with the names of modules.

    Each leaves a trace when somebody imports it. Beside a script, nobody can call a file json.py and do without json.
    """
    folder = tmp_path / "scripts"
    folder.mkdir()
    for place, names in ((folder, ROOMS), (tmp_path, (*ROOMS, "json", "dmlgbm"))):
        for name in names:
            trace = tmp_path / f"imported-{place.name}-{name}"
            text = f"import sys\nopen({str(trace)!r}, 'w').write(repr(sys.argv))\nraise ImportError('a decoy')\n"
            (place / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "ranks_of_the_user.py").write_text("def rank_of(communicator):\n    return communicator.rank\n")
    return folder


def traces(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("imported-*")}


def test_wheel_holds_one_package_with_every_file_of_every_room(wheel: Path) -> None:
    files = files_of_wheel(wheel)
    tops = {name.partition("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dmlgbm"}
    assert len(tops) == 2
    assert {name: data for name, data in files.items() if name.startswith("dmlgbm/")} == files_of_package()
    assert all(f"dmlgbm/{room}/__init__.py" in files for room in ROOMS)


def test_source_archive_holds_every_file_once_and_no_cache(source_archive: Path) -> None:
    with tarfile.open(source_archive) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members]
    assert all(member.isfile() for member in members)
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {name for name in names if name.startswith("dmlgbm/")} == set(files_of_package())
    assert {name.partition("/")[0] for name in names}.isdisjoint(ROOMS)
    assert [name for name in names if "cache" in name and not name.endswith((".py", ".md"))] == []


def test_wheel_built_from_the_source_archive_is_the_same(wheel: Path, source_archive: Path, tmp_path: Path) -> None:
    with tarfile.open(source_archive) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()
    again = build(sources, tmp_path / "wheel", "wheel", **WITHOUT_MACHINE_CODE)
    assert files_of_wheel(again) == files_of_wheel(wheel)


def test_editable_install_imports_every_room_from_the_checkout(tmp_path: Path) -> None:
    python = new_environment(tmp_path / "environment")
    install(python, "--editable", ROOT)
    program = "import importlib, sys\nfor name in sys.argv[1:]: print(importlib.import_module(name).__file__)"
    places = run(python, "-c", program, *(f"dmlgbm.{room}" for room in ROOMS), folder=tmp_path).splitlines()
    assert places == [str(ROOT / "dmlgbm" / room / "__init__.py") for room in ROOMS]


def test_examples_of_the_readme_run_from_the_wheel_among_files_with_names_of_modules(
    python_with_wheel: Path, scripts: Path
) -> None:
    here, compiled = scripts.parent, folder_to_write()
    if compiled is not None:  # what the checkout's kernels were compiled to; the sources are the same
        shutil.copytree(compiled, here / "cache" / "dmlgbm", ignore=shutil.ignore_patterns("*.pyc"))
    script = write_program(ROOT / "README.md", None, scripts)
    with script.open("a", encoding="utf-8") as program:
        program.write("\nimport dmlgbm; print(dmlgbm.__file__)\n")
    printed = run(python_with_wheel, script, folder=here, NUMBA_CACHE_DIR=str(here / "cache"))
    assert printed.splitlines()[-1].startswith(str(python_with_wheel.parents[1]))
    assert traces(here) == {}


def test_helper_processes_of_the_wheel_import_no_file_of_the_user(python_with_wheel: Path, scripts: Path) -> None:
    script = scripts / "starts_processes.py"
    script.write_text(STARTS_PROCESSES, encoding="utf-8")
    run(python_with_wheel, script, folder=scripts.parent, NUMBA_CACHE_DIR=str(scripts.parent / "cache"))
    assert traces(scripts.parent) == {}
