"""The table of the benchmark of searches, and its place in the documentation. Nothing is timed here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench_tuning import PAGE, SECTION, Figure, table
from benchmarks.marked_section import replace_section

ROOT = Path(__file__).parents[2]


def test_the_fastest_turn_of_each_system_counts_and_is_compared_with_loky() -> None:
    figures = [
        Figure("grid", "scikit-learn, joblib loky", 8.0, 0.75, 100, 0, 5_000_000),
        Figure("grid", "ours, local", 3.0, 0.75, 40, 1_500_000, 4_000_000),
        Figure("grid", "ours, local", 2.0, 0.75, 40, 1_500_000, 4_000_000),
        Figure("forest", "ours, local", 1.0, 0.5, None, 2_000_000, 1_000_000),
    ]
    _, _, *rows = table(figures).splitlines()
    assert rows == [
        "| grid: ours, local | 2.00 | 0.25 | 0.75000 | 40 | 1.5 | 4 |",
        "| grid: scikit-learn, joblib loky | 8.00 | 1.00 | 0.75000 | 100 |  | 5 |",
        "| forest: ours, local | 1.00 |  | 0.50000 |  | 2.0 | 1 |",
    ]


def test_the_page_has_a_place_for_the_table() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert "the figures" in replace_section(page, SECTION, "the figures")
