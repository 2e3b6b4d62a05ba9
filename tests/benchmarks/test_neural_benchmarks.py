"""The benchmarks of neural models run from end to end on a table like mnist, but small."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from benchmarks import bench_neural, bench_strategies, neural_report
from benchmarks.bench_neural import NEURAL
from benchmarks.bench_strategies import STRATEGY
from benchmarks.marked_section import markers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of 8 x 8 pixels in the corner of pictures of 28 x 28."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = np.zeros((600, 784), np.uint8)
    pictures[:, :64] = pixels[:600] * 15
    table = pd.DataFrame(pictures, columns=[f"pixel{position}" for position in range(784)])
    path = tmp_path_factory.mktemp("data")
    table.assign(label=labels[:600], split=(np.arange(600) % 6 == 0).astype(int)).to_parquet(path / "mnist.parquet")
    return path


def test_systems_are_compared_and_those_that_cannot_train_say_why(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["scikit-learn", "alone", "allreduce", "parameter_server", "top_k", "admm"]
    out = tmp_path / "neural.jsonl"
    options = ["--data-dir", str(folder), "--out", str(out), "--epochs", "2", "--batch-size", "50"]
    bench_neural.main([*options, "--backend", "threads", "--target", "0.2", "--systems", *systems])
    printed = capsys.readouterr().out
    assert "admm: strategy 'admm' trains linear models" in printed
    records = [json.loads(line) for line in out.read_text().splitlines()]
    figures = {record["system"]: record for record in records if "system" in record}
    assert list(figures) == systems[:-1]
    assert all(each["epochs"] == 2 and each["best_accuracy"] > 0.2 for each in figures.values())
    assert figures["top_k"]["megabytes"] < 0.1 * figures["allreduce"]["megabytes"]


@pytest.mark.slow
@pytest.mark.parametrize("measurement", bench_strategies.MEASUREMENTS)
def test_measurements_of_strategies_run(
    folder: Path,
    measurement: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench_strategies, "GRADIENT_SECONDS", 0.001)
    out = tmp_path / "neural.jsonl"
    bench_strategies.main(["--data-dir", str(folder), "--only", measurement, "--most-epochs", "2", "--out", str(out)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{measurement}: ")
    assert len(lines) > 2
    assert all("accuracy" in line for line in lines[1:])
    figures = [each for each in map(json.loads, out.read_text().splitlines()) if each["kind"] == STRATEGY]
    assert [each["name"] for each in figures] == [run.name for run in bench_strategies.MEASUREMENTS[measurement]()]


def test_figures_are_written_into_the_pages(tmp_path: Path) -> None:
    for page, section in (("neural.md", neural_report.SPEED), ("neural_strategies.md", neural_report.STRATEGIES)):
        (tmp_path / page).write_text("before\n" + "\n".join(markers(section)) + "\nafter\n")
    speed = {"kind": NEURAL, "run": "2026-01-02T03", "ranks": 1, "epochs": 2, "batch_size": 200, "schedule": "constant"}
    speed |= {"accuracy": 0.97, "best_accuracy": 0.98, "target": 0.96, "seconds_to_target": 3.0, "megabytes": math.nan}
    stale = {"kind": STRATEGY, "run": "2026-01-02T04", "measurement": "stale", "most_stale": 3}
    stale |= {"epochs": 6, "accuracy": 0.975, "reached": True, "megabytes": 10.0}
    records: list[dict[str, object]] = [
        {"kind": "environment", "run": "2026-01-02T04", "cpu": "a processor", "cores": 2, "python": "3.11"},
        {**speed, "system": "scikit-learn", "seconds": 4.0},
        {**speed, "system": "alone", "seconds": 9.0},  # measured again below
        {**speed, "system": "alone", "seconds": 2.0},
        {**stale, "name": "BSP", "seconds": 40.0},
        {**stale, "name": "SSP, staleness 500", "seconds": 16.0, "accuracy": 0.971},
        {**stale, "name": "ASP", "seconds": 16.0, "reached": False},
    ]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(record) + "\n" for record in records))
    neural_report.main([str(results), "--pages", str(tmp_path)])
    page = (tmp_path / "neural.md").read_text()
    assert "| alone | 1 | 2.00 | 0.50 | 97.00% | 98.00% | 96% | 3.00 | - |" in page
    assert "| scikit-learn | 1 | 4.00 | 1.00 |" in page
    page = (tmp_path / "neural_strategies.md").read_text()
    assert "| SSP, staleness 500 | 6 | 97.10% | 16.0 | 10.0 | -0.40 | 1.0 | 2.5 | 1.0 |" in page
    assert "| ASP | more than 6 | 97.50% | 16.0 | 10.0 | - | - | - | - |" in page
    assert "Measured 2026-01-02 on a processor, 2 cores, Python 3.11." in page
    assert page.startswith("before\n")
    assert page.endswith("after\n")
