"""The measured part of docs/dask.md says what the result files say; nothing is timed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas", reason="the benchmark's tables are pandas frames")

from benchmarks.bench_dask import DASK, LOCAL
from benchmarks.bench_dask_kill import DASK_KILL
from benchmarks.bench_dask_modes import DASK_MODES
from benchmarks.dask_report import SECTION, section
from benchmarks.marked_section import MissingMarkersError, replace_section

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dask.md"


def race(system: str, seconds: float, peak: float, run: str = "2", **others: Any) -> dict[str, Any]:
    ours = system == "ours"
    return {
        "kind": DASK,
        "run": run,
        "system": system,
        "dataset": "flights3m",
        "workers": 2,
        "fit_seconds": seconds,
        "peak_bytes": peak * 1e6,
        "sent_bytes": 5_000_000 if ours else None,
        "rounds_per_tree": 17.0 if ours else None,
        "metric_name": "RMSE",
        "metric": 0.5,
        **others,
    }


RECORDS = [
    race("ours", 1.0, 90, run="1"),  # an older run does not count
    race("ours", 7.0, 80),
    race("ours", 6.0, 85),
    race("lightgbm", 12.0, 100),
    race("xgboost", 10.0, 200),
    race(LOCAL, 5.0, 50),
]


def test_race_is_compared_with_the_better_peer_of_the_newest_run() -> None:
    [row] = [line for line in section(RECORDS).splitlines() if line.startswith("| flights3m, 2")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:5] == ["6.00", "12.00", "10.00", "0.60"]
    assert cells[5:9] == ["80", "100", "200", "0.80"]
    assert cells[9:12] == ["1.20", "5.0", "17.0"]
    assert "Geometric means with 2 workers: fit 0.60, peak memory 0.80." in section(RECORDS)


def test_a_system_without_a_figure_is_a_dash() -> None:
    [row] = [line for line in section(RECORDS[:3]).splitlines() if line.startswith("| flights3m, 2")]
    assert "| - |" in row


def test_modes_are_compared_with_data_mode() -> None:
    common = {"kind": DASK_MODES, "run": "1", "dataset": "mnist", "workers": 2, "leaves": 63, "fit_seconds": 1.0}
    counts = {"rounds_per_tree": 19.0, "most_rounds": 20, "lightgbm_bytes_per_tree": 4e6}
    records = [
        {**common, **counts, "mode": "data", "accuracy": 0.95, "bytes_per_tree": 1e6},
        {**common, **counts, "mode": "voting", "accuracy": 0.94, "bytes_per_tree": 1e5},
    ]
    text = section(records)
    assert "| mnist, data | 2 | 63 | 0.9500 | +0.0000 | 1.00 | 19.0 | 20 | 1 | 0.25 | 1.000 |" in text
    assert "| mnist, voting | 2 | 63 | 0.9400 | -0.0100 | 1.00 | 19.0 | 20 | 0.1 | 0.03 | 0.100 |" in text


def test_kill_is_told_with_its_least_and_most_cost() -> None:
    common = {"kind": DASK_KILL, "run": "1", "dataset": "flights3m", "workers": 2, "trees": 50, "same_bytes": True}
    records = [
        {**common, "quiet_seconds": 5.0, "killed_seconds": 9.0},
        {**common, "quiet_seconds": 6.0, "killed_seconds": 9.0},
    ]
    assert "| flights3m, 2 | 50 | 5.00 | 3.00 | 4.00 | yes |" in section(records)


def test_page_has_a_place_for_the_figures() -> None:
    assert "the figures" in replace_section(PAGE.read_text(encoding="utf-8"), SECTION, "the figures")
    with pytest.raises(MissingMarkersError, match="dask:begin"):
        replace_section("a page\n", SECTION, "the figures")
