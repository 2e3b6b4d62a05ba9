"""The grid: tables of many shapes, generated and shared, as float arrays; ours beside LightGBM and XGBoost in turns.

Every fit runs in a process of its own, which first warms up on a few rows. The tables are small enough for the whole
grid to take less than half an hour on two cores; `--quick` is a choice of them for five minutes, which leaves out the
memory of small tables on more rows. Printed are the Markdown tables; `--page` also writes them between the markers of a
page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import grid_report
from benchmarks.datasets import MissingDataError, locate_files
from benchmarks.grid_tables import GRID_TABLES, QUICK_TABLES
from benchmarks.marked_section import MissingMarkersError, replace_section, write_section
from benchmarks.measure import Method
from benchmarks.records import GRID, read_records
from benchmarks.run import add_run_arguments, run_dataset, run_settings_from_arguments, start_results

METHOD = Method(fits=1, fit_seconds=0.5, warm_up=True, predict_seconds=0.3, arrays=True)
SECTION = "grid"


def chosen_tables(arguments: argparse.Namespace, otherwise: Sequence[str]) -> list[str]:
    """Those asked for, which must be there; else those of the others that are there."""
    if arguments.datasets:
        for name in arguments.datasets:
            locate_files(name, arguments.data_dir)
        return list(arguments.datasets)
    found: list[str] = []
    for name in otherwise:
        try:
            locate_files(name, arguments.data_dir)
        except MissingDataError as error:
            print(f"left out: {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_grid", description=__doc__)
    add_run_arguments(parser, datasets=GRID_TABLES, systems=grid_report.GRID_SYSTEMS)
    parser.set_defaults(fits=METHOD.fits)
    parser.add_argument("--quick", action="store_true", help="a choice of tables that takes five minutes")
    parser.add_argument("--page", type=Path, help="page to write the tables into, between the markers of 'grid'")
    arguments = parser.parse_args()
    try:
        tables = chosen_tables(arguments, QUICK_TABLES if arguments.quick else GRID_TABLES)
        if arguments.page is not None:
            replace_section(arguments.page.read_text(encoding="utf-8"), SECTION, "")
    except (MissingDataError, MissingMarkersError, FileNotFoundError) as error:
        parser.error(str(error))
    method = replace(METHOD, fits=arguments.fits)
    run = replace(run_settings_from_arguments(arguments), method=method, enlarge_small=not arguments.quick)
    results = start_results(arguments.out)
    for name in tables:
        run_dataset(name, arguments.systems, run, results, GRID)
    section = grid_report.render([record for record in read_records([arguments.out]) if record["run"] == results.run])
    print(section)
    if arguments.page is not None:
        write_section(arguments.page, SECTION, section)


if __name__ == "__main__":
    main()
