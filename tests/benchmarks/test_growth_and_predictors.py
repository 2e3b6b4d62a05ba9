"""Growth and prediction benchmarks: points, tables and the picture. Nothing is timed here."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="the benchmark's tables are pandas frames")

from benchmarks import bench_growth, bench_predictors, datasets, generated_tables
from benchmarks.generated_tables import GeneratedTable
from benchmarks.measure import Method, measure
from benchmarks.peers import OURS, Settings
from benchmarks.predictors import EVERY_SYSTEM, PREDICTORS
from benchmarks.records import GROWTH, PREDICTION, Figures, Measurement, Record
from benchmarks.summary import compare

FIGURES = Figures(1.0, 0.1, 2.0, 1.0, 0.01, 0.0005, 200 * 2**20, 20 * 2**20, 0.9, 1.8)


def measured(kind: str, system: str, dataset: str, num_leaves: int = 63, **figures: float) -> Record:
    numbers = replace(FIGURES, **figures)  # type: ignore[arg-type]
    measurement = Measurement(system, dataset, "ok", task="binary", figures=numbers)
    settings = asdict(Settings(num_leaves=num_leaves))
    return {"kind": kind, "run": "2026-01-01", "settings": settings, **measurement.to_record()}


def test_every_axis_varies_its_own_number_only() -> None:
    asked = bench_growth.points(63)
    assert {point.axis for point in asked} == set(bench_growth.UNCHANGED)
    for axis in ("rows", "columns", "classes"):
        tables = [generated for generated in asked if generated.axis == axis]
        others = {replace(bench_growth.GROWING_TABLES[point.dataset], **{axis: 2}) for point in tables}
        assert len(others) == 1
        assert len({point.value for point in tables}) == len(tables) > 3


def test_growth_takes_the_fastest_turn_and_draws_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [
        measured(GROWTH, system, "rows_10000", fit_seconds=s) for system in (OURS, "lightgbm") for s in (3.0, 2.0)
    ]
    records += [measured(GROWTH, OURS, "rows_100000", num_leaves=leaves, fit_seconds=leaves) for leaves in (7, 63)]
    seconds = bench_growth.fastest(records, bench_growth.points(63))
    assert seconds["rows"] == {OURS: {10_000: 2.0, 100_000: 63.0}, "lightgbm": {10_000: 2.0}}
    assert seconds["leaves"] == {OURS: {7: 7.0, 63: 63.0}}
    assert "| rows 100,000 | 63 | - |" in bench_growth.render(seconds)
    pictures = [tmp_path / "growth.svg", tmp_path / "again" / "growth.svg"]
    for picture in pictures:
        bench_growth.draw(seconds, picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_prediction_is_compared_with_the_fastest_of_all_others() -> None:
    seconds = {OURS: 0.01, "lightgbm": 0.08, "onnxruntime": 0.02, "lleaves": 0.005}
    records = [measured(PREDICTION, system, "small_5", predict_seconds=s) for system, s in seconds.items()]
    table = bench_predictors.render(compare(records, PREDICTION))
    assert "| table | DMLGBM | LightGBM | onnxruntime | lleaves | ratio |" in table
    assert "| small_5 | 10 | 80 | 20 | 5 | 2 |" in table


@pytest.mark.medium
@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_exported_models_predict_what_lightgbm_predicts(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip(name)
    if name == "onnxruntime":
        pytest.importorskip("onnxmltools")
    if name == "lleaves" and not hasattr(pytest.importorskip("llvmlite.binding"), "PassManagerBuilder"):
        pytest.skip("lleaves needs llvmlite below 0.45")
    monkeypatch.setattr(datasets, "GENERATED_TABLES", {"tiny": GeneratedTable(300, 5, classes)})
    monkeypatch.setattr(generated_tables, "KEPT_TABLES", tmp_path)
    settings = Settings(n_estimators=3, num_leaves=5, threads=1)
    method = Method(fits=1, arrays=True, predict_seconds=0.0)
    metrics: list[float] = []
    for system in ("lightgbm", name):
        answer = measure(system, "tiny", None, settings, method)
        assert answer.figures is not None, answer.reason
        metrics.append(answer.figures.metric)
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-5)
    assert EVERY_SYSTEM[name].title == name
