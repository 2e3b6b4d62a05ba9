"""Writes the measured part of docs/dask.md from result files of the three Dask benchmarks.

    python -m benchmarks.bench_dask --data-dir DIR --datasets ... --workers 1 2 4 --json dask.jsonl
    python -m benchmarks.bench_dask_modes --data-dir DIR --datasets mnist wide --json dask.jsonl
    python -m benchmarks.bench_dask_kill --data-dir DIR --dataset flights3m --json dask.jsonl
    python -m benchmarks.dask_report dask.jsonl

Figures are compared within one run: of each table and number of workers the newest run counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_dask import DASK, LOCAL, RUNNERS
from benchmarks.bench_dask_kill import DASK_KILL
from benchmarks.bench_dask_modes import DASK_MODES
from benchmarks.marked_section import markdown_table, write_section
from benchmarks.records import ENVIRONMENT, Record, read_records
from benchmarks.run import PROJECT
from benchmarks.summary import geometric_mean

SECTION = "dask"
PEERS = ("lightgbm", "xgboost")


def newest(records: Sequence[Record], kind: str, keys: Sequence[str]) -> dict[tuple[Any, ...], list[Record]]:
    """The records of a kind by the values of some keys, of the newest run that has them."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record["kind"] == kind:
            groups.setdefault(tuple(record[key] for key in keys), []).append(record)
    return {
        values: [record for record in group if record["run"] == max(each["run"] for each in group)]
        for values, group in groups.items()
    }


def race_table(records: Sequence[Record]) -> tuple[str, str]:
    """Seconds, memory and accuracy of all systems, and a sentence with the geometric means for two workers."""
    rows, ratios = [], []
    for (dataset, workers), group in newest(records, DASK, ("dataset", "workers")).items():
        fit = {system: _least(group, system, "fit_seconds") for system in RUNNERS}
        peak = {system: _least(group, system, "peak_bytes") for system in RUNNERS}
        ours = [each for each in group if each["system"] == "ours"]
        both = _ratio(fit), _ratio(peak)
        if workers == 2 and None not in both:
            ratios.append(both)
        local = _quotient(fit["ours"], fit[LOCAL])
        rows.append(
            [
                f"{dataset}, {workers}",
                *(_shown(fit[system], "{:.2f}") for system in ("ours", *PEERS)),
                _shown(both[0], "{:.2f}"),
                *(_shown(peak[system], "{:.0f}", 1e-6) for system in ("ours", *PEERS)),
                _shown(both[1], "{:.2f}"),
                _shown(local, "{:.2f}"),
                _shown(max((each["sent_bytes"] for each in ours), default=None), "{:.1f}", 1e-6),
                _shown(max((each["rounds_per_tree"] for each in ours), default=None), "{:.1f}"),
                group[0]["metric_name"],
                *(_shown(_least(group, system, "metric"), "{:.5g}") for system in ("ours", *PEERS)),
            ]
        )
    header = [
        "data set, workers",
        *("fit s: ours", "LightGBM", "XGBoost", "ours / faster"),
        *("peak MB: ours", "LightGBM", "XGBoost", "ours / leaner"),
        *("ours / local fit", "MB sent", "rounds a tree"),
        *("metric", "ours", "LightGBM", "XGBoost"),
    ]
    if not ratios:
        return markdown_table(header, rows), ""
    means = [geometric_mean([float(pair[position] or 0.0) for pair in ratios]) for position in range(2)]
    sentence = f"Geometric means with 2 workers: fit {means[0]:.2f}, peak memory {means[1]:.2f}."
    return markdown_table(header, rows), sentence


def modes_table(records: Sequence[Record]) -> str:
    """Accuracy, rounds and bytes of the modes."""
    rows = []
    for (dataset, workers, leaves), group in newest(records, DASK_MODES, ("dataset", "workers", "leaves")).items():
        data = next((each for each in group if each["mode"] == "data"), None)
        for each in group:
            of_data = each["bytes_per_tree"] / data["bytes_per_tree"] if data else None
            lost = each["accuracy"] - data["accuracy"] if data else None
            rows.append(
                [
                    f"{dataset}, {each['mode']}",
                    str(workers),
                    str(leaves),
                    f"{each['accuracy']:.4f}",
                    _shown(lost, "{:+.4f}"),
                    f"{each['fit_seconds']:.2f}",
                    f"{each['rounds_per_tree']:.1f}",
                    str(each["most_rounds"]),
                    f"{each['bytes_per_tree'] / 1e6:.3g}",
                    f"{each['bytes_per_tree'] / each['lightgbm_bytes_per_tree']:.2f}",
                    _shown(of_data, "{:.3f}"),
                ]
            )
    header = ["data set, mode", "workers", "leaves", "accuracy", "less data mode's", "fit s"]
    header += ["rounds a tree", "most", "MB a tree", "of LightGBM's", "of data mode's"]
    return markdown_table(header, rows)


def kill_table(records: Sequence[Record]) -> str:
    """The seconds that one kill costs; the fastest quiet fit and each disturbed one."""
    rows = []
    for (dataset, workers, trees), group in newest(records, DASK_KILL, ("dataset", "workers", "trees")).items():
        costs = [each["killed_seconds"] - each["quiet_seconds"] for each in group]
        quiet = min(each["quiet_seconds"] for each in group)
        same = "yes" if all(each["same_bytes"] for each in group) else "no"
        rows.append(
            [f"{dataset}, {workers}", str(trees), f"{quiet:.2f}", f"{min(costs):.2f}", f"{max(costs):.2f}", same]
        )
    return markdown_table(["data set, workers", "trees", "quiet fit s", "least cost s", "most", "same bytes"], rows)


def section(records: Sequence[Record]) -> str:
    """What stands between the markers: a part for each benchmark that was run."""
    kinds = {record["kind"] for record in records}
    parts: list[str] = []
    if DASK in kinds:
        table, means = race_table(records)
        parts += ["Against the peers, fastest of the turns, one thread a worker:", table, means]
    if DASK_MODES in kinds:
        parts += ["The modes beside each other:", modes_table(records)]
    if DASK_KILL in kinds:
        parts += ["One SIGKILL after half of the iterations:", kill_table(records)]
    environments = [record for record in records if record["kind"] == ENVIRONMENT]
    if environments:
        last = max(environments, key=lambda record: str(record["run"]))
        parts.append(f"Measured {last['run'][:10]} on {last['cpu']}, {last['cores']} cores, Python {last['python']}.")
    return "\n\n".join(part for part in parts if part)


def _least(group: Sequence[Record], system: str, name: str) -> float | None:
    return min((each[name] for each in group if each["system"] == system), default=None)


def _ratio(values: dict[str, float | None]) -> float | None:
    """Ours over the better peer."""
    ours, peers = values["ours"], [value for system in PEERS if (value := values[system]) is not None]
    return _quotient(ours, min(peers, default=None))


def _quotient(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def _shown(value: float | None, form: str, factor: float = 1.0) -> str:
    show: Callable[[float], str] = form.format
    return "-" if value is None else show(value * factor)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dask_report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, default=PROJECT / "docs" / "dask.md")
    arguments = parser.parse_args()
    write_section(arguments.page, SECTION, section(read_records(arguments.results)))


if __name__ == "__main__":
    main()
