"""Generated parts of documentation pages: Markdown tables between two markers with the name of the part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


class MissingMarkersError(Exception):
    """The page has no place for the section."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    alignment = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, alignment, *rows])


def markers(name: str) -> tuple[str, str]:
    """The lines that a part of this name stands between."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def replace_section(page: str, name: str, section: str) -> str:
    """The page with the text between the markers exchanged."""
    first, last = markers(name)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise MissingMarkersError(
            f"the page needs a line {first} and after it a line {last}; the table is written between them"
        )
    return f"{before}{first}\n{section}\n{last}{after}"


def write_section(page: Path, name: str, section: str) -> None:
    """Exchange the section in a file."""
    page.write_text(replace_section(page.read_text(encoding="utf-8"), name, section), encoding="utf-8")
