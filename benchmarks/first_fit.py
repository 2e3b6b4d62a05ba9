"""The first fit of a new process, import included: what a user waits for after starting Python."""

from __future__ import annotations

import argparse
import json
from time import perf_counter

from benchmarks.generated import N_SMALL_FEATURES, N_SMALL_ROWS, generate_rows
from benchmarks.peers import SYSTEMS, Settings
from benchmarks.record_arguments import add_record_arguments, record_from_arguments


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_fit", description=__doc__)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    add_record_arguments(parser, Settings)
    arguments = parser.parse_args()
    features, target = generate_rows(N_SMALL_ROWS, N_SMALL_FEATURES, seed=1)
    started = perf_counter()
    model = SYSTEMS[arguments.system].build(record_from_arguments(arguments, Settings), "binary")
    imported = perf_counter()
    model.fit(features, target)
    fitted = perf_counter()
    print(json.dumps({"import_seconds": imported - started, "fit_seconds": fitted - imported}))


if __name__ == "__main__":
    main()
