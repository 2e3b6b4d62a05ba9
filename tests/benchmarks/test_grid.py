"""The grid's tables are what their records say, and its report shows what was measured. Nothing is timed here."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas", reason="the benchmark's tables are pandas frames")

from benchmarks import datasets, generated_tables, grid_report
from benchmarks.generated_tables import GeneratedTable, generate_table
from benchmarks.grid_tables import GENERATED_TABLES, GRID_TABLES, QUICK_TABLES
from benchmarks.measure import Method, measure
from benchmarks.peers import OURS, Settings
from benchmarks.records import GRID, Figures, Measurement, Record
from benchmarks.summary import compare, growth_bytes
from benchmarks.table_forms import as_arrays, repeat_rows, warm_up_rows

MEGABYTE = 2**20
TINY = {
    "continuous": GeneratedTable(300, 6, classes=0),
    "counts": GeneratedTable(300, 20, classes=5, form="counts"),
    "one_hot": GeneratedTable(300, 35, form="one_hot"),
    "few_values": GeneratedTable(300, 5, classes=3, values=4),
    "zeros": GeneratedTable(1000, 5, values=30, zeros=0.9),
}


@pytest.fixture
def tiny_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets, "GENERATED_TABLES", TINY)
    monkeypatch.setattr(generated_tables, "KEPT_TABLES", tmp_path / "tables")


def measured(system: str, purpose: str = "time", **figures: float) -> Record:
    numbers = Figures(1.0, 0.1, 2.0, 1.0, 0.01, 0.0005, 200 * MEGABYTE, 20 * MEGABYTE, 0.9, 1.8)
    numbers = replace(numbers, **figures)  # type: ignore[arg-type]
    measurement = Measurement(system, "small_5", "ok", task="binary", train_rows=10, n_features=5, figures=numbers)
    common = {"kind": GRID, "run": "2026-01-01", "settings": asdict(Settings())}
    return common | measurement.to_record() | {"purpose": purpose}


class TestTables:
    @pytest.mark.parametrize("name", TINY)
    def test_a_table_is_a_function_of_its_record_and_the_seed(self, name: str) -> None:
        features, target = generate_table(TINY[name])
        again, other = generate_table(TINY[name]), generate_table(TINY[name], seed=1)
        np.testing.assert_array_equal(features, again[0])
        np.testing.assert_array_equal(target, again[1])
        assert (features != other[0]).any()
        assert features.shape == (TINY[name].rows * 1.2, TINY[name].columns)
        assert (features == features.astype(np.float32)).all()

    def test_a_table_has_the_values_zeros_and_classes_of_its_record(self) -> None:
        assert set(np.unique(generate_table(TINY["counts"])[1])) == set(range(5))
        assert max(len(np.unique(column)) for column in generate_table(TINY["few_values"])[0].T) == 4
        assert np.mean(generate_table(TINY["zeros"])[0] == 0.0) == pytest.approx(0.9, abs=0.01)
        counts = generate_table(TINY["counts"])[0]
        assert (counts == np.rint(counts)).all()
        assert 0.7 < np.mean(counts == 0.0) < 0.95
        blocks = generate_table(TINY["one_hot"])[0]
        assert (blocks[:, 10:20].sum(axis=1) == 1.0).all()
        assert (blocks[:, 30:].sum(axis=1) == 1.0).all()

    def test_a_kept_table_is_the_one_that_was_made(self, tiny_tables: None) -> None:
        made, kept = (generated_tables.read_table(TINY["zeros"]) for _ in range(2))
        np.testing.assert_array_equal(made[0], kept[0])
        np.testing.assert_array_equal(kept[0], generate_table(TINY["zeros"])[0])
        assert len(list(generated_tables.KEPT_TABLES.glob("*/*"))) == 1

    def test_the_quick_choice_is_part_of_the_grid_and_names_are_unique(self) -> None:
        assert set(QUICK_TABLES) <= set(GRID_TABLES)
        assert not set(GENERATED_TABLES) & set(datasets.DATASET_NAMES)

    def test_another_split_has_other_rows(self, tiny_tables: None) -> None:
        first, second = (datasets.load_dataset("zeros", None, split) for split in (0, 1))
        assert first.train.features.shape == second.train.features.shape == (1000, 5)
        assert (first.test.target != second.test.target).any()


class TestForms:
    def test_frames_become_arrays_with_categories_as_numbers(self) -> None:
        import pandas as pd

        frame = pd.DataFrame({"word": pd.Categorical(["b", None, "a"]), "age": [1, 2, 3], "ill": [True, False, True]})
        split = datasets.Split(frame, np.zeros(3))
        arrays = as_arrays(datasets.Dataset("any", "binary", split, split))
        np.testing.assert_array_equal(arrays.test.features, [[1.0, 1.0, 1.0], [np.nan, 2.0, 0.0], [0.0, 3.0, 1.0]])

    def test_repeated_rows_differ_where_numbers_are_not_whole_and_queries_stay_apart(self) -> None:
        features = np.array([[0.5, 1.0], [np.nan, 2.0], [2.5, 0.0]])
        split = datasets.Split(features, np.arange(3.0), weight=np.ones(3), query=np.array([0, 0, 4]))
        repeated = repeat_rows(split, 3)
        assert isinstance(repeated.features, np.ndarray)
        np.testing.assert_allclose(repeated.features, np.tile(features, (3, 1)), atol=1e-4)
        assert len(np.unique(repeated.features[[0, 3, 6], 0])) == 3
        np.testing.assert_array_equal(repeated.features[:, 1], np.tile(features[:, 1], 3))
        np.testing.assert_array_equal(repeated.query, [0, 0, 4, 5, 5, 9, 10, 10, 14])
        assert repeated.weight is not None
        assert len(repeated.weight) == 9

    def test_rows_to_warm_up_with_come_from_the_whole_table(self) -> None:
        split = datasets.Split(np.arange(20_000.0).reshape(-1, 1), np.arange(20_000))
        assert warm_up_rows(split).target[-1] > 19_000
        assert len(warm_up_rows(split).target) == 5_000


class TestMeasurement:
    def test_a_fit_is_measured_with_its_cpu_time(self, tiny_tables: None) -> None:
        method = Method(fits=1, warm_up=True, predict_seconds=0.0, arrays=True, row_copies=2)
        answer = measure(OURS, "few_values", None, Settings(n_estimators=2, num_leaves=4, threads=1), method)
        assert (answer.status, answer.task, answer.train_rows, answer.test_rows) == ("ok", "multiclass", 600, 60)
        assert answer.figures is not None
        assert answer.figures.fit_cpu_seconds is not None
        assert answer.figures.fit_cpu_seconds > 0.0


class TestReport:
    def test_cpu_time_belongs_to_the_fastest_fit(self) -> None:
        records = [
            measured(OURS, fit_seconds=seconds, fit_cpu_seconds=cpu) for seconds, cpu in ((2.0, 2.2), (1.0, 1.9))
        ]
        assert compare(records, GRID)["small_5"].figures[OURS].cores_used == pytest.approx(1.9)

    def test_memory_and_accuracy_are_those_measured_for_their_own_sake(self) -> None:
        records = [measured(system) for system in (OURS, "lightgbm")]
        records += [measured(OURS, "memory", growth_bytes=30 * MEGABYTE, fit_seconds=0.1)]
        records += [measured("lightgbm", "memory", growth_bytes=60 * MEGABYTE)]
        records += [measured(OURS, "accuracy", metric=metric) for metric in (0.7, 0.8)]
        comparison = compare(records, GRID)["small_5"]
        assert comparison.ratio(growth_bytes) == pytest.approx(0.5)
        assert comparison.figures[OURS].fit_seconds == 1.0
        assert comparison.figures[OURS].metric == pytest.approx(0.75)
        assert comparison.figures["lightgbm"].metric == pytest.approx(0.9)

    def test_section_has_ratios_means_and_cores(self) -> None:
        records = [measured(OURS, fit_seconds=0.5, fit_cpu_seconds=0.9), measured("xgboost") | {"foreign_cores": 1.0}]
        section = grid_report.render(records)
        assert "| small_5 | 10 | 5 | 2 classes, continuous | 0.5 | 1 | 0.5 | 1 | 1 | 1 | 1.80 / 1.80 |" in section
        assert "| **geometric mean** |  |  |  |  |  | 0.5 |" in section
        assert "during 1 of 2 measurements" in section
