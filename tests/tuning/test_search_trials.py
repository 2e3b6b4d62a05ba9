"""Searches that decide as results come in: Hyperband's brackets, Optuna's studies; and what is shown of a search."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import numpy as np
import pytest
from search_equality import require_same_results
from search_models import FussyTree, TracedTree
from sklearn import model_selection
from sklearn.dummy import DummyClassifier
from sklearn.metrics import balanced_accuracy_score, make_scorer
from sklearn.tree import DecisionTreeClassifier

from dmlgbm import GridSearchCV, HyperbandSearchCV, OptunaSearchCV, plot_search
from dmlgbm.tuning.asynchronous import Step, Trial
from dmlgbm.tuning.calls import FitCall
from dmlgbm.tuning.hyperband import Bracket, bracket_sizes
from dmlgbm.tuning.progress import ProgressLine

pytestmark = pytest.mark.processes

SPACE = {"max_depth": [1, 2, 3, 4, 5, 6], "random_state": [0, 1, 2, 3]}


def test_brackets_are_those_of_the_paper() -> None:
    assert bracket_sizes(1, 81, 3) == [
        (81, [1, 3, 9, 27, 81]),
        (34, [3, 9, 27, 81]),
        (15, [9, 27, 81]),
        (8, [27, 81]),
        (5, [81]),
    ]


def test_a_candidate_moves_up_once_it_is_among_the_best_of_its_rung() -> None:
    bracket = Bracket([1, 3], factor=3)
    trials = [Trial(number, {}) for number in range(6)]
    moved = [
        bracket.completed(Step(trial, 0, 1), score) for trial, score in zip(trials, [1, 5, 3, 4, 9, 2], strict=True)
    ]
    assert [[(step.trial.number, step.n_resources) for step in steps] for steps in moved] == [
        [],
        [],
        [(1, 3)],
        [],
        [(4, 3)],
        [],
    ]


@pytest.mark.parametrize("resource", ["n_samples", "min_samples_leaf"])
def test_hyperband_rows_are_what_scikit_learn_gives_for_the_same_steps(resource: str, rows: Any) -> None:
    X, y = rows
    model = DecisionTreeClassifier(random_state=0)
    options = {"max_resources": 9} if resource == "min_samples_leaf" else {"min_resources": 30}
    search = HyperbandSearchCV(
        model,
        SPACE,
        resource=resource,
        cv=3,
        random_state=0,
        scoring=["accuracy", "roc_auc"],
        refit="roc_auc",
        **options,
    ).fit(X, y)
    results = search.cv_results_
    for row in np.flatnonzero(results["n_resources"] == max(results["n_resources"])):
        grid = {name: [value] for name, value in results["params"][row].items()}
        alone = model_selection.GridSearchCV(model, grid, cv=3, scoring="roc_auc").fit(X, y)
        assert results["mean_test_roc_auc"][row] == alone.best_score_
    assert search.best_score_ == max(results["mean_test_roc_auc"][results["n_resources"] == search.max_resources_])
    assert sum(search.n_candidates_) == int(np.sum(results["iter"] == 0))
    assert search.search_report_.calls_answered == search.search_report_.calls_asked == 3 * len(results["params"])


def test_hyperband_on_workers_moves_up_enough_candidates(rows: Any) -> None:
    search = HyperbandSearchCV(TracedTree(), SPACE, cv=2, min_resources=30, random_state=0, n_jobs=2).fit(*rows)
    results = search.cv_results_
    for bracket, amounts in enumerate(search.n_resources_):
        in_bracket = results["bracket"] == bracket
        for rung in range(len(amounts) - 1):
            n_here = int(np.sum(in_bracket & (results["iter"] == rung)))
            assert int(np.sum(in_bracket & (results["iter"] == rung + 1))) >= math.floor(n_here / 3)


def test_an_optuna_study_is_asked_and_told(rows: Any) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {"max_depth": optuna.distributions.IntDistribution(1, 6)}
    for n_jobs in (1, 2):
        search = OptunaSearchCV(FussyTree(bad_depths=(4,)), space, n_trials=8, cv=2, n_jobs=n_jobs, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one depth fails
            search.fit(*rows)
        told = {trial.number: trial for trial in search.study_.trials}
        assert len(told) == 8
        for number, params, score in zip(
            search.cv_results_["trial"],
            search.cv_results_["params"],
            search.cv_results_["mean_test_score"],
            strict=True,
        ):
            assert told[number].params == params
            assert (told[number].value == pytest.approx(score)) if math.isfinite(score) else told[number].value is None
        assert search.best_score_ == np.nanmax(search.cv_results_["mean_test_score"])


def test_optunas_pruner_ends_trials(rows: Any) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=2))

    def space(trial: Any) -> dict[str, Any]:
        return {"max_depth": trial.suggest_int("max_depth", 1, 6)}

    search = OptunaSearchCV(
        TracedTree(), space, study=study, n_trials=12, resource="n_samples", min_resources=60, cv=2
    ).fit(*rows)
    states = [trial.state.name for trial in study.trials]
    assert "PRUNED" in states
    assert states.count("COMPLETE") == int(np.sum(search.cv_results_["n_resources"] == 300))
    with pytest.raises(ValueError, match='direction="maximize"'):
        OptunaSearchCV(TracedTree(), space, study=optuna.create_study(), cv=2).fit(*rows)


def test_the_progress_line_shows_fits_best_score_and_time() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream)
    for fold, score in enumerate([0.5, 0.75]):
        call = FitCall(fold, {}, "", 0, fold, {"split_progress": (fold, 2)})
        line.update(call, {"test_scores": score}, fold + 1, 2)
    line.close()
    assert stream.getvalue().splitlines()[-1].startswith("2/2 fits, best score 0.625, ")


def test_searches_are_quiet_unless_asked(rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = GridSearchCV(TracedTree(), {"max_depth": [1, 2]}, cv=2).fit(*rows)
    assert capsys.readouterr() == ("", "")
    shown = GridSearchCV(TracedTree(), {"max_depth": [1, 2]}, cv=2, progress=True).fit(*rows)
    assert "4/4 fits, best score" in capsys.readouterr().err
    require_same_results(shown, quiet)


def test_plots_have_a_panel_for_each_parameter_and_one_for_time(rows: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    grid = {"max_depth": [1, 2, 3], "random_state": [0], "pause": [0.0, 0.001]}
    figure = plot_search(GridSearchCV(TracedTree(), grid, cv=2).fit(*rows))
    labels = [axis.get_xlabel() for axis in figure.axes if axis.get_visible()]
    assert labels == ["max_depth", "pause", "seconds"]


@pytest.mark.parametrize(
    ("scoring", "name"),
    [
        (None, "accuracy"),
        ("roc_auc", "roc_auc"),
        (make_scorer(balanced_accuracy_score), "balanced_accuracy_score"),
        (["f1", "roc_auc"], "roc_auc"),
    ],
)
def test_plots_name_the_metric_and_show_deviations_and_the_best(rows: Any, scoring: Any, name: str) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3, 6]}, cv=3, scoring=scoring)
    search.set_params(refit="roc_auc" if isinstance(scoring, list) else True).fit(*rows)
    figure = plot_search(search)
    column = "roc_auc" if isinstance(scoring, list) else "score"
    mean, deviation = (search.cv_results_[f"{kind}_test_{column}"] for kind in ("mean", "std"))
    for axis in figure.axes:
        assert axis.get_ylabel() == name
        (bars,) = axis.containers
        drawn = sorted(float(segment[1, 1] - segment[0, 1]) for segment in bars.lines[2][0].get_segments())
        np.testing.assert_allclose(drawn, sorted(2 * deviation))
        (star,) = [line for line in axis.lines if line.get_marker() == "*"]
        assert star.get_ydata()[0] == mean[search.best_index_]
    assert figure.axes[0].lines[-1].get_xdata()[0] == search.best_params_["max_depth"]
    assert f"best {name}" in figure.get_suptitle()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_and_bytes_per_worker_do_not_grow_with_the_candidates() -> None:
    psutil = pytest.importorskip("psutil")
    X = np.zeros((200_000, 10))
    y = np.arange(200_000) % 2
    placed, memory = [], []
    for n_candidates in (10, 1000):
        grid = {"random_state": list(range(n_candidates))}
        search = GridSearchCV(DummyClassifier(), grid, cv=2, n_jobs=2, refit=False).fit(X, y)
        placed.append(search.search_report_.bytes_placed)
        memory.append(max(child.memory_info().rss for child in psutil.Process().children(recursive=True)))
        assert search.search_report_.bytes_of_units / search.search_report_.units < 2_000
    assert placed[0] == placed[1]
    assert memory[1] - memory[0] < 30e6
