"""What users read and copy is true: generated pages are up to date, links lead somewhere, examples run.

Code blocks of the pages have a file of their own, `test_code_blocks.py`.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks import bench_kernels
from benchmarks.report import replace_section
from dmlgbm.gbdt.metrics import registry
from dmlgbm.gbdt.objectives.factory import OBJECTIVE_NAMES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")])
# The demo has a test of its own, and so has what needs Spark.
QUICK_EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if path.name not in ("demo.py", "spark_fit.py")
)


def anchors_of(page: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_parameters_page_is_what_its_generator_writes() -> None:
    generator = runpy.run_path(str(DOCS / "generate_parameters.py"))
    assert (DOCS / "parameters.md").read_text(encoding="utf-8") == generator["page"](), (
        "run python docs/generate_parameters.py"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    named = re.findall(rf"`((?:{folders}|\.ci)/[\w./]*)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_contents_page_links_every_other_page() -> None:
    contents = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [
        page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name})" not in contents
    ] == []


def test_objectives_page_has_a_row_for_every_objective_metric_and_metric_alias() -> None:
    page = (DOCS / "objectives_and_metrics.md").read_text(encoding="utf-8")
    objectives, metrics = page.split("## Metrics")
    assert [name for name in OBJECTIVE_NAMES if f"\n| `{name}`" not in objectives] == []
    assert [name for name in [*registry._NAMES, *registry._PATTERNS] if f"\n| `{name}`" not in metrics] == []
    assert [name for name in registry._ALIASES if f"`{name}`" not in metrics] == []


def test_readme_has_a_place_for_the_benchmark_table() -> None:
    assert "the table" in replace_section((ROOT / "README.md").read_text(encoding="utf-8"), "the table")


@pytest.mark.processes
@pytest.mark.parametrize("path", QUICK_EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_kernel_benchmark_reports_every_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_kernels, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(bench_kernels, "LEAST_SECONDS", 0.0)
    file = tmp_path / "kernels.jsonl"
    monkeypatch.setattr(sys, "argv", ["bench_kernels", "--rows", "40000", "--features", "4", "--json", str(file)])
    bench_kernels.main()
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    loops = {record["loop"].partition(",")[0] for record in records if record["kind"] == bench_kernels.KERNEL}
    assert loops == {"numpy copy", "packing", "histogram", "split search", "partition"}
    assert all(record["nanoseconds"] > 0 for record in records if "nanoseconds" in record)
    assert loops <= {line.partition(",")[0].partition("  ")[0] for line in capsys.readouterr().out.splitlines()}
