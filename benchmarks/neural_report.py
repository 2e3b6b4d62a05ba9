"""Writes the measured parts of docs/neural.md and docs/neural_strategies.md from result files of the two benchmarks.

    python -m benchmarks.bench_neural --data-dir DIR --systems scikit-learn alone ddp allreduce --epochs 2 --out FILE
    python -m benchmarks.bench_neural --data-dir DIR --epochs 11 --schedule cosine --target 0.98 --out FILE
    python -m benchmarks.bench_strategies --data-dir DIR --out FILE
    python -m benchmarks.neural_report FILE

Of each measurement the newest run counts; a measurement of strategies may be put together from several runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from benchmarks.bench_neural import NEURAL
from benchmarks.bench_strategies import MEASUREMENTS, STRATEGY
from benchmarks.marked_section import markdown_table, write_section
from benchmarks.records import ENVIRONMENT, Record, read_records
from benchmarks.run import PROJECT

SPEED = "neural_speed"
STRATEGIES = "neural_strategies"


def speed_section(records: Sequence[Record]) -> str:
    """One table for each budget that systems were given: seconds, accuracy and bytes, beside the first system."""
    groups: dict[tuple[int, int, str], dict[str, Record]] = {}
    for record in records:
        if record["kind"] == NEURAL:
            budget = record["epochs"], record["batch_size"], record["schedule"]
            groups.setdefault(budget, {})[record["system"]] = record
    parts = []
    for (epochs, batch_size, schedule), systems in groups.items():
        parts.append(f"{epochs} epochs, batches of {batch_size}, {schedule} learning rate:")
        first = next(iter(systems.values()))
        rows = [
            [
                system,
                str(each["ranks"]),
                f"{each['seconds']:.2f}",
                f"{each['seconds'] / first['seconds']:.2f}",
                f"{each['accuracy']:.2%}",
                f"{each['best_accuracy']:.2%}",
                f"{each['target']:.0%}",
                _shown(each["seconds_to_target"], "{:.2f}"),
                _shown(each["megabytes"], "{:.0f}"),
            ]
            for system, each in systems.items()
        ]
        header = ["", "ranks", "seconds", "of the first", "accuracy", "best", "target", "s to target", "MB sent"]
        parts.append(markdown_table(header, rows))
    return _with_place(parts, records, NEURAL)


def strategies_section(records: Sequence[Record]) -> str:
    """One table for each measurement, every run beside the first one."""
    parts = []
    for measurement, runs_of in MEASUREMENTS.items():
        newest = {
            record["name"]: record
            for record in records
            if record["kind"] == STRATEGY and record["measurement"] == measurement
        }
        runs = [newest[run.name] for run in runs_of() if run.name in newest]
        if runs:
            parts += [f"*{runs_of.__doc__}*", _strategy_table(runs)]
    return _with_place(parts, records, STRATEGY)


def _strategy_table(runs: Sequence[Record]) -> str:
    first = runs[0]
    rows = []
    for run in runs:
        compared = [
            f"{(run['accuracy'] - first['accuracy']) * 100:+.2f}",
            _times(first["epochs"], run["epochs"]),
            _times(first["seconds"], run["seconds"]),
            _times(first["megabytes"], run["megabytes"]),
        ]
        rows.append(
            [
                run["name"],
                str(run["epochs"]) if run["reached"] else f"more than {run['epochs']}",
                f"{run['accuracy']:.2%}",
                f"{run['seconds']:.1f}",
                f"{run['megabytes']:.1f}" if run["megabytes"] else "-",
                *(compared if run["reached"] else "-" * len(compared)),
            ]
        )
    header = ["", "epochs or rounds", "accuracy", "seconds", "MB sent"]
    header += ["points beside the first", "times fewer rounds", "times faster", "times fewer bytes"]
    return markdown_table(header, rows)


def _times(first: float, other: float) -> str:
    return f"{first / other:.1f}" if first and other else "-"


def _shown(value: float, form: str) -> str:
    return form.format(value) if isfinite(value) else "-"


def _with_place(parts: list[str], records: Sequence[Record], kind: str) -> str:
    """The parts, and where and when they were measured."""
    runs = {record["run"] for record in records if record["kind"] == kind}
    places = [record for record in records if record["kind"] == ENVIRONMENT and record["run"] in runs]
    if places:
        last = max(places, key=lambda record: str(record["run"]))
        parts.append(f"Measured {last['run'][:10]} on {last['cpu']}, {last['cores']} cores, Python {last['python']}.")
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neural_report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--pages", type=Path, default=PROJECT / "docs", help="folder with the two pages")
    given = parser.parse_args(arguments)
    records = read_records(given.results)
    kinds = {record["kind"] for record in records}
    if NEURAL in kinds:
        write_section(given.pages / "neural.md", SPEED, speed_section(records))
    if STRATEGY in kinds:
        write_section(given.pages / "neural_strategies.md", STRATEGIES, strategies_section(records))


if __name__ == "__main__":
    main()
