"""How the time of a fit grows with rows, columns, classes and leaves, ours beside LightGBM, as a picture.

Each axis varies one number and leaves the others alone. Both axes of a panel are logarithmic: a straight line is a
power of the number, and the distance between two lines is the ratio of two times.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.grid_tables import GROWING_TABLES
from benchmarks.marked_section import markdown_table
from benchmarks.measure import Method
from benchmarks.peers import OURS, SYSTEMS
from benchmarks.records import GROWTH, Record, read_records
from benchmarks.report import number
from benchmarks.run import PROJECT, add_run_arguments, run_dataset, run_settings_from_arguments, start_results

LEAVES = (7, 15, 31, 63, 127, 255, 511)
TABLE_OF_LEAVES = "rows_100000"
METHOD = Method(fits=1, fit_seconds=0.5, warm_up=True, predict_seconds=0.0, arrays=True)
PICTURE = PROJECT / "docs" / "pictures" / "growth.svg"
# What an axis leaves alone, above its panel.
UNCHANGED = {
    "rows": "20 columns, 2 classes",
    "columns": "30k rows, 2 classes",
    "classes": "20k rows, 20 columns",
    "leaves": "100k rows, 20 columns, 2 classes",
}
# Told apart without colour too: each system has its own marker.
LINES = {OURS: ("tab:orange", "o"), "lightgbm": ("tab:green", "s"), "xgboost": ("tab:blue", "^")}
OTHER_LINE = ("tab:gray", "x")


@dataclass(frozen=True)
class Point:
    """One fit of an axis: which number it is, and how to make it."""

    axis: str
    value: int
    dataset: str
    num_leaves: int


def points(num_leaves: int) -> list[Point]:
    """Those of all axes; trees have `num_leaves` leaves but where these are the axis."""
    found: list[Point] = []
    for name, table in GROWING_TABLES.items():
        axis = name.partition("_")[0]
        found.append(Point(axis, int(getattr(table, axis)), name, num_leaves))
    return found + [Point("leaves", leaves, TABLE_OF_LEAVES, leaves) for leaves in LEAVES]


def fastest(records: Sequence[Record], asked: Sequence[Point]) -> dict[str, dict[str, dict[int, float]]]:
    """Seconds of the fastest fit by axis, system and number."""
    seconds: dict[str, dict[str, dict[int, float]]] = {}
    for point in asked:
        for record in records:
            made = (record["dataset"], record["settings"]["num_leaves"])
            if made != (point.dataset, point.num_leaves) or record["figures"] is None:
                continue
            line = seconds.setdefault(point.axis, {}).setdefault(record["system"], {})
            line[point.value] = min(line.get(point.value, float("inf")), record["figures"]["fit_seconds"])
    return seconds


def render(seconds: Mapping[str, Mapping[str, Mapping[int, float]]]) -> str:
    """One Markdown table of all points."""
    systems = [name for name in SYSTEMS if any(name in lines for lines in seconds.values())]
    rows = [
        [f"{axis} {value:,}", *(number(lines.get(system, {}).get(value)) for system in systems)]
        for axis, lines in seconds.items()
        for value in sorted({value for line in lines.values() for value in line})
    ]
    return markdown_table(["seconds for a fit", *(SYSTEMS[system].title for system in systems)], rows)


def draw(seconds: Mapping[str, Mapping[str, Mapping[int, float]]], picture: Path) -> None:
    """One panel for each axis."""
    import matplotlib as mpl

    mpl.use("Agg")
    # Without a date and with a fixed salt, the same figures make the same file.
    mpl.rcParams["svg.hashsalt"] = "growth"
    import matplotlib.pyplot as plt

    size = (3.2 * len(seconds), 3.4)
    figure, panels = plt.subplots(1, len(seconds), figsize=size, sharey=True, squeeze=False)
    for panel, (axis, lines) in zip(panels[0], seconds.items(), strict=True):
        _draw_panel(panel, axis, lines)
    panels[0][0].set_ylabel("seconds for a fit")
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if picture.suffix == ".svg" else None
    figure.savefig(picture, metadata=metadata, dpi=120)
    plt.close(figure)


def _draw_panel(panel: Any, axis: str, lines: Mapping[str, Mapping[int, float]]) -> None:
    from matplotlib.ticker import LogLocator

    for system, line in lines.items():
        colour, marker = LINES.get(system, OTHER_LINE)
        values = sorted(line)
        heights = [line[value] for value in values]
        panel.plot(values, heights, marker=marker, color=colour, label=SYSTEMS[system].title)
    ticks = sorted({value for line in lines.values() for value in line})
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(ticks, [_short(value) for value in ticks])
    panel.set_xticks([], minor=True)
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.set_yticks([], minor=True)
    panel.set_xlabel(axis)
    panel.set_title(UNCHANGED[axis], fontsize="small")
    panel.grid(alpha=0.3)


def _short(value: int) -> str:
    """Thousands and millions by a letter."""
    if value % 1_000_000 == 0:
        return f"{value // 1_000_000}M"
    return f"{value // 1_000}k" if value % 1_000 == 0 else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_growth", description=__doc__)
    add_run_arguments(parser, tuple(GROWING_TABLES), (OURS, "lightgbm"))
    parser.set_defaults(fits=METHOD.fits)
    parser.add_argument("--picture", type=Path, default=PICTURE, help="SVG or PNG file (default: %(default)s)")
    arguments = parser.parse_args()
    run = replace(
        run_settings_from_arguments(arguments), method=replace(METHOD, fits=arguments.fits), enlarge_small=False
    )
    asked = [
        point for point in points(arguments.num_leaves) if not arguments.datasets or point.dataset in arguments.datasets
    ]
    results = start_results(arguments.out)
    # The table of an axis may be one of the leaves too: what is the same fit is made once.
    for dataset, num_leaves in dict.fromkeys((point.dataset, point.num_leaves) for point in asked):
        settings = replace(run.settings, num_leaves=num_leaves)
        run_dataset(dataset, arguments.systems, replace(run, settings=settings), results, GROWTH)
    records = [record for record in read_records([arguments.out]) if record["run"] == results.run]
    seconds = fastest([record for record in records if record["kind"] == GROWTH], asked)
    print(render(seconds))
    draw(seconds, arguments.picture)
    print(json.dumps({"picture": str(arguments.picture)}))


if __name__ == "__main__":
    main()
