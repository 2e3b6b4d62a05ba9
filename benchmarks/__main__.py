"""`python -m benchmarks --data-dir DIR` regenerates every published number: run, start-up, report."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.report import write_report
from benchmarks.run import PROJECT, add_run_arguments, chosen_datasets, plan_from_arguments, run_dataset, start_results
from benchmarks.startup import measure_startup


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add_run_arguments(parser)
    parser.add_argument("--readme", type=Path, default=PROJECT / "README.md")
    arguments = parser.parse_args()
    plan = plan_from_arguments(arguments)
    results = start_results(arguments.out)
    for dataset in chosen_datasets(arguments):
        run_dataset(dataset, arguments.systems, plan, results)
    measure_startup(results, plan.repeat, plan.settings.threads, plan.timeout)
    write_report([arguments.out], arguments.readme)


if __name__ == "__main__":
    main()
