"""What one measurement says, and how it is written: one JSON object a line.

A result file may hold several runs. Figures are compared within one run only, because machines change between runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.tasks import Task

Status = Literal["ok", "refused", "crashed", "timeout"]
# What a measurement is made for: seconds, with the rest beside them; memory of many rows; accuracy on another split.
Purpose = Literal["time", "memory", "accuracy"]
Record = dict[str, Any]

BENCHMARK = "benchmark"
GRID = "grid"
PREDICTION = "prediction"
GROWTH = "growth"
CHECK = "check"
SMALL_DATA = "small_data"
STARTUP = "startup"
ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Figures:
    """The numbers of one successful measurement; the fastest of the repeated calls counts."""

    import_seconds: float
    load_seconds: float
    first_fit_seconds: float
    fit_seconds: float
    predict_seconds: float
    predict_row_seconds: float
    peak_bytes: int
    growth_bytes: int
    metric: float
    # Of all threads, during the fastest fit; None in files from before it was measured.
    fit_cpu_seconds: float | None = None


@dataclass(frozen=True)
class Measurement:
    """One process's answer: figures if it went well, else the reason why not.

    `foreign_cores` is how many cores other processes took meanwhile; see `environment.ForeignLoad`.
    """

    system: str
    dataset: str
    status: Status
    reason: str = ""
    task: Task | None = None
    train_rows: int = 0
    test_rows: int = 0
    n_features: int = 0
    threads: int = 0
    fits: int = 0
    purpose: Purpose = "time"
    foreign_cores: float = 0.0
    figures: Figures | None = None

    def to_record(self) -> Record:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Record) -> Measurement:
        known = {name: record[name] for name in cls.__dataclass_fields__ if name in record}
        if known.get("figures") is not None:
            known["figures"] = Figures(**known["figures"])
        return cls(**known)


class ResultFile:
    """Appends the records of one run to a file, each written out at once so that a killed run keeps what it has."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.run = run

    def append(self, kind: str, record: Record) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "run": self.run, **record}) + "\n")


def read_records(paths: Iterable[Path]) -> list[Record]:
    """All records of the files in order; a broken line is an error that names it."""
    records: list[Record] = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not a JSON object ({error.msg})") from error
    return records
