"""Pass or fail: the measured figures against what the project promises on two cores.

What was not measured has not passed. Ratios are ours over the best peer of the same data set and run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.datasets import HEADLINE_DATASETS
from benchmarks.peers import OURS
from benchmarks.records import BENCHMARK, SMALL_DATA, STARTUP, Record
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

LEAST_REPETITIONS = 3
N_TREES, N_LEAVES = 50, 63
FIT_GEOMETRIC_MEAN, FIT_WORST = 0.7, 1.0
PREDICT_GEOMETRIC_MEAN = 1.0
PEAK_MEMORY_GEOMETRIC_MEAN = 1.0
SMALL_DATA_RATIO = 1.0
COLD_SECONDS, WARM_SECONDS = 20.0, 2.5
ACCURACY_PEERS = ("lightgbm", "xgboost")
AUC_LOSS, RELATIVE_LOSS = 0.001, 0.005


@dataclass(frozen=True)
class Verdict:
    target: str
    limit: float | None
    value: float | None
    passed: bool
    detail: str = ""


def judge(records: list[Record]) -> list[Verdict]:
    """Every target that a benchmark can show."""
    comparisons = compare(records, BENCHMARK)
    return [
        _conditions(comparisons),
        _ratio_mean("fit time, geometric mean", FIT_GEOMETRIC_MEAN, comparisons, fit_seconds),
        _worst_ratio("fit time, worst set", FIT_WORST, comparisons, fit_seconds),
        _accuracy(comparisons),
        _ratio_mean("predict time, geometric mean", PREDICT_GEOMETRIC_MEAN, comparisons, predict_seconds),
        _ratio_mean("peak memory, geometric mean", PEAK_MEMORY_GEOMETRIC_MEAN, comparisons, peak_bytes),
        _ratio_mean("memory growth in fit, geometric mean", PEAK_MEMORY_GEOMETRIC_MEAN, comparisons, growth_bytes),
        _small_data(compare(records, SMALL_DATA)),
        _cold_start(records),
        _warm_start(records),
    ]


def _conditions(comparisons: Mapping[str, Comparison]) -> Verdict:
    """The terms under which the figures count: settings and repetitions."""
    target = f"{N_TREES} trees, {N_LEAVES} leaves, at least {LEAST_REPETITIONS} undisturbed repetitions"
    headline = [comparisons[dataset] for dataset in HEADLINE_DATASETS if dataset in comparisons]
    broken = [
        comparison.dataset
        for comparison in headline
        if (comparison.settings["n_estimators"], comparison.settings["num_leaves"]) != (N_TREES, N_LEAVES)
        or any(figures.quiet_repetitions < LEAST_REPETITIONS for figures in comparison.figures.values())
    ]
    fewest = min((f.quiet_repetitions for comparison in headline for f in comparison.figures.values()), default=None)
    detail = f"not met on {', '.join(broken)}" if broken else ""
    return Verdict(target, LEAST_REPETITIONS, fewest, bool(headline) and not broken, detail)


def _headline_ratios(comparisons: Mapping[str, Comparison], quantity: Quantity) -> tuple[dict[str, float], list[str]]:
    ratios: dict[str, float] = {}
    for dataset in HEADLINE_DATASETS:
        ratio = comparisons[dataset].ratio(quantity) if dataset in comparisons else None
        if ratio is not None:
            ratios[dataset] = ratio
    return ratios, [dataset for dataset in HEADLINE_DATASETS if dataset not in ratios]


def _ratio_mean(target: str, limit: float, comparisons: Mapping[str, Comparison], quantity: Quantity) -> Verdict:
    ratios, missing = _headline_ratios(comparisons, quantity)
    if not ratios:
        return _not_measured(target, limit, missing)
    mean = geometric_mean(list(ratios.values()))
    above = [f"{dataset} {ratio:.2f}" for dataset, ratio in ratios.items() if ratio > limit]
    remarks = [f"above the limit: {', '.join(above)}"] if above else []
    return Verdict(target, limit, mean, mean <= limit and not missing, _detail(remarks, missing))


def _worst_ratio(target: str, limit: float, comparisons: Mapping[str, Comparison], quantity: Quantity) -> Verdict:
    ratios, missing = _headline_ratios(comparisons, quantity)
    if not ratios:
        return _not_measured(target, limit, missing)
    worst = max(ratios, key=lambda dataset: ratios[dataset])
    return Verdict(target, limit, ratios[worst], ratios[worst] <= limit and not missing, _detail([worst], missing))


def accuracy_loss(comparison: Comparison) -> tuple[float, float] | None:
    """How far ours is behind the better of LightGBM and XGBoost, and how far it may be; negative is ahead."""
    peers = [comparison.figures[peer].metric for peer in ACCURACY_PEERS if peer in comparison.figures]
    metric = comparison.metric
    if metric is None or not peers or OURS not in comparison.figures:
        return None
    ours = comparison.figures[OURS].metric
    if metric.higher_is_better:
        return max(peers) - ours, AUC_LOSS
    return ours / min(peers) - 1.0, RELATIVE_LOSS


def _accuracy(comparisons: Mapping[str, Comparison]) -> Verdict:
    target = f"accuracy within {AUC_LOSS} AUC, {RELATIVE_LOSS:.1%} log loss or RMSE of LightGBM and XGBoost"
    losses = {
        dataset: loss
        for dataset in HEADLINE_DATASETS
        if dataset in comparisons and (loss := accuracy_loss(comparisons[dataset])) is not None
    }
    missing = [dataset for dataset in HEADLINE_DATASETS if dataset not in losses]
    if not losses:
        return _not_measured(target, 1.0, missing)
    shares = {dataset: loss / allowed for dataset, (loss, allowed) in losses.items()}
    worst = max(shares, key=lambda dataset: shares[dataset])
    remarks = [f"share of the allowance used by {worst}"]
    return Verdict(target, 1.0, shares[worst], shares[worst] <= 1.0 and not missing, _detail(remarks, missing))


def _small_data(comparisons: Mapping[str, Comparison]) -> Verdict:
    target = "small data, fit time over LightGBM"
    figures = {} if "generated" not in comparisons else comparisons["generated"].figures
    if OURS not in figures or RIVAL not in figures:
        return _not_measured(target, SMALL_DATA_RATIO, ["generated"])
    ratio = figures[OURS].fit_seconds / figures[RIVAL].fit_seconds
    quiet = min(figures[system].quiet_repetitions for system in (OURS, RIVAL)) >= LEAST_REPETITIONS
    detail = "" if quiet else f"fewer than {LEAST_REPETITIONS} undisturbed repetitions"
    return Verdict(target, SMALL_DATA_RATIO, ratio, quiet and ratio <= SMALL_DATA_RATIO, detail)


def startup_records(records: Iterable[Record], system: str, scenario: str) -> list[Record]:
    """The successful starts of the newest run that measured any."""
    starts = [record for record in records if record["kind"] == STARTUP]
    newest = max((record["run"] for record in starts), default="")
    wanted = (newest, system, scenario, "ok")
    return [r for r in starts if (r["run"], r["system"], r["scenario"], r["status"]) == wanted]


def _cold_start(records: list[Record]) -> Verdict:
    target = "cold first fit with a message while compiling, s"
    starts = startup_records(records, OURS, COLD)
    if not starts:
        return _not_measured(target, COLD_SECONDS, ["cold start"])
    seconds, messages = starts[0]["process_seconds"], starts[0]["messages"]
    return Verdict(
        target, COLD_SECONDS, seconds, seconds <= COLD_SECONDS and bool(messages), "" if messages else "no message seen"
    )


def _warm_start(records: list[Record]) -> Verdict:
    target = "warm first fit of a new process, import included, s"
    seconds = [start["process_seconds"] for start in startup_records(records, OURS, WARM)]
    if not seconds:
        return _not_measured(target, WARM_SECONDS, ["warm start"])
    return Verdict(target, WARM_SECONDS, min(seconds), min(seconds) <= WARM_SECONDS)


def _not_measured(target: str, limit: float, missing: list[str]) -> Verdict:
    return Verdict(target, limit, None, False, _detail([], missing))


def _detail(remarks: list[str], missing: list[str]) -> str:
    return "; ".join(remarks + ([f"not measured: {', '.join(missing)}"] if missing else []))
