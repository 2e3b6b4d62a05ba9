"""Every Python block of the pages runs as printed, in an empty folder and a process of its own for each page.

Blocks of a page build on those before them, as in a notebook. One that names a library in
`OPTIONAL_LIBRARIES` runs, with the blocks that need none, where this library is installed.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference.page_blocks import blocks_of, python_blocks_of, write_program

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
LANGUAGES = ("python", "sh", "text")
# These pages, and all blocks on Spark, take more than a few seconds.
SLOW_PAGES = ("callbacks", "collectives", "dask", "estimators", "neural", "neural_strategies", "tuning", "work_sharing")
SECONDS = 300


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def programs() -> Iterator[Any]:
    """A page, and the optional library whose blocks run: None first, then each that the page needs."""
    for page in PAGES:
        needs = {block.needs for block in python_blocks_of(page)}
        for library in sorted(needs, key=lambda name: name or ""):
            is_slow = library == "pyspark" or page.stem in SLOW_PAGES
            name = page.stem if library is None else f"{page.stem}, {library}"
            yield pytest.param(page, library, id=name, marks=[pytest.mark.slow] if is_slow else [])


def why_missing(library: str) -> str | None:
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed"
    if library == "pyspark" and shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no Java was found: install Java 17, or set JAVA_HOME"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_fences_name_their_language_and_all_python_is_called_so(page: Path) -> None:
    blocks = blocks_of(page)
    assert len(blocks) * 2 == len(re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.MULTILINE))
    for block in blocks:
        assert block.language in LANGUAGES, block.text
        assert is_python(block.text) == (block.language == "python"), block.text


@pytest.mark.processes
@pytest.mark.timeout(SECONDS + 20)
@pytest.mark.parametrize(("page", "library"), list(programs()))
def test_python_blocks_of_a_page_run_as_printed(page: Path, library: str | None, tmp_path: Path) -> None:
    reason = library and why_missing(library)
    if reason:
        pytest.skip(reason)
    script = write_program(page, library, tmp_path)
    finished = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment_of_a_user(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def environment_of_a_user() -> dict[str, str]:
    """The interpreter's environment is activated, and nothing else points to this checkout."""
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return known | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "MPLBACKEND": "agg"}
