"""Histories can be seen: as tables, as pictures, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmlgbm.neural import DMLMLPClassifier, TrainingHistory, compare, plot_history
from dmlgbm.neural.comparison import Comparison, summarise


def history(scores: list[float], bytes_sent: float = 2e6) -> TrainingHistory:
    record = {"loss": 1.0, "steps": 5.0, "bytes_sent": bytes_sent, "wait_seconds": 0.5, "seconds": 2.0}
    record |= {"staleness_mean": 0.0, "staleness_max": 3.0}
    return TrainingHistory([{**record, "score": score, "ranks": [record, record]} for score in scores])


def test_a_row_tells_when_the_target_was_reached() -> None:
    row = summarise("one", history([0.5, 0.9, 0.8, 0.95]), 0.9)
    assert (row.seconds_to_target, row.megabytes_to_target) == (4.0, 4.0)
    assert (row.score, row.epochs, row.seconds, row.megabytes) == (0.95, 4, 8.0, 8.0)
    assert (row.waiting, row.staleness) == (0.25, 3.0)
    assert np.isnan(summarise("two", history([0.5]), 0.9).seconds_to_target)


def test_a_comparison_is_a_table_of_text() -> None:
    rows = (summarise("first", history([0.5, 0.9]), 0.9), summarise("second one", history([0.5]), 0.9))
    lines = str(Comparison(rows, {}, 0.9)).splitlines()
    assert lines[0].split()[:2] == ["strategy", "score"]
    assert len({len(line) for line in lines}) == 1
    assert lines[2].startswith("second one")
    assert lines[2].split()[-1] == "never"


def test_strategies_are_compared_by_training_them() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    estimator = DMLMLPClassifier((8,), max_epochs=2, random_state=0, n_ranks=2, batch_size=50)
    ways = {"plain": {}, "int8": {"compression": "int8"}}
    result = compare(estimator, X, y, ways, eval_set=(X, y), target=0.1)
    assert [row.name for row in result.rows] == ["plain", "int8"]
    assert result.rows[0].megabytes > result.rows[1].megabytes > 0
    assert result.to_dict()[0]["epochs"] == 2
    assert len(result.histories["int8"]["score"]) == 2


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    one, two = history([0.5, 0.9]), history([0.6, 0.7], bytes_sent=1e6)
    plot_history(one, tmp_path / "one.png")
    plot_history({"one": one, "two": two}, tmp_path / "two.png")
    rows = (summarise("one", one, 0.8), summarise("two", two, 0.8))
    Comparison(rows, {}, 0.8).plot(tmp_path / "bars.png")
    assert all((tmp_path / f"{name}.png").stat().st_size > 1000 for name in ("one", "two", "bars"))
    with pytest.raises(TypeError, match="history_"):
        plot_history("loss")


def test_pictures_of_one_rank_have_no_panels_about_others() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    watched = DMLMLPClassifier((4,), max_epochs=3, random_state=0).fit(X, y, eval_set=(X, y))
    alone = DMLMLPClassifier((4,), max_epochs=3, random_state=0).fit(X, y)
    losses = [("epoch", "loss"), ("seconds", "loss")]
    for model, more in ((alone, []), (watched, [("epoch", "score")])):
        axes = plot_history(model).axes
        assert [(axis.get_xlabel(), axis.get_ylabel()) for axis in axes] == [*losses, *more]
        assert all(len(axis.lines) == 1 and axis.get_visible() for axis in axes)
    together = [axis.get_xlabel() for axis in plot_history({"alone": alone, "two": history([0.5, 0.9])}).axes]
    assert together == ["epoch", "seconds", "megabytes sent by all ranks", "epoch"]


def test_a_target_score_ends_training() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    model = DMLMLPClassifier((8,), max_epochs=500, learning_rate=0.01, target_score=0.9, patience=None, random_state=0)
    model.fit(X, y, eval_set=(X, y))
    assert model.history_["score"][-1] >= 0.9
    assert all(score < 0.9 for score in model.history_["score"][:-1])
