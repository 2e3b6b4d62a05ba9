"""`python -m benchmarks --data-dir DIR` regenerates every published number: run, start-up, report."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.datasets import MissingDataError
from benchmarks.report import MissingMarkersError, replace_section, write_report
from benchmarks.run import (
    PROJECT,
    add_run_arguments,
    chosen_datasets,
    run_dataset,
    run_settings_from_arguments,
    start_results,
)
from benchmarks.startup import measure_startup


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add_run_arguments(parser)
    parser.add_argument("--readme", type=Path, default=PROJECT / "README.md")
    arguments = parser.parse_args()
    run = run_settings_from_arguments(arguments)
    try:
        datasets = chosen_datasets(arguments)
        # A page without markers must be known before the hours of measuring, not after.
        replace_section(arguments.readme.read_text(encoding="utf-8"), "")
    except (MissingDataError, MissingMarkersError, FileNotFoundError) as error:
        parser.error(str(error))
    results = start_results(arguments.out)
    for dataset in datasets:
        run_dataset(dataset, arguments.systems, run, results)
    measure_startup(results, run.repeat, run.settings.threads, run.timeout)
    write_report([arguments.out], arguments.readme)


if __name__ == "__main__":
    main()
