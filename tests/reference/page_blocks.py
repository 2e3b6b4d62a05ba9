"""The fenced blocks of a page, and which of its Python blocks make up the program that a test runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

OPTIONAL_LIBRARIES = ("matplotlib", "optuna", "pyspark", "torch")


class Block(NamedTuple):
    """A fenced part of a page."""

    language: str
    text: str

    @property
    def needs(self) -> str | None:
        """The optional library that it names."""
        return next((name for name in OPTIONAL_LIBRARIES if re.search(rf"\b{name}\b", self.text)), None)

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


def write_program(page: Path, library: str | None, folder: Path) -> Path:
    """A script of the blocks that need no optional library but this one, beside the files that the page names."""
    program: list[str] = []
    for block in python_blocks_of(page):
        if block.file_name is not None:
            (folder / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.needs in (None, library):
            program.append(block.text)
    script = folder / "program_of_a_page.py"
    script.write_text("\n".join(program), encoding="utf-8")
    return script
