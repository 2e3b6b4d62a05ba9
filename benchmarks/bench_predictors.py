"""Prediction alone: our model beside a LightGBM model of the same settings, in LightGBM, XGBoost, onnxruntime, lleaves.

Our models have no export yet, so the compiled predictors are given a LightGBM model that was trained on the same rows
with the same settings: as many trees of as many leaves. lleaves compiles with an llvmlite that numba's excludes (below
0.45), so it runs in an environment of its own, which `--lleaves-python` names.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.bench_grid import chosen_tables
from benchmarks.datasets import MissingDataError
from benchmarks.grid_tables import GRID_TABLES
from benchmarks.marked_section import markdown_table
from benchmarks.measure import Method
from benchmarks.peers import OURS
from benchmarks.predictors import EVERY_SYSTEM
from benchmarks.records import PREDICTION, read_records
from benchmarks.report import number, reasons
from benchmarks.run import Place, add_run_arguments, run_dataset, run_settings_from_arguments, start_results
from benchmarks.summary import Comparison, compare, geometric_mean

TABLES = ("small_5", "regression_37k", "few_values", "one_hot", "binary_116k", "california_housing", "adult")
LLEAVES = "lleaves"
METHOD = Method(fits=1, arrays=True)


def render(comparisons: Mapping[str, Comparison]) -> str:
    """Two Markdown tables: all test rows, and one row."""
    parts = [
        "Milliseconds to predict the test rows; the ratio is ours over the fastest other predictor.",
        _table(comparisons, "predict_seconds"),
        "Milliseconds to predict one row.",
        _table(comparisons, "predict_row_seconds"),
        *reasons("Without a figure:", comparisons, lambda comparison: comparison.refusals),
    ]
    return "\n\n".join(parts)


def _table(comparisons: Mapping[str, Comparison], figure: str) -> str:
    systems = [name for name in EVERY_SYSTEM if any(name in c.figures for c in comparisons.values())]
    rows: list[list[str]] = []
    ratios: list[float] = []
    for comparison in comparisons.values():
        seconds = {name: getattr(figures, figure) for name, figures in comparison.figures.items()}
        others = [value for name, value in seconds.items() if name != OURS]
        ratio = seconds[OURS] / min(others) if others and OURS in seconds else None
        ratios += [] if ratio is None else [ratio]
        cells = [number(seconds[name] * 1e3) if name in seconds else "-" for name in systems]
        rows.append([comparison.dataset, *cells, number(ratio)])
    mean = geometric_mean(ratios) if ratios else None
    rows.append(["**geometric mean**", *("" for _ in systems), number(mean)])
    return markdown_table(["table", *(EVERY_SYSTEM[name].title for name in systems), "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_predictors", description=__doc__)
    systems = (OURS, "lightgbm", "xgboost", "onnxruntime")
    add_run_arguments(parser, tuple(GRID_TABLES), systems, tuple(EVERY_SYSTEM))
    parser.set_defaults(fits=METHOD.fits)
    parser.add_argument("--lleaves-python", help="interpreter of an environment with lleaves, lightgbm and pandas")
    arguments = parser.parse_args()
    try:
        tables = chosen_tables(arguments, TABLES)
    except MissingDataError as error:
        parser.error(str(error))
    run = replace(
        run_settings_from_arguments(arguments), method=replace(METHOD, fits=arguments.fits), enlarge_small=False
    )
    running = list(arguments.systems)
    if arguments.lleaves_python is not None:
        run = replace(run, places={LLEAVES: Place(arguments.lleaves_python)})
        running += [] if LLEAVES in running else [LLEAVES]
    results = start_results(arguments.out)
    for name in tables:
        run_dataset(name, running, run, results, PREDICTION)
    records = [record for record in read_records([arguments.out]) if record["run"] == results.run]
    print(render(compare(records, PREDICTION)))


if __name__ == "__main__":
    main()
