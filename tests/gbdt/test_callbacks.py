"""Callbacks see every iteration, and can save the model or end the run."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.evaluation import EvaluationSet
from dmlgbm.gbdt.callbacks import (
    Callback,
    TrainingState,
    checkpoint,
    log_evaluation,
    progress_bar,
    record_evaluation,
    time_limit,
)
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import NumericColumn, Table
from dmlgbm.gbdt.metrics import metrics_for
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.training import TrainingResult, train

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(300, 3))
TABLE = Table(tuple(NumericColumn(VALUES[:, k]) for k in range(3)), 300)
TARGET = VALUES[:, 0] + VALUES[:, 1] ** 2


def fit(*callbacks: Callback, evaluated: bool = True, **changes: Any) -> TrainingResult:
    options = {"initial_model": changes.pop("initial_model", None)}
    if evaluated:
        options["metrics"] = metrics_for(["rmse", "l1"], objective_alpha=0.5, eval_at=(1,))
        options["evaluation_sets"] = [
            EvaluationSet.whole(name, Rows(TABLE, target)) for name, target in (("a", TARGET), ("b", -TARGET))
        ]
    parameters = TrainParameters(
        **({"n_estimators": 7, "num_leaves": 5, "subsample": 0.8, "subsample_freq": 1} | changes)
    )
    settings = ObjectiveSettings("regression")
    return train(parameters, BinningParameters(), Rows(TABLE, TARGET), settings, callbacks=callbacks, **options)


def test_a_callback_sees_every_iteration_and_the_model_so_far() -> None:
    seen: list[tuple[int, int, int, list[str]]] = []

    def watch(state: TrainingState) -> None:
        names = [f"{e.set_name} {e.metric}" for e in state.evaluations]
        seen.append((state.iteration, state.n_iterations, state.booster_so_far().n_iterations, names))

    fit(watch)
    names = ["a rmse", "a l1", "b rmse", "b l1"]
    assert seen == [(k, 7, k, names) for k in range(1, 8)]


def test_a_model_taken_early_does_not_grow_with_the_run() -> None:
    taken: list[Booster] = []
    result = fit(lambda state: taken.append(state.booster_so_far()))
    assert [booster.n_iterations for booster in taken] == list(range(1, 8))
    assert taken[-1].to_bytes() == result.booster.to_bytes()
    assert taken[2].to_bytes() == result.booster.first(3).to_bytes()


def test_any_callback_can_end_the_run() -> None:
    def stop_at_three(state: TrainingState) -> None:
        if state.iteration == 3:
            state.stop("three are enough")

    result = fit(stop_at_three)
    assert result.booster.n_iterations == 3
    assert result.stop_reason == "three are enough"
    assert fit().stop_reason is None


def test_callbacks_after_the_one_that_stops_still_run() -> None:
    reasons: list[str | None] = []
    fit(lambda state: state.stop("at once"), lambda state: reasons.append(state.stop_reason))
    assert reasons == ["at once"]


def test_record_evaluation_keeps_what_the_result_has() -> None:
    record: dict[str, dict[str, list[float]]] = {}
    result = fit(record_evaluation(record))
    assert record == result.evaluations
    assert set(record) == {"a", "b"}
    assert {len(values) for metrics in record.values() for values in metrics.values()} == {7}


def test_log_evaluation_prints_every_period_and_the_end() -> None:
    stream = io.StringIO()
    result = fit(log_evaluation(3, stream))
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["[3]", "[6]", "[7]"]
    assert f"a rmse {result.evaluations['a']['rmse'][2]:.6g}" in lines[0]


def test_log_evaluation_writes_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    fit(log_evaluation(7))
    captured = capsys.readouterr()
    assert captured.err.startswith("[7] ")
    assert captured.out == ""


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        return True


def test_progress_bar_stays_on_one_line_and_ends_it() -> None:
    stream = Terminal()
    fit(progress_bar(stream, width=7))
    text = stream.getvalue()
    assert text.count("\r") == 7
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert "█·····" in text.split("\r")[1]
    assert "█" * 7 in text.split("\r")[-1]
    assert "7/7" in text


def test_progress_bar_ends_its_line_when_the_run_is_stopped() -> None:
    stream = Terminal()
    fit(lambda state: state.stop("enough"), progress_bar(stream))
    assert stream.getvalue().endswith("\n")


def test_progress_bar_writes_ten_plain_lines_where_nobody_watches() -> None:
    stream = io.StringIO()
    fit(progress_bar(stream), n_estimators=40)
    assert not set("\r\x1b█") & set(stream.getvalue())
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == [f"{4 * k}/40" for k in range(1, 11)]


def test_time_limit_stops_after_the_first_iteration_that_ends_late() -> None:
    result = fit(time_limit(0.0))
    assert result.booster.n_iterations == 1
    assert result.stop_reason is not None
    assert "time limit" in result.stop_reason
    assert fit(time_limit(3600.0)).booster.n_iterations == 7


def test_checkpoint_saves_every_so_many_iterations_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "model"
    saved: list[int] = []

    def look(state: TrainingState) -> None:
        saved.append(Booster.from_bytes(path.read_bytes()).n_iterations if path.exists() else 0)

    result = fit(checkpoint(path, every=3), look)
    assert saved == [0, 0, 3, 3, 3, 6, 7]
    assert path.read_bytes() == result.booster.to_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_training_resumed_from_a_checkpoint_ends_in_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def killed(state: TrainingState) -> None:
        if state.iteration == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint(path, every=4), killed, colsample_bytree=0.7)
    start = Booster.from_bytes(path.read_bytes())
    assert start.n_iterations == 4
    resumed = fit(initial_model=start, n_estimators=3, colsample_bytree=0.7)
    whole = fit(colsample_bytree=0.7)
    assert resumed.booster.to_bytes() == whole.booster.to_bytes()
    assert resumed.evaluations["a"]["l1"] == whole.evaluations["a"]["l1"][4:]


def test_a_callback_that_raises_leaves_no_thread_behind() -> None:
    def fail(state: TrainingState) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fit(fail, n_threads=2)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("dmlgbm")]


def test_without_evaluation_sets_callbacks_see_none() -> None:
    stream = io.StringIO()
    result = fit(log_evaluation(7, stream), evaluated=False, early_stopping_rounds=1)
    assert stream.getvalue() == "[7] \n"
    assert result.evaluations == {}
    assert result.best_iteration is None
