"""The tables of the grid in Markdown: seconds and ratios, accuracies, geometric means and the worst of each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.grid_tables import GENERATED_TABLES
from benchmarks.marked_section import markdown_table
from benchmarks.peers import OURS, SYSTEMS
from benchmarks.records import GRID, Record
from benchmarks.report import accuracy_lines, environment_lines, mean_ratio, number, reasons
from benchmarks.summary import (
    QUIET_CORES,
    Comparison,
    Quantity,
    SystemFigures,
    compare,
    fit_seconds,
    growth_bytes,
    predict_row_seconds,
    predict_seconds,
)
from benchmarks.targets import accuracy_loss

GRID_SYSTEMS = (OURS, "lightgbm", "lightgbm_quantised", "xgboost")
RATIOS: dict[str, Quantity] = {
    "fit": fit_seconds,
    "predict": predict_seconds,
    "one row": predict_row_seconds,
    "memory growth": growth_bytes,
}
ABSENT = "-"
EXPLANATION = (
    "Seconds for a fit, and ours over the best peer of each table (below 1 is faster or smaller). Cores are CPU time "
    "over wall time of the fastest fit. Memory growth of small tables is that of ten times their rows."
)
ACCURACY_EXPLANATION = (
    "Accuracy on the test rows. The last column is how far ours is behind the better of LightGBM and XGBoost, as a "
    "share of what the targets allow; below 0 is ahead."
)


def render(records: Sequence[Record]) -> str:
    """The whole section."""
    comparisons = compare(records, GRID)
    parts = [
        EXPLANATION,
        _speed_table(comparisons),
        ACCURACY_EXPLANATION,
        _accuracy_table(comparisons),
        *accuracy_lines(comparisons),
        *reasons("Without a figure:", comparisons, lambda comparison: comparison.refusals),
        *reasons("Not finished:", comparisons, lambda comparison: comparison.unfinished),
        _disturbance(records, comparisons),
        *environment_lines(list(records), comparisons),
    ]
    return "\n\n".join(part for part in parts if part)


def _systems(comparisons: Mapping[str, Comparison]) -> list[str]:
    return [name for name in SYSTEMS if any(name in comparison.figures for comparison in comparisons.values())]


def _speed_table(comparisons: Mapping[str, Comparison]) -> str:
    systems = _systems(comparisons)
    header = ["table", "rows", "columns", "kind", *(f"{SYSTEMS[system].title}, s" for system in systems)]
    header += [*RATIOS, "cores " + " / ".join(SYSTEMS[system].title for system in systems)]
    rows = [_speed_row(comparison, systems) for comparison in comparisons.values()]
    blanks = ["", "", "", *("" for _ in systems)]
    means = [number(mean_ratio(comparisons.values(), quantity)) for quantity in RATIOS.values()]
    worst = [_worst(comparisons, quantity) for quantity in RATIOS.values()]
    return markdown_table(
        header, [*rows, ["**geometric mean**", *blanks, *means, ""], ["**worst**", *blanks, *worst, ""]]
    )


def _speed_row(comparison: Comparison, systems: Sequence[str]) -> list[str]:
    figures = [comparison.figures.get(system) for system in systems]
    return [
        comparison.dataset,
        f"{comparison.train_rows:,}",
        f"{comparison.n_features:,}",
        _kind(comparison),
        *(ABSENT if of_system is None else number(of_system.fit_seconds) for of_system in figures),
        *(number(comparison.ratio(quantity)) for quantity in RATIOS.values()),
        " / ".join(_cores(of_system) for of_system in figures),
    ]


def _kind(comparison: Comparison) -> str:
    """Task, values and zeros of a generated table, the task of another."""
    table = GENERATED_TABLES.get(comparison.dataset)
    if table is None:
        return comparison.task or ABSENT
    task = f"{table.classes} classes" if table.classes else "regression"
    if table.form != "values":
        return f"{task}, {table.form.replace('_', '-')}"
    values = f"to {table.values} values" if table.values > 2 else "2 values" if table.values else "continuous"
    return f"{task}, {values}" + (f", {table.zeros:.0%} zeros" if table.zeros else "")


def _cores(figures: SystemFigures | None) -> str:
    return ABSENT if figures is None or figures.cores_used is None else f"{figures.cores_used:.2f}"


def _worst(comparisons: Mapping[str, Comparison], quantity: Quantity) -> str:
    return number(max((ratio for c in comparisons.values() if (ratio := c.ratio(quantity)) is not None), default=None))


def _accuracy_table(comparisons: Mapping[str, Comparison]) -> str:
    systems = _systems(comparisons)
    header = ["table", "metric", *(SYSTEMS[system].title for system in systems), "share of allowance"]
    rows: list[list[str]] = []
    for comparison in comparisons.values():
        loss = accuracy_loss(comparison)
        figures = [comparison.figures.get(system) for system in systems]
        rows.append(
            [
                comparison.dataset,
                ABSENT if comparison.metric is None else comparison.metric.name,
                *(ABSENT if of_system is None else f"{of_system.metric:.5g}" for of_system in figures),
                ABSENT if loss is None else f"{loss[0] / loss[1]:.2f}",
            ]
        )
    return markdown_table(header, rows)


def _disturbance(records: Sequence[Record], comparisons: Mapping[str, Comparison]) -> str:
    """How many of the timed measurements other processes disturbed."""
    newest = max((record["run"] for record in records if record["kind"] == GRID), default="")
    timed = [
        record
        for record in records
        if (record["kind"], record["run"], record.get("purpose", "time")) == (GRID, newest, "time")
        and record["dataset"] in comparisons
    ]
    disturbed = sum(record["foreign_cores"] > QUIET_CORES for record in timed)
    if not disturbed:
        return ""
    return f"Other processes took more than {QUIET_CORES} cores during {disturbed} of {len(timed)} measurements."
