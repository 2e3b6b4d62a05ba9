"""Writes the README's benchmark section from result files, and prints a JSON summary of ratios and verdicts.

Only the text between the two markers is replaced.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import marked_section
from benchmarks.datasets import HEADLINE_DATASETS
from benchmarks.marked_section import MissingMarkersError, markdown_table, markers
from benchmarks.peers import OURS, SYSTEMS
from benchmarks.records import BENCHMARK, ENVIRONMENT, SMALL_DATA, Record, read_records
from benchmarks.run import DEFAULT_RESULTS, PROJECT
from benchmarks.startup import COLD, RIVAL, WARM
from benchmarks.summary import (
    Comparison,
    Quantity,
    compare,
    fit_seconds,
    geometric_mean,
    growth_bytes,
    peak_bytes,
    predict_seconds,
)
from benchmarks.targets import judge, startup_records

SECTION = "benchmark"
BEGIN, END = markers(SECTION)
__all__ = [
    "MissingMarkersError",
    "accuracy_lines",
    "environment_lines",
    "mean_ratio",
    "number",
    "reasons",
    "render",
    "replace_section",
    "summarise",
    "write_report",
]

RATIOS: dict[str, Quantity] = {
    "fit": fit_seconds,
    "predict": predict_seconds,
    "peak memory": peak_bytes,
    "memory growth": growth_bytes,
}
METRIC_SYSTEMS = (OURS, "lightgbm", "xgboost")
ABSENT = "-"
EXPLANATION = (
    "Ours over the best peer of each data set; below 1 is faster or smaller. Fastest of the repetitions, "
    "interleaved, each in its own process; memory growth of small sets is that of ten times their rows. Sets in bold "
    "are the ones the targets are stated for."
)
UNFINISHED = "Figures of the repetitions before one that did not finish:"


def render(records: list[Record]) -> str:
    """The whole section in Markdown."""
    comparisons = compare(records, BENCHMARK)
    parts = [
        EXPLANATION,
        _ratio_table(comparisons),
        *accuracy_lines(comparisons),
        "Seconds for a fit:",
        _system_table(comparisons, lambda comparison, system: comparison.figures[system].fit_seconds),
        "Cores used, which is CPU time over wall time of the fastest fit:",
        _system_table(comparisons, lambda comparison, system: comparison.figures[system].cores_used),
        "Milliseconds to predict one row:",
        _system_table(comparisons, lambda comparison, system: comparison.figures[system].predict_row_seconds * 1e3),
        *reasons("Without a figure:", comparisons, lambda comparison: comparison.refusals),
        *reasons(UNFINISHED, comparisons, lambda comparison: comparison.unfinished),
        *_startup_lines(records),
        *environment_lines(records, comparisons),
    ]
    return "\n\n".join(parts)


def _ratio_table(comparisons: Mapping[str, Comparison]) -> str:
    metric_titles = [SYSTEMS[system].title for system in METRIC_SYSTEMS]
    header = ["data set", "rows x columns", "fastest peer", *RATIOS, "metric", *metric_titles]
    rows = [_ratio_row(comparison) for comparison in comparisons.values()]
    headline = [comparisons[name] for name in HEADLINE_DATASETS if name in comparisons]
    rows.append(_mean_row("**geometric mean, bold sets**", headline))
    rows.append(_mean_row("geometric mean, all sets", list(comparisons.values())))
    return markdown_table(header, rows)


def _ratio_row(comparison: Comparison) -> list[str]:
    fastest = comparison.best_peer(fit_seconds)
    metrics = [
        f"{comparison.figures[system].metric:.5g}" if system in comparison.figures else ABSENT
        for system in METRIC_SYSTEMS
    ]
    return [
        _dataset_name(comparison),
        f"{comparison.train_rows:,} x {comparison.n_features:,}",
        ABSENT if fastest is None else SYSTEMS[fastest].title,
        *(number(comparison.ratio(quantity)) for quantity in RATIOS.values()),
        ABSENT if comparison.metric is None else comparison.metric.name,
        *metrics,
    ]


def accuracy_lines(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Over how many splits metrics are means, where accuracies were measured for their own sake."""
    splits = sorted({comparison.accuracy_splits for comparison in comparisons.values()} - {0})
    if not splits:
        return []
    return [f"Metrics are means over {' or '.join(map(str, splits))} splits and seeds."]


def _mean_row(title: str, comparisons: Sequence[Comparison]) -> list[str]:
    means = [number(mean_ratio(comparisons, quantity)) for quantity in RATIOS.values()]
    return [title, "", "", *means, "", *("" for _ in METRIC_SYSTEMS)]


