"""The benchmarks of neural models run from end to end on a table like mnist, but small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from benchmarks import bench_neural, bench_strategies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of 8 x 8 pixels in the corner of pictures of 28 x 28."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = np.zeros((600, 784), np.uint8)
    pictures[:, :64] = pixels[:600] * 15
    table = pd.DataFrame(pictures, columns=[f"pixel{place}" for place in range(784)])
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
    folder: Path, measurement: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_strategies, "GRADIENT_SECONDS", 0.001)
    bench_strategies.main(["--data-dir", str(folder), "--only", measurement, "--most-epochs", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{measurement}: ")
    assert len(lines) > 2
    assert all("accuracy" in line for line in lines[1:])
