"""The check against an earlier commit: what counts as worse, that it looks twice, and that both states really run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="the benchmark's tables are pandas frames")

from benchmarks import bench_check, earlier_sources
from benchmarks.bench_check import EARLIER, NOW, Check, run_check
from benchmarks.peers import OURS, Settings
from benchmarks.records import Figures, Measurement, ResultFile, read_records
from benchmarks.run import HERE, PROJECT, Place, RunSettings

FIGURES = Figures(1.0, 0.1, 2.0, 1.0, 0.01, 0.0005, 200 * 2**20, 20 * 2**20, 0.9, 1.8)
OLD = Place(folders=(Path("old"),))


def make_check(monkeypatch: pytest.MonkeyPatch, folder: Path, figures_now: Callable[[int], Figures]) -> Check:
    """A check whose checkout is measured by a function of the turn, warming up being turn 0."""
    turns = [0]

    def measure(system: str, dataset: str, run: RunSettings) -> Measurement:
        if run.places[system] == OLD:
            return Measurement(OURS, dataset, "ok", figures=FIGURES)
        turns[0] += 1
        return Measurement(OURS, dataset, "ok", figures=figures_now(turns[0] - 1))

    monkeypatch.setattr(bench_check, "measure_in_new_process", measure)
    run = RunSettings(Settings(), bench_check.METHOD, None, repeat=3, timeout=1.0)
    return Check({EARLIER: OLD, NOW: HERE}, run, ResultFile(folder / "results.jsonl", "today"))


def test_what_stays_slow_is_worse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = make_check(monkeypatch, tmp_path, lambda turn: replace(FIGURES, predict_seconds=0.012))
    (worse,) = run_check(check, ["small_5"], 0.1)
    assert (worse.table, worse.figure) == ("small_5", "predict, s")
    assert worse.ratio == pytest.approx(1.2)
    assert len(check.measured["small_5"][NOW]) == 9
    assert "| small_5 | predict, s | 0.01 | 0.012 | **1.20** |" in bench_check.render(check.changes(["small_5"]), 0.1)


def test_what_was_slow_once_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = make_check(monkeypatch, tmp_path, lambda turn: replace(FIGURES, fit_seconds=1.5 if turn < 4 else 1.0))
    assert run_check(check, ["small_5"], 0.1) == []
    assert len(check.measured["small_5"][NOW]) == 9


def test_a_small_difference_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = make_check(monkeypatch, tmp_path, lambda turn: replace(FIGURES, fit_seconds=1.05, growth_bytes=31 * 2**20))
    assert run_check(check, ["small_5"], 0.1) == []
    assert len(check.measured["small_5"][NOW]) == 3
    assert len(read_records([tmp_path / "results.jsonl"])) == 6


def test_a_state_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = make_check(monkeypatch, tmp_path, lambda turn: FIGURES)
    refused = Measurement(OURS, "small_5", "refused", reason="ValueError: no")
    monkeypatch.setattr(bench_check, "measure_in_new_process", lambda *asked: refused)
    assert run_check(check, ["small_5"], 0.1) == []
    assert check.failures == ["small_5, earlier: refused: ValueError: no"]


@pytest.mark.processes
@pytest.mark.skipif(
    not (PROJECT / ".git").exists() or shutil.which("git") is None, reason="the sources are not a git checkout"
)
def test_an_earlier_commit_runs_from_its_own_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(earlier_sources, "EXPORTS", tmp_path / "exports")
    place = earlier_sources.place_of(earlier_sources.commit_of("HEAD"))
    earlier_sources.check_place(place)
    assert not (place.folders[0] / "benchmarks").exists()
    with pytest.raises(earlier_sources.NoSuchCommitError, match="pass --against"):
        earlier_sources.commit_of("no-such-commit")
    with pytest.raises(earlier_sources.NoSuchCommitError, match="was imported from"):
        earlier_sources.check_place(replace(place, folders=(tmp_path / "empty", *place.folders)))