def mean_ratio(comparisons: Iterable[Comparison], quantity: Quantity) -> float | None:
    """Over the data sets where both ours and a peer got through."""
    ratios = [ratio for comparison in comparisons if (ratio := comparison.ratio(quantity)) is not None]
    return geometric_mean(ratios) if ratios else None


def _system_table(comparisons: Mapping[str, Comparison], value: Callable[[Comparison, str], float | None]) -> str:
    rows = [
        [
            _dataset_name(comparison),
            *(
                number(value(comparison, system)) if system in comparison.figures else _outcome(comparison, system)
                for system in SYSTEMS
            ),
        ]
        for comparison in comparisons.values()
    ]
    return markdown_table(["data set", *(system.title for system in SYSTEMS.values())], rows)


def _outcome(comparison: Comparison, system: str) -> str:
    """In one word why a system has no figure."""
    return comparison.refusals.get(system, ABSENT).partition(":")[0]


def _dataset_name(comparison: Comparison) -> str:
    return f"**{comparison.dataset}**" if comparison.dataset in HEADLINE_DATASETS else comparison.dataset


def number(value: float | None) -> str:
    """Three digits, or a dash for what was not measured."""
    return ABSENT if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def reasons(
    heading: str, comparisons: Mapping[str, Comparison], given: Callable[[Comparison], Mapping[str, str]]
) -> list[str]:
    """A list under its heading of what systems said on which data sets; nothing if they said nothing."""
    lines = [
        f"- {comparison.dataset}, {SYSTEMS[system].title}: {reason}"
        for comparison in comparisons.values()
        for system, reason in given(comparison).items()
    ]
    return [f"{heading}\n\n" + "\n".join(lines)] if lines else []


def _startup_lines(records: list[Record]) -> list[str]:
    lines: list[str] = []
    small = compare(records, SMALL_DATA).get("generated")
    if small is not None and {OURS, RIVAL} <= set(small.figures):
        ours, rival = small.figures[OURS].fit_seconds, small.figures[RIVAL].fit_seconds
        lines.append(f"- 1,000 x 20 rows, 100 trees: {ours * 1e3:.0f} ms, LightGBM {rival * 1e3:.0f} ms.")
    for scenario, title in ((COLD, "empty kernel cache"), (WARM, "full kernel cache")):
        for system in (OURS, RIVAL):
            seconds = [start["process_seconds"] for start in startup_records(records, system, scenario)]
            if seconds:
                name = f"{SYSTEMS[system].title}, {title}" if system == OURS else SYSTEMS[system].title
                lines.append(f"- First fit of a new process, import included, {name}: {min(seconds):.1f} s.")
    return ["Small data and first fits:\n\n" + "\n".join(lines)] if lines else []


def environment_lines(records: list[Record], comparisons: Mapping[str, Comparison]) -> list[str]:
    """One sentence on machine, versions and settings of the newest run."""
    environments = [record for record in records if record["kind"] == ENVIRONMENT]
    if not environments:
        return []
    newest = max(environments, key=lambda record: str(record["run"]))
    versions = ", ".join(f"{package} {version}" for package, version in newest["versions"].items() if version)
    settings = {json.dumps(comparison.settings) for comparison in comparisons.values()}
    used = "; ".join(
        ", ".join(f"{name} {value}" for name, value in json.loads(variant).items()) for variant in sorted(settings)
    )
    sentence = (
        f"Measured {newest['run'][:10]} on {newest['cpu']}, {newest['cores']} cores, "
        f"{newest['memory_bytes'] / 2**30:.0f} GB, {newest['platform']}, Python {newest['python']}; {versions}. "
        f"Settings: {used}."
    )
    return [sentence]


def replace_section(page: str, section: str) -> str:
    """The page with the benchmark section exchanged."""
    return marked_section.replace_section(page, SECTION, section)


def summarise(records: list[Record]) -> Record:
    comparisons = compare(records, BENCHMARK)
    verdicts = judge(records)
    return {
        "passed": all(verdict.passed for verdict in verdicts),
        "targets": [asdict(verdict) for verdict in verdicts],
        "ratios": {
            name: {title: comparison.ratio(quantity) for title, quantity in RATIOS.items()}
            for name, comparison in comparisons.items()
        },
    }


def write_report(results: Sequence[Path], readme: Path) -> None:
    """Update the README, then print the summary."""
    records = read_records(results)
    page = replace_section(readme.read_text(encoding="utf-8"), render(records))
    readme.write_text(page, encoding="utf-8")
    print(json.dumps(summarise(records), indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, default=[DEFAULT_RESULTS], help="default: results.jsonl")
    parser.add_argument("--readme", type=Path, default=PROJECT / "README.md")
    arguments = parser.parse_args()
    write_report(arguments.results, arguments.readme)


if __name__ == "__main__":
    main()
