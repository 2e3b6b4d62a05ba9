"""The list of what is used of numba's private parts is whole, and the installed numba has them."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlgbm.gbdt.machine_code import numba_parts, symbols

ROOT = Path(__file__).parents[3]
LISTED = (*numba_parts.TO_WRITE_KERNELS, *numba_parts.TO_MAKE_OBJECT_FILES, *numba_parts.TO_KEEP_RESULTS)
DOCUMENTED = ("numba", "numba.carray", "numba.extending")


def sources() -> Iterator[Path]:
    for folder in ("gbdt", "collectives", "neural", "dask_backend", "spark_backend", "sklearn_api", "tuning"):
        yield from (ROOT / folder).rglob("*.py")


def imported_from_numba(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "numba")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_everything_imported_from_numba_is_documented_or_listed() -> None:
    imported = {name for path in sources() for name in imported_from_numba(path)}
    assert "numba.core.codegen" in imported
    unlisted = {
        name
        for name in imported
        if not any(name == part or name.startswith(part + ".") for part in DOCUMENTED)
        and not any(part == name or part.startswith(name + ".") for part in LISTED)
    }
    assert not unlisted


@pytest.mark.parametrize("name", sorted(set(LISTED)))
def test_installed_numba_has_each_listed_part(name: str) -> None:
    words = name.split(".")
    for n_words in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:n_words]))
        except ModuleNotFoundError:
            continue
        for word in words[n_words:]:
            found = getattr(found, word)
        return
    pytest.fail(f"{name} does not exist")


def test_extension_modules_are_found_without_importing_numba_around_them() -> None:
    for module in numba_parts.HELPER_MODULES.values():
        assert symbols.numba_extension(module).c_helpers
    assert symbols.numba_extension(numba_parts.ENVIRONMENT_MODULE).Environment({}) is not None


def test_stated_range_of_numba_contains_the_installed_version() -> None:
    from packaging.requirements import Requirement

    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (numba,) = (requirement for requirement in map(Requirement, stated) if requirement.name == "numba")
    assert {specifier.operator for specifier in numba.specifier} == {">=", "<"}
    assert numba.specifier.contains(importlib.metadata.version("numba"))
