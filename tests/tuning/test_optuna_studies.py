"""Optuna's studies in searches: several metrics, spaces of other libraries, samplers that end, studies that go on."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from scipy import stats
from search_models import FussyTree, TracedTree
from sklearn import model_selection
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dmlgbm import HyperbandSearchCV, OptunaSearchCV
from dmlgbm.tuning.search_run import SearchStoppedWarning

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)
LISTED = {"max_depth": [1, 2, 3, 4]}
DEPTHS = {"max_depth": optuna.distributions.IntDistribution(1, 4)}


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def two_scores(estimator: Any, X: Any, y: Any) -> dict[str, float]:
    return {"half": 0.5 * estimator.score(X, y), "whole": estimator.score(X, y)}


def last_row(results: Any) -> int:
    return len(results["params"]) - 1


@pytest.mark.parametrize("scoring", [["accuracy", "roc_auc"], two_scores])
@pytest.mark.parametrize("refit", [False, last_row])
@pytest.mark.parametrize("search", [HyperbandSearchCV, OptunaSearchCV])
def test_the_first_of_several_metrics_decides_where_refit_names_none(
    search: Any, refit: Any, scoring: Any, rows: Any
) -> None:
    space, options = (DEPTHS, {"n_trials": 3}) if search is OptunaSearchCV else (LISTED, {"min_resources": 60})
    found = search(TracedTree(), space, cv=2, scoring=scoring, refit=refit, random_state=0, **options).fit(*rows)
    first = "half" if callable(scoring) else "accuracy"
    means = found.cv_results_[f"mean_test_{first}"]
    assert np.isfinite(means).all()
    if search is OptunaSearchCV:
        told = [found.study_.trials[number].value for number in found.cv_results_["trial"]]
        np.testing.assert_allclose(told, means, rtol=1e-15)
    if refit:
        assert found.best_index_ == len(means) - 1


@pytest.mark.parametrize("n_at_once", [1, 3])
@pytest.mark.parametrize("kind", ["grid", "brute force"])
def test_a_search_ends_when_the_sampler_has_tried_everything(kind: str, n_at_once: int, rows: Any) -> None:
    samplers = {"grid": lambda: optuna.samplers.GridSampler(LISTED), "brute force": optuna.samplers.BruteForceSampler}
    study = optuna.create_study(direction="maximize", sampler=samplers[kind]())
    options = {"study": study, "n_trials": 50, "n_at_once": n_at_once, "cv": 2}
    found = OptunaSearchCV(TracedTree(), DEPTHS, **options).fit(*rows)
    assert {params["max_depth"] for params in found.cv_results_["params"]} == {1, 2, 3, 4}
    assert set(states(study)) == {"COMPLETE"}
    assert len(study.trials) < 4 + n_at_once
    again = OptunaSearchCV(TracedTree(), DEPTHS, **options).fit(*rows)
    assert again.best_score_ == found.best_score_
    assert set(states(study)) == {"COMPLETE"}


@pytest.mark.parametrize("resource", [None, "n_samples"])
def test_a_study_that_goes_on_keeps_its_best_trial(resource: str | None, rows: Any) -> None:
    def space(trial: Any) -> dict[str, Any]:
        return {"max_depth": 2 * trial.suggest_int("half_depth", 1, 3)}

    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    options: dict[str, Any] = {"study": study, "n_trials": 1, "cv": 2, "resource": resource, "min_resources": 60}
    study.enqueue_trial({"half_depth": 3})
    first = OptunaSearchCV(TracedTree(), space, **options).fit(*rows)
    study.enqueue_trial({"half_depth": 1})
    second = OptunaSearchCV(TracedTree(), space, **options).fit(*rows)
    shallow, deep = (trial.value for trial in reversed(study.trials))
    assert deep > shallow
    assert len(study.trials) == 2
    assert second.best_params_ == first.best_params_ == {"max_depth": 6}
    assert second.best_score_ == first.best_score_ == pytest.approx(study.best_value)
    assert second.cv_results_["trial"][second.best_index_] == 0
    assert second.best_estimator_.get_depth() > 2


def test_no_trial_keeps_running_when_a_search_ends_early(rows: Any) -> None:
    study = optuna.create_study(direction="maximize")
    options: dict[str, Any] = {"study": study, "n_trials": 100, "cv": 2, "n_at_once": 3}
    # Many depths: a trial with parameters of an earlier one need not run, and the search might end before its time.
    depths = {"max_depth": optuna.distributions.IntDistribution(1, 10_000)}
    with pytest.warns(SearchStoppedWarning):
        OptunaSearchCV(TracedTree(pause=0.1), depths, time_budget=3.0, **options).fit(*rows)
    assert set(states(study)) == {"COMPLETE", "FAIL"}
    study = optuna.create_study(direction="maximize")
    with pytest.raises(FloatingPointError):
        OptunaSearchCV(
            FussyTree(bad_depths=(1, 2, 3, 4)), DEPTHS, error_score="raise", **{**options, "study": study}
        ).fit(*rows)
    assert set(states(study)) == {"FAIL"}

    def space(trial: Any) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        OptunaSearchCV(TracedTree(), space, **{**options, "study": study}).fit(*rows)
    assert "RUNNING" not in states(study)


def test_lists_and_distributions_of_scipy_are_spaces(rows: Any) -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("tree", DecisionTreeClassifier(random_state=0))])
    scalers = [StandardScaler(), MinMaxScaler()]
    space = {
        "scale": scalers,
        "tree__max_depth": stats.randint(1, 4),
        "tree__criterion": ["gini", "entropy"],
        "tree__min_samples_leaf": np.array([1, 5]),
        "tree__min_weight_fraction_leaf": stats.uniform(0.0, 0.1),
        "tree__ccp_alpha": stats.loguniform(1e-5, 1e-2),
        "tree__min_impurity_decrease": stats.expon(scale=1e-3),
        "tree__max_features": optuna.distributions.FloatDistribution(0.5, 1.0),
    }
    searches = []
    for seed in (3, np.random.RandomState(3)):
        search = OptunaSearchCV(pipeline, space, n_trials=8, cv=2, random_state=seed)
        searches.append(search.fit(*rows).cv_results_)
    for results in searches:
        for params in results["params"]:
            assert type(params["scale"]) in (StandardScaler, MinMaxScaler)
            assert params["tree__max_depth"] in (1, 2, 3)
            assert params["tree__min_samples_leaf"] in (1, 5)
            assert 0 <= params["tree__min_weight_fraction_leaf"] <= 0.1
            assert 1e-5 <= params["tree__ccp_alpha"] <= 1e-2
            assert 0 < params["tree__min_impurity_decrease"] < 1
        row = results["params"][0]
        alone = model_selection.cross_val_score(clone(pipeline).set_params(**row), *rows, cv=2)
        assert results["mean_test_score"][0] == pytest.approx(alone.mean())


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"max_depth": 3}, r"param_distributions\['max_depth'\] must be an optuna or scipy distribution, or a list"),
        ({"max_depth": []}, r"param_distributions\['max_depth'\] must be"),
        ([{"max_depth": [1]}], "param_distributions must be a dict of names and distributions, or a function"),
    ],
)
def test_what_is_no_space_is_named(space: Any, message: str, rows: Any) -> None:
    with pytest.raises(TypeError, match=message):
        OptunaSearchCV(TracedTree(), space, cv=2).fit(*rows)


def test_copies_of_a_search_share_its_study() -> None:
    study = optuna.create_study(direction="maximize")
    search = OptunaSearchCV(TracedTree(), DEPTHS, study=study)
    assert clone(search).study is study
    assert copy.deepcopy(search).study is study
