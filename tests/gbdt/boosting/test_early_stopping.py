"""Early stopping: when it is asked for, what it watches, and what it remembers of a model that it goes on from."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import get_scorer, make_scorer, mean_absolute_error

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, GridSearchCV
from dmlgbm.command_line.main import main
from dmlgbm.gbdt.boosting.early_stopping import EarlyStopping
from dmlgbm.gbdt.callbacks import Evaluation
from dmlgbm.gbdt.parameters import TrainParameters

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(500, 4))
Y = X[:, 0] + np.abs(X[:, 1]) + RANDOM.normal(size=500)
LABELS = np.array(["few", "many"])[(Y > 0.8).astype(int)]
THREE = np.array(["a", "b", "c"])[np.digitize(Y, [0.0, 1.2])]
TRAIN, TEST = slice(0, 300), slice(300, None)
OTHERS = (X[TEST], Y[TEST])


def regressor(**parameters: Any) -> DMLGBMRegressor:
    return DMLGBMRegressor(**{"n_estimators": 150, "num_leaves": 15, "learning_rate": 0.2, **parameters})


def fitted(model: Any, *sets: Any, y: Any = Y, **arguments: Any) -> Any:
    return model.fit(X[TRAIN], y[TRAIN], eval_set=list(sets or [(X[TEST], y[TEST])]), **arguments)


# When it is asked for.


def test_rounds_with_an_evaluation_set_stop_training() -> None:
    model = fitted(regressor(early_stopping_rounds=5))
    history = model.evals_result_["valid_0"]["l2"]
    assert model.best_iteration_ == int(np.argmin(history)) + 1
    assert model.n_iter_ == model.best_iteration_ + 5 < 150


def test_false_forbids_and_no_rounds_do_not_ask() -> None:
    for parameters in ({"early_stopping": False, "early_stopping_rounds": 5}, {}):
        model = fitted(regressor(**parameters))
        assert (model.n_iter_, model.best_iteration_) == (150, None)


def test_true_asks_with_ten_rounds() -> None:
    model = fitted(regressor(early_stopping=True))
    assert model.n_iter_ == model.best_iteration_ + 10


def test_rounds_without_an_evaluation_set_are_a_warning() -> None:
    model = regressor(early_stopping_rounds=5, n_estimators=12)
    with pytest.warns(UserWarning, match=r"early_stopping_rounds=5 has no effect without an eval_set"):
        model.fit(X, Y)
    assert (model.n_iter_, model.best_iteration_) == (12, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(early_stopping=False).fit(X, Y)


# What it watches.


@pytest.mark.parametrize("copied", [False, True])
def test_the_training_rows_among_several_sets_are_not_watched(copied: bool) -> None:
    own = (X[TRAIN].copy(), Y[TRAIN].copy()) if copied else (X[TRAIN], Y[TRAIN])
    model = fitted(regressor(early_stopping_rounds=5), own, OTHERS)
    alone = fitted(regressor(early_stopping_rounds=5))
    assert model.best_iteration_ == alone.best_iteration_ < 150
    assert model.booster_.to_bytes() == alone.booster_.to_bytes()
    assert set(model.best_score_) == {"valid_0", "valid_1"}


def test_the_training_rows_are_recognised_in_frames_with_categories_and_missing_values() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["e"] = pd.Categorical(np.where(X[:, 2] > 0, "x", "y"))
    frame.loc[::7, "a"] = np.nan
    own, other = (frame[:300], Y[:300]), (frame[300:], Y[300:])
    model = regressor(early_stopping_rounds=5).fit(*own, eval_set=[(frame[:300].copy(), Y[:300]), other])
    alone = regressor(early_stopping_rounds=5).fit(*own, eval_set=[other])
    assert model.best_iteration_ == alone.best_iteration_ < 150


def test_rows_that_differ_in_one_value_are_another_set() -> None:
    almost = X[TRAIN].copy()
    almost[7, 2] += 1.0
    # A set that hardly improves in the end is watched, if it is not the training set.
    model = fitted(regressor(early_stopping_rounds=5, early_stopping_min_delta=0.02), (almost, Y[TRAIN]), OTHERS)
    own = fitted(regressor(early_stopping_rounds=5, early_stopping_min_delta=0.02, early_stopping_sets="valid_0"),
                 (almost, Y[TRAIN]), OTHERS)  # fmt: skip
    other = fitted(regressor(early_stopping_rounds=5, early_stopping_min_delta=0.02))
    assert model.n_iter_ == min(own.n_iter_, other.n_iter_)


def test_a_single_set_is_watched_even_if_it_holds_the_training_rows() -> None:
    model = fitted(regressor(early_stopping_rounds=5, early_stopping_min_delta=0.02), (X[TRAIN], Y[TRAIN]))
    assert model.n_iter_ == model.best_iteration_ + 5 < 150


def test_sets_to_watch_can_be_chosen_by_name() -> None:
    sets = [(X[TRAIN], Y[TRAIN]), OTHERS, (X[TEST][:60], Y[TEST][:60])]
    names = ["own", "whole", "part"]
    for watched, index in (("part", 2), (["whole"], 1)):
        model = fitted(regressor(early_stopping_rounds=5, early_stopping_sets=watched), *sets, eval_names=names)
        alone = fitted(regressor(early_stopping_rounds=5), sets[index])
        assert model.best_iteration_ == alone.best_iteration_
    on_own = regressor(early_stopping_rounds=5, early_stopping_sets=["own"], n_estimators=40)
    assert fitted(on_own, *sets, eval_names=names).n_iter_ == 40
    with pytest.raises(ValueError, match=r"early_stopping_sets names 'test', but .* are 'own', 'whole', 'part'"):
        fitted(regressor(early_stopping_rounds=5, early_stopping_sets=["own", "test"]), *sets, eval_names=names)


def test_every_metric_is_watched_unless_the_first_only() -> None:
    def constant(y_true: Any, y_pred: Any) -> tuple[str, float, bool]:
        return "constant", 1.0, False

    metrics = ["l2", constant]
    every = fitted(regressor(early_stopping_rounds=4, eval_metric=metrics))
    assert (every.n_iter_, every.best_iteration_) == (5, 1)
    first = fitted(regressor(early_stopping_rounds=4, eval_metric=metrics, first_metric_only=True))
    assert first.best_iteration_ == int(np.argmin(first.evals_result_["valid_0"]["l2"])) + 1 > 1


def test_an_improvement_of_min_delta_or_less_is_none() -> None:
    delta = 0.02
    model = fitted(regressor(early_stopping_rounds=3, learning_rate=0.1, early_stopping_min_delta=delta))
    history = model.evals_result_["valid_0"]["l2"]
    best = 0
    for position, value in enumerate(history):
        best = position if value < history[best] - delta else best
    assert model.best_iteration_ == best + 1
    assert model.n_iter_ == best + 4 < fitted(regressor(early_stopping_rounds=3, learning_rate=0.1)).n_iter_


def test_without_a_validation_fraction_the_training_loss_is_watched() -> None:
    parameters = {"early_stopping": True, "early_stopping_rounds": 3, "early_stopping_min_delta": 0.02}
    model = regressor(validation_fraction=None, **parameters).fit(X, Y)
    given = regressor(**parameters).fit(X, Y, eval_set=(X, Y), eval_names=["training"])
    assert model.evals_result_ == given.evals_result_
    assert model.n_iter_ == model.best_iteration_ + 3 < 150
    assert model.booster_.to_bytes() == given.booster_.to_bytes()


@pytest.mark.parametrize("scoring", ["roc_auc", "accuracy", "neg_log_loss", "roc_auc_ovr"])
def test_a_scorer_gives_its_value_for_the_fitted_model(scoring: str) -> None:
    y = THREE if scoring == "roc_auc_ovr" else LABELS
    model = DMLGBMClassifier(n_estimators=60, num_leaves=7, early_stopping_rounds=4, scoring=scoring)
    fitted(model, y=y)
    history = model.evals_result_["valid_0"][scoring]
    assert model.best_iteration_ == int(np.argmax(history)) + 1
    assert model.n_iter_ == model.best_iteration_ + 4 < 60
    assert model.best_score_["valid_0"][scoring] == get_scorer(scoring)(model, X[TEST], y[TEST])


@pytest.mark.parametrize(
    ("scoring", "name"),
    [
        (make_scorer(mean_absolute_error, greater_is_better=False), "mean_absolute_error"),
        (lambda estimator, rows, y: -np.abs(estimator.predict(rows) - y).mean(), "<lambda>"),
    ],
    ids=["scorer", "function"],
)
def test_a_scorer_may_be_a_function_of_estimator_rows_and_target(scoring: Any, name: str) -> None:
    model = fitted(regressor(objective="poisson", early_stopping_rounds=4, scoring=scoring), y=np.abs(Y))
    worth = model.best_score_["valid_0"][name]
    assert worth == pytest.approx(-mean_absolute_error(np.abs(Y[TEST]), model.predict(X[TEST])), rel=1e-12)
    assert worth == max(model.evals_result_["valid_0"][name])


def test_a_scorer_sees_the_weights_of_the_rows_set_aside() -> None:
    seen = []

    def scorer(estimator: Any, rows: Any, y: Any, sample_weight: Any = None) -> float:
        seen.append((sorted(set(y)), sample_weight))
        return float(estimator.score(rows, y, sample_weight))

    weight = np.where(Y > 0, 2.0, 1.0)
    model = DMLGBMClassifier(n_estimators=5, early_stopping=True, scoring=scorer)
    model.fit(X, LABELS, sample_weight=weight)
    assert {tuple(labels) for labels, _ in seen} == {("few", "many")}
    assert all(set(weights) == {1.0, 2.0} and len(weights) == 50 for _, weights in seen)
    assert "scorer" in model.evals_result_["validation"]


def test_scoring_loss_watches_the_loss_whatever_else_is_measured() -> None:
    model = fitted(regressor(early_stopping_rounds=4, scoring="loss", eval_metric=["l1"]))
    assert list(model.evals_result_["valid_0"]) == ["l2", "l1"]
    assert model.best_iteration_ == int(np.argmin(model.evals_result_["valid_0"]["l2"])) + 1


def test_a_scorer_that_returns_no_number_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"The scorer '<lambda>' must return a number, got None"):
        fitted(regressor(early_stopping_rounds=4, scoring=lambda estimator, rows, y: None))


def test_a_metric_that_is_not_a_number_at_first_is_improved_by_one_that_is() -> None:
    stopping = EarlyStopping(TrainParameters(early_stopping_rounds=2))
    for iteration, value in enumerate([math.nan, 3.0, 2.0, math.nan, 2.5], 1):
        reason = stopping.update(iteration, [Evaluation("valid", "l2", value, False)])
    assert stopping.best_iteration == 3
    assert reason == "valid l2 has not improved for 2 iterations"


@pytest.mark.parity
@pytest.mark.parametrize("first_metric_only", [False, True])
@pytest.mark.parametrize("min_delta", [0.0, 0.3])
def test_decisions_are_those_of_lightgbm(first_metric_only: bool, min_delta: float) -> None:
    """Both are shown the same values of two metrics on two sets, drawn at random."""
    lightgbm = pytest.importorskip("lightgbm")
    random = np.random.default_rng(2)
    metrics = {"l2": False, "auc": True}
    seen = set()
    for _ in range(30):
        steps = random.normal(size=(2, 2, 12)) + np.array([[-0.5], [0.5]])  # both metrics tend to improve
        values = steps.cumsum(axis=-1)  # [set, metric, iteration]
        training = lightgbm.Dataset(X, Y)
        sets = [lightgbm.Dataset(X, Y, reference=training) for _ in range(2)]
        shown = [iter(values[k].T.tolist()) for k in range(2)]

        def show(predicted: Any, data: Any, sets: Any = sets, shown: Any = shown) -> Any:
            return [(m, v, up) for (m, up), v in zip(metrics.items(), next(shown[sets.index(data)]), strict=True)]

        theirs = lightgbm.train(
            {"verbosity": -1, "metric": "none", "num_leaves": 2, "num_threads": 1},
            training,
            12,
            sets,
            ["one", "two"],
            feval=show,
            callbacks=[lightgbm.early_stopping(4, first_metric_only, verbose=False, min_delta=min_delta)],
        )
        stopping = EarlyStopping(
            TrainParameters(
                early_stopping_rounds=4, early_stopping_min_delta=min_delta, first_metric_only=first_metric_only
            )
        )
        n_iterations = 12 - len(list(shown[0]))
        for n in range(n_iterations):
            told = [
                Evaluation(name, metric, float(values[k, m, n]), up)
                for k, name in enumerate(["one", "two"])
                for m, (metric, up) in enumerate(metrics.items())
            ]
            reason = stopping.update(n + 1, told)
            assert reason is None or n + 1 == n_iterations
        assert reason is not None or n_iterations == 12
        if reason is None or n_iterations < 12:  # in the very last iteration LightGBM asks the first metric only
            assert stopping.best_iteration == theirs.best_iteration
        seen.add((n_iterations, theirs.best_iteration))
    assert len(seen) > 3


# Going on. Early stopping is asked for in full, so that rounds alone need not ask for it.

STOPPING = {"early_stopping": True, "early_stopping_rounds": 5}


def test_warm_start_keeps_the_earlier_best_where_nothing_new_is_better() -> None:
    model = fitted(regressor(**STOPPING, warm_start=True))
    best, score, predicted = model.best_iteration_, model.best_score_, model.predict(X)
    fitted(model)
    assert (model.best_iteration_, model.best_score_) == (best, score)
    assert min(model.evals_result_["valid_0"]["l2"]) >= score["valid_0"]["l2"]
    assert np.array_equal(model.predict(X), predicted)
    assert model.n_iter_ == best + 5


def test_warm_start_takes_a_new_best_that_is_better() -> None:
    model = fitted(regressor(**STOPPING, warm_start=True, n_estimators=4))
    before = model.best_score_["valid_0"]["l2"]
    whole = fitted(regressor(**STOPPING))
    fitted(model.set_params(n_estimators=150))
    assert model.best_score_["valid_0"]["l2"] < before
    assert model.best_iteration_ == whole.best_iteration_


def test_warm_start_with_rows_set_aside_never_reports_a_worse_best() -> None:
    model = regressor(early_stopping=True, warm_start=True).fit(X, Y)
    for _ in range(2):
        before = model.best_score_["validation"]["l2"]
        assert model.fit(X, Y).best_score_["validation"]["l2"] <= before


def test_an_init_model_stays_the_best_where_nothing_new_is_better() -> None:
    first = fitted(regressor(**STOPPING))
    model = fitted(regressor(**STOPPING), init_model=first)
    assert model.best_iteration_ == first.best_iteration_
    assert model.best_score_ == first.best_score_


# Everywhere.


def test_a_ranker_watches_every_position_or_the_first() -> None:
    grades, group = np.clip(np.round(Y), 0, 3), np.full(25, 20)
    models = [
        DMLGBMRanker(n_estimators=60, early_stopping=True, early_stopping_rounds=3, first_metric_only=first).fit(
            X, grades, group=group
        )
        for first in (False, True)
    ]
    assert models[0].n_iter_ <= models[1].n_iter_
    assert models[1].best_iteration_ == int(np.argmax(models[1].evals_result_["validation"]["ndcg@1"])) + 1


def test_rounds_alone_do_not_keep_a_search_from_sharing_work() -> None:
    estimator = regressor(n_estimators=4, early_stopping_rounds=3)
    assert estimator.stage_parameter() == "n_estimators"
    stopping = regressor(early_stopping=True)
    assert stopping.stage_parameter() is None
    assert None not in (stopping.preparation_key(), estimator.preparation_key())
    assert stopping.preparation_key() != estimator.preparation_key()
    scoring = regressor(early_stopping=True, scoring="r2", n_estimators=30)
    search = GridSearchCV(scoring, {"num_leaves": [5, 9]}, cv=2, backend="local").fit(X, Y)
    assert search.best_estimator_.best_iteration_ is not None
    assert "r2" in search.best_estimator_.evals_result_["validation"]


def test_the_command_line_stops_by_the_same_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=Y)
    frame[:300].to_csv(tmp_path / "train.csv", index=False)
    frame[300:].to_csv(tmp_path / "valid.csv", index=False)
    given = [str(tmp_path / "train.csv"), "--target", "y", "--out", str(tmp_path / "model.dml"), "--task", "regression"]
    options = ["-p", "scoring=r2", "-p", "early_stopping_rounds=3", "-p", "num_leaves=15"]
    main(["train", "--json", *given, "--valid", str(tmp_path / "valid.csv"), *options])
    result = json.loads(capsys.readouterr().out)
    assert result["iterations"] == result["best_iteration"] + 3 < 100
    assert set(result["metrics"]) == {"r2", "l2"}
    on_training = ["-p", "early_stopping=true", "-p", "validation_fraction=None", "-p", "min_delta=0.1"]
    main(["train", "--json", *given, *on_training])
    result = json.loads(capsys.readouterr().out)
    assert result["iterations"] == result["best_iteration"] + 10 < 100
    assert set(result["metrics"]) == {"l2"}
