"""Every Python block of the pages runs as printed, in an empty folder and a process of its own for each page.

Blocks of a page build on those before them, as in a notebook. One that names a library in `OPTIONAL` runs, with the
blocks that need none, where this library is installed.
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
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
OPTIONAL = ("matplotlib", "optuna", "pyspark", "torch")
LANGUAGES = ("python", "sh", "text")
# These pages, and all blocks on Spark, take more than a few seconds.
SLOW_PAGES = ("callbacks", "collectives", "dask", "estimators", "neural", "neural_strategies", "tuning", "work_sharing")
SECONDS = 300


class Block(NamedTuple):
    """A fenced part of a page."""

    language: str
    text: str

    @property
    def needs(self) -> str | None:
        """The optional library that it names."""
        return next((name for name in OPTIONAL if re.search(rf"\b{name}\b", self.text)), None)

    @property
    def file_name(self) -> str | None:
        """Where the page says that it belongs, if in a file of its own."""
        found = re.match(r"# (\w+\.py)\n", self.text)
        return found and found[1]


def blocks_of(page: Path) -> list[Block]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*fence) for fence in fences]


def python_blocks_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == "python"]


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


@pytest.mark.timeout(SECONDS + 20)
@pytest.mark.parametrize(("page", "library"), list(programs()))
def test_python_blocks_of_a_page_run_as_printed(page: Path, library: str | None, tmp_path: Path) -> None:
    reason = library and why_missing(library)
    if reason:
        pytest.skip(reason)
    program: list[str] = []
    for block in python_blocks_of(page):
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.needs in (None, library):
            program.append(block.text)
    script = tmp_path / "program_of_a_page.py"
    script.write_text("\n".join(program), encoding="utf-8")
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
