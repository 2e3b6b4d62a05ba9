"""The benchmark folder hangs together: every set is scored, every peer is mapped, the report says what was measured.

No peer is imported and nothing is timed here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

pytest.importorskip("pandas", reason="the benchmark's tables are pandas frames")

from benchmarks import datasets, report, targets
from benchmarks.peers import OURS, PEERS, SYSTEMS, Settings
from benchmarks.records import (
    BENCHMARK,
    ENVIRONMENT,
    SMALL_DATA,
    STARTUP,
    Figures,
    Measurement,
    Record,
    ResultFile,
    read_records,
)
from benchmarks.summary import compare, fit_seconds, growth_bytes, peak_bytes
from benchmarks.tasks import METRICS, Task

TASKS: tuple[Task, ...] = get_args(Task)
FIGURES = Figures(
    import_seconds=1.0,
    load_seconds=0.1,
    first_fit_seconds=2.0,
    fit_seconds=1.0,
    predict_seconds=0.01,
    predict_row_seconds=0.0005,
    peak_bytes=200 * 2**20,
    growth_bytes=20 * 2**20,
    metric=0.9,
)


def measured(system: str, dataset: str, task: Task = "binary", run: str = "2026-01-01", **figures: float) -> Record:
    numbers = replace(FIGURES, **figures)  # type: ignore[arg-type]
    measurement = Measurement(system, dataset, "ok", task=task, train_rows=1000, n_features=20, figures=numbers)
    return {"kind": BENCHMARK, "run": run, "settings": asdict(Settings()), **measurement.to_record()}


def refused(system: str, dataset: str, reason: str) -> Record:
    record = Measurement(system, dataset, "refused", reason=reason).to_record()
    return {"kind": BENCHMARK, "run": "2026-01-01", "settings": asdict(Settings()), **record}


def started(system: str, scenario: str, seconds: float, messages: list[str]) -> Record:
    common = {"kind": STARTUP, "run": "2026-01-01", "status": "ok"}
    return common | {"system": system, "scenario": scenario, "process_seconds": seconds, "messages": messages}


def complete_run(ours_fit_seconds: float = 0.5) -> list[Record]:
    """Every headline set three times by every system, and the start-up figures."""
    records: list[Record] = [
        measured(system, dataset, datasets.TABLES[dataset].task, fit_seconds=seconds)
        for dataset in datasets.HEADLINE_DATASETS
        for _ in range(3)
        for system, seconds in [(OURS, ours_fit_seconds), *((peer, 1.0) for peer in PEERS)]
    ]
    small = [measured(system, "generated") | {"kind": SMALL_DATA} for system in (OURS, "lightgbm") for _ in range(3)]
    starts = [started(OURS, "cold", 15.0, ["compiling kernels"]), started(OURS, "warm", 2.0, [])]
    return records + small + starts


def verdict(records: list[Record], words: str) -> targets.Verdict:
    (found,) = [verdict for verdict in targets.judge(records) if words in verdict.target]
    return found


class TestRegistry:
    def test_every_data_set_has_a_scored_task(self) -> None:
        assert set(METRICS) == set(TASKS)
        assert {source.task for source in datasets.TABLES.values()} == set(TASKS)

    def test_headline_sets_are_tables(self) -> None:
        assert set(datasets.HEADLINE_DATASETS) <= set(datasets.TABLES)
        assert len(set(datasets.DATASET_NAMES)) == len(datasets.DATASET_NAMES)

    def test_ranking_tables_name_their_queries_and_no_others_do(self) -> None:
        for name, source in datasets.TABLES.items():
            assert (source.query is not None) == (source.task == "ranking"), name

    def test_generated_rows_need_no_files(self) -> None:
        dataset = datasets.load_dataset("generated", None)
        assert dataset.train.features.shape == (1000, 20)
        assert set(np.unique(dataset.train.target)) == {0, 1}

    def test_missing_data_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(datasets.MissingDataError, match="pass --data-dir"):
            datasets.load_dataset("adult", None)
        with pytest.raises(datasets.MissingDataError, match=r"adult\.parquet does not exist"):
            datasets.load_dataset("adult", tmp_path)
        with pytest.raises(datasets.MissingDataError, match="unknown data set 'iris'"):
            datasets.load_dataset("iris", tmp_path)


class TestTables:
    """Small tables written as files of the registry's names."""

    def test_text_becomes_categories_shared_by_both_splits(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        import pandas as pd

        words = pd.Series(["a", None, "b", "c"] * 50, dtype="string")
        table = pd.DataFrame({"word": words, "age": range(200), "income": ["no", "yes"] * 100})
        table.to_parquet(tmp_path / "adult.parquet")
        dataset = datasets.load_dataset("adult", tmp_path)
        train, test = dataset.train.features["word"], dataset.test.features["word"]
        assert list(train.cat.categories) == list(test.cat.categories) == ["a", "b", "c"]
        assert train.isna().sum() + test.isna().sum() == 50
        assert len(train) + len(test) == 200
        assert list(dataset.train.features.columns) == ["word", "age"]

    def test_queries_stay_whole_and_ascend(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        import pandas as pd

        queries = np.arange(400) % 40
        pd.DataFrame({"qid": queries, "docid": "x", "label": 1, "f1": 0.5}).to_parquet(
            tmp_path / "letor_mq2007.parquet"
        )
        dataset = datasets.load_dataset("letor_mq2007", tmp_path)
        assert dataset.train.query is not None
        assert dataset.test.query is not None
        assert not set(dataset.train.query) & set(dataset.test.query)
        assert (np.diff(dataset.train.query) >= 0).all()
        assert list(dataset.train.features.columns) == ["f1"]


class TestPeers:
    @pytest.mark.parametrize("task", TASKS)
    @pytest.mark.parametrize("system", SYSTEMS)
    def test_every_setting_reaches_every_system(self, system: str, task: Task) -> None:
        plain = SYSTEMS[system].parameters(Settings(), task)
        # XGBoost can only count rows where every hessian is 1; HGB takes its threads from OpenMP.
        cannot = {"xgboost": set() if task == "regression" else {"min_child_samples"}, "hgb": {"threads"}}
        for name, value in asdict(Settings()).items():
            changed = SYSTEMS[system].parameters(replace(Settings(), **{name: value * 2 + 1}), task)
            assert (changed != plain) == (name not in cannot.get(system, set())), name

    def test_quantised_differs_from_default_in_one_parameter(self) -> None:
        default = SYSTEMS["lightgbm"].parameters(Settings(), "binary")
        quantised = SYSTEMS["lightgbm_quantised"].parameters(Settings(), "binary")
        assert quantised.items() - default.items() == {("use_quantized_grad", True)}

    def test_missing_categories_get_a_word_where_the_peer_needs_one(self) -> None:
        import pandas as pd

        table = pd.DataFrame({"word": pd.Categorical(["a", None, "b"]), "age": [1.0, np.nan, 2.0]})
        prepared = SYSTEMS["catboost"].prepare(table)
        assert list(prepared["word"]) == ["a", "(missing)", "b"]
        assert table["word"].isna().sum() == 1


class TestReport:
    def test_ratio_is_ours_over_the_best_peer_at_each_ones_best(self) -> None:
        records = [measured(OURS, "adult", fit_seconds=s) for s in (3.0, 1.0)]
        records += [measured("lightgbm", "adult", fit_seconds=s) for s in (2.0, 9.0)]
        records += [measured("xgboost", "adult", fit_seconds=5.0, peak_bytes=100 * 2**20, growth_bytes=0)]
        comparison = compare(records, BENCHMARK)["adult"]
        assert comparison.ratio(fit_seconds) == pytest.approx(0.5)
        assert comparison.ratio(peak_bytes) == pytest.approx(2.0)
        assert comparison.ratio(growth_bytes) == pytest.approx(20.0)

    def test_only_the_newest_run_of_a_data_set_counts(self) -> None:
        records = [measured(OURS, "adult", run="2026-01-02", fit_seconds=4.0)]
        records += [measured(system, "adult", run="2026-01-01", fit_seconds=1.0) for system in (OURS, "lightgbm")]
        comparison = compare(records, BENCHMARK)["adult"]
        assert comparison.figures[OURS].fit_seconds == 4.0
        assert comparison.ratio(fit_seconds) is None

    def test_section_shows_refusals_and_replaces_only_itself(self, tmp_path: Path) -> None:
        results = ResultFile(tmp_path / "results.jsonl", "2026-01-01")
        environment = {"cpu": "a processor", "cores": 2, "memory_bytes": 2**33, "platform": "Linux", "python": "3.11"}
        results.append(ENVIRONMENT, environment | {"versions": {"numpy": "2.4", "catboost": None}})
        for record in [*complete_run(), refused("hgb", "amazon_employee", "ValueError: cardinality <= 255")]:
            results.append(record["kind"], record)
        readme = tmp_path / "README.md"
        readme.write_text(f"before\n{report.BEGIN}\nstale words\n{report.END}\nafter\n")
        report.write_report([results.path], readme)
        page = readme.read_text()
        assert page.startswith("before\n")
        assert page.endswith("\nafter\n")
        assert "stale words" not in page
        assert "amazon_employee, scikit-learn HGB: refused: ValueError: cardinality <= 255" in page
        assert "a processor, 2 cores" in page
        for dataset in datasets.HEADLINE_DATASETS:
            assert f"| **{dataset}** | 1,000 x 20 |" in page
        report.write_report([results.path], readme)
        assert readme.read_text() == page

    def test_system_with_figures_is_not_said_to_have_none_when_a_later_repetition_did_not_finish(self) -> None:
        crashed = refused("xgboost", "adult", "exit status -15: no message") | {"status": "crashed"}
        records = [measured(system, "adult", fit_seconds=7.25) for system in (OURS, "xgboost")]
        section = report.render([*records, crashed, refused("hgb", "adult", "ValueError: text")])
        without, _, unfinished = section.partition(report.UNFINISHED)
        assert without.endswith("Without a figure:\n\n- adult, scikit-learn HGB: refused: ValueError: text\n\n")
        assert unfinished.strip() == "- adult, XGBoost: exit status -15: no message"
        assert "| **adult** | 7.25 | - | - | 7.25 | - | refused |" in without
        # Lists that follow each other need words between them, or Markdown makes one of them.
        assert "\n\n- " not in section.replace(":\n\n- ", "")

    def test_page_without_markers_is_left_alone(self) -> None:
        with pytest.raises(report.MissingMarkersError, match="benchmark:begin"):
            report.replace_section("a page\n", "section")

    def test_broken_line_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "results.jsonl"
        path.write_text(json.dumps({"kind": ENVIRONMENT}) + "\n{broken\n")
        with pytest.raises(ValueError, match=r"results\.jsonl, line 2"):
            read_records([path])


class TestTargets:
    def test_a_complete_run_passes(self) -> None:
        assert [verdict for verdict in targets.judge(complete_run()) if not verdict.passed] == []

    def test_nothing_measured_is_nothing_passed(self) -> None:
        assert not any(verdict.passed for verdict in targets.judge([]))

    def test_slow_fit_fails(self) -> None:
        assert not verdict(complete_run(ours_fit_seconds=0.8), "fit time, geometric mean").passed
        assert verdict(complete_run(ours_fit_seconds=0.8), "fit time, worst set").passed

    def test_a_missing_headline_set_fails(self) -> None:
        records = [record for record in complete_run() if record.get("dataset") != "mnist"]
        fit = verdict(records, "fit time, geometric mean")
        assert not fit.passed
        assert "not measured: mnist" in fit.detail

    def test_lower_accuracy_fails(self) -> None:
        records = [record for record in complete_run() if (record["system"], record.get("dataset")) != (OURS, "adult")]
        close = records + [measured(OURS, "adult", metric=0.9 - 0.0009)] * 3
        behind = records + [measured(OURS, "adult", metric=0.9 - 0.0011)] * 3
        assert verdict(close, "accuracy").passed
        assert not verdict(behind, "accuracy").passed

    def test_disturbed_repetitions_do_not_count(self) -> None:
        records = complete_run()
        records[0] = records[0] | {"foreign_cores": 1.0}
        assert not verdict(records, "undisturbed").passed

    def test_silent_compilation_fails(self) -> None:
        records = [record for record in complete_run() if record.get("scenario") != "cold"]
        assert not verdict([*records, started(OURS, "cold", 15.0, [])], "cold").passed
