"""Leaf values fitted again: the bytes of training on its own rows, slow obvious code and LightGBM on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmlgbm
from dmlgbm import Booster, Dataset, DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, ParameterError
from dmlgbm.gbdt.boosting import refitting

RANDOM = np.random.default_rng(17)
X = RANDOM.normal(size=(411, 4))
X[::5, 1] = np.nan
SIGNAL = X[:, 0] - np.nan_to_num(X[:, 1]) * X[:, 2] + 0.2 * RANDOM.normal(size=411)
BINARY = np.where(SIGNAL > 0.3, "yes", "no")
THREE = np.digitize(SIGNAL, [-0.7, 0.7])
TIMES = np.exp(SIGNAL) * np.where(RANDOM.random(411) < 0.3, -1.0, 1.0)  # negative: censored
SIZES = [111, 100, 150, 50]
WEIGHT = RANDOM.uniform(0.5, 2.0, 411)
NEW = RANDOM.normal(size=(300, 4))
NEW_SIGNAL = 2.0 * NEW[:, 0] - NEW[:, 1] * NEW[:, 2]
SMALL = {"n_estimators": 6, "num_leaves": 7, "learning_rate": 0.3}

MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "squared error": (DMLGBMRegressor(), SIGNAL, {}),
    "penalties": (DMLGBMRegressor(reg_alpha=0.5, reg_lambda=3.0, max_delta_step=0.4), SIGNAL, {}),
    "absolute error": (DMLGBMRegressor(objective="l1"), SIGNAL, {"sample_weight": WEIGHT}),
    "quantile": (DMLGBMRegressor(objective="quantile", alpha=0.2), SIGNAL, {"sample_weight": np.ceil(WEIGHT)}),
    "rates": (DMLGBMRegressor(objective="poisson"), np.floor(np.exp(SIGNAL)), {}),
    "two classes": (DMLGBMClassifier(class_weight={"no": 3}), BINARY, {"sample_weight": np.floor(WEIGHT)}),
    "three classes": (DMLGBMClassifier(class_weight="balanced"), THREE, {"sample_weight": WEIGHT}),
    "ranking": (DMLGBMRanker(), THREE, {"group": SIZES}),
    "lists of rows": (DMLGBMRanker(objective="rank_xendcg"), THREE, {"group": SIZES}),
    "pairs of rows": (DMLGBMRanker(objective="pairwise"), THREE, {"group": SIZES}),
    "hazards": (DMLGBMRegressor(objective="cox"), TIMES, {}),
    "survival times": (DMLGBMRegressor(objective="aft"), TIMES, {"sample_weight": WEIGHT}),
    "focal loss": (DMLGBMClassifier(objective="focal"), BINARY, {}),
    "unbalanced classes": (DMLGBMClassifier(is_unbalance=True), BINARY, {}),
    "one against the rest": (DMLGBMClassifier(objective="multiclassova"), THREE, {}),
    "first scores": (DMLGBMRegressor(), SIGNAL, {"init_score": X[:, 0] / 3}),
    "more than 255 leaves": (DMLGBMRegressor(num_leaves=400, min_child_samples=1), SIGNAL, {}),
}


def fitted(kind: str, n_jobs: int = 1) -> Any:
    estimator, y, more = MODELS[kind]
    parameters = {name: value for name, value in SMALL.items() if not (name == "num_leaves" and "leaves" in kind)}
    return type(estimator)(**estimator.get_params()).set_params(n_jobs=n_jobs, **parameters).fit(X, y, **more)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("kind", MODELS)
def test_rows_of_training_give_a_model_its_own_bytes(kind: str, n_jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refitting, "_MOST_NUMBERS", 2 * len(X))
    model = fitted(kind, n_jobs)
    before = model.booster_
    _, y, more = MODELS[kind]
    assert model.refit(X, y, 0.0, **more).booster_ == before
    assert model.booster_ is not before
    assert model.refit(X, y, 1.0, **more).booster_ == before


def newton_by_hand(model: Booster, y: Any, weight: Any, decay_rate: float, penalty: float) -> Any:
    """Predictions after a refit of squared errors, leaf by leaf."""
    base = decay_rate * model.base_scores[0] + (1 - decay_rate) * np.average(y, weights=weight)
    scores = np.full(len(y), base)
    for tree, leaves in zip(model.trees, model.predict(NEW, pred_leaf=True).T, strict=True):
        values = tree.leaf_value.copy()
        for leaf in np.unique(leaves):
            rows = leaves == leaf
            step = np.sum(weight[rows] * (y - scores)[rows]) / (np.sum(weight[rows]) + penalty)
            values[leaf] = decay_rate * values[leaf] + (1 - decay_rate) * SMALL["learning_rate"] * step
        scores += values[leaves]
    return scores


@pytest.mark.parametrize("weight", [None, RANDOM.uniform(0.5, 2.0, 300), RANDOM.integers(0, 4, 300).astype(float)])
def test_values_are_those_of_slow_obvious_code(weight: Any) -> None:
    model = DMLGBMRegressor(**SMALL, reg_lambda=2.0).fit(X, SIGNAL)
    kept = np.ones(300) if weight is None else weight
    used = kept > 0
    expected = newton_by_hand(model.booster_, NEW_SIGNAL, kept, 0.7, 2.0)
    before = model.booster_
    refitted = model.refit(NEW, NEW_SIGNAL, 0.7, sample_weight=weight)
    np.testing.assert_allclose(refitted.predict(NEW)[used], expected[used], rtol=1e-6)
    assert all((a.threshold == b.threshold).all() for a, b in zip(before.trees, refitted.booster_.trees, strict=True))


def test_leaves_that_no_row_reaches_keep_their_values() -> None:
    model = DMLGBMRegressor(**SMALL).fit(X, SIGNAL)
    before, leaves = model.booster_.trees, model.apply(NEW[:3])
    after = model.refit(NEW[:3], NEW_SIGNAL[:3], 0.5).booster_.trees
    for old, new, reached in zip(before, after, leaves.T, strict=True):
        same = old.leaf_value == new.leaf_value
        assert sorted(np.flatnonzero(~same)) == sorted(set(reached))


def test_refit_lowers_the_error_where_the_target_has_drifted() -> None:
    model = DMLGBMRegressor(n_estimators=40).fit(X, SIGNAL)
    before = np.mean((model.predict(NEW) - NEW_SIGNAL - 3.0) ** 2)
    model.refit(NEW[:200], NEW_SIGNAL[:200] + 3.0, 0.2)
    assert np.mean((model.predict(NEW) - NEW_SIGNAL - 3.0)[200:] ** 2) < before / 4


def test_booster_of_train_is_refitted_by_its_parameters_and_others_by_those_given(tmp_path: Any) -> None:
    frame = pd.DataFrame({"text": RANDOM.choice(["a", "b"], 411), "number": X[:, 0]})
    params = {"objective": "softmax", "num_class": 3, "eta": 0.3, "num_leaves": 7, "class_weight": "balanced"}
    booster = dmlgbm.train(params, Dataset(frame, THREE), 4)
    again = booster.refit(frame[::2], THREE[::2], 0.4, weight=WEIGHT[::2])
    model = DMLGBMClassifier(**SMALL, class_weight="balanced").set_params(n_estimators=4).fit(frame, THREE)
    model.refit(frame[::2], THREE[::2], 0.4, sample_weight=WEIGHT[::2])
    assert again == model.booster_
    booster.save_model(tmp_path / "model")
    read = Booster.load_model(tmp_path / "model")
    with pytest.raises(ParameterError, match="does not know what it was trained with"):
        read.refit(frame, THREE)
    with pytest.raises(ParameterError, match="params ask for objective 'regression'"):
        read.refit(frame, THREE, params={})
    assert read.refit(frame[::2], THREE[::2], 0.4, weight=WEIGHT[::2], params=params) == again


def test_iterations_beyond_the_best_one_are_dropped() -> None:
    model = DMLGBMRegressor(n_estimators=200, learning_rate=0.7, early_stopping_rounds=3)
    model.fit(X[:300], SIGNAL[:300], eval_set=[(X[300:], SIGNAL[300:])])
    best, first = model.best_iteration_, model.predict(X)
    assert model.refit(X, SIGNAL, 1.0).n_iter_ == best == model.best_iteration_
    np.testing.assert_array_equal(model.predict(X), first)


AFTER_STOPPING: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    name: MODELS[name] for name in ("squared error", "two classes", "three classes", "ranking")
}


@pytest.mark.parametrize("kind", AFTER_STOPPING)
def test_after_stopping_the_chosen_trees_get_the_values_of_all_rows(kind: str) -> None:
    estimator, y, more = AFTER_STOPPING[kind]
    parameters = {"early_stopping": True, "early_stopping_rounds": 3, "n_estimators": 60, "learning_rate": 0.5}
    plain = type(estimator)(**estimator.get_params()).set_params(**parameters).fit(X, y, **more)
    both = type(estimator)(**plain.get_params()).set_params(refit_after_stopping=True).fit(X, y, **more)
    assert (both.best_iteration_, both.n_iter_) == (plain.best_iteration_, plain.best_iteration_)
    assert both.evals_result_ == plain.evals_result_
    assert both.booster_ != plain.booster_.first(plain.best_iteration_)
    assert both.booster_ == plain.refit(X, y, 0.0, **more).booster_


def test_after_stopping_only_new_iterations_are_refitted() -> None:
    first = DMLGBMRegressor(n_estimators=3, learning_rate=0.3).fit(X, SIGNAL)
    model = DMLGBMRegressor(n_estimators=50, learning_rate=0.3, early_stopping=True, refit_after_stopping=True)
    model.fit(X, SIGNAL, init_model=first)
    assert model.booster_.first(3) == first.booster_
    assert model.n_iter_ == model.best_iteration_ > 3


def test_search_that_shares_work_refits_after_stopping() -> None:
    model = DMLGBMRegressor(n_estimators=40, early_stopping=True, refit_after_stopping=True)
    prepared = model.prepare(X, SIGNAL)
    assert DMLGBMRegressor(**model.get_params()).fit_prepared(prepared).booster_ == model.fit(X, SIGNAL).booster_


@pytest.mark.parametrize(
    "more",
    [
        {"parameters": {}},
        {"parameters": {"early_stopping": True, "validation_fraction": None}},
        {"parameters": {"early_stopping": True}, "eval_set": [(X, SIGNAL)]},
    ],
)
def test_refit_after_stopping_needs_rows_that_are_set_aside(more: dict[str, Any]) -> None:
    parameters = more.pop("parameters")
    with pytest.raises(ParameterError, match="refit_after_stopping=True needs rows that early stopping sets aside"):
        DMLGBMRegressor(refit_after_stopping=True, **parameters).fit(X, SIGNAL, **more)


def test_what_belongs_to_rows_of_training_is_not_refitted_after_stopping() -> None:
    parameters = {"early_stopping": True, "refit_after_stopping": True}
    with pytest.raises(ParameterError, match="does not fit position: what places add"):
        DMLGBMRanker(**parameters).fit(X, THREE, group=SIZES, position=np.arange(411) % 10)
    with pytest.raises(ParameterError, match="does not fit objective='rank_xendcg', whose draws"):
        DMLGBMRanker(objective="rank_xendcg", **parameters).fit(X, THREE, group=SIZES)
    ranker = DMLGBMRanker(**parameters)
    prepared = ranker.prepare(X, THREE, group=SIZES)
    with pytest.raises(ParameterError, match="does not fit objective='rank_xendcg', whose draws"):
        ranker.set_params(objective="rank_xendcg").fit_prepared(prepared)


def test_bad_arguments_of_refit_get_one_clear_sentence() -> None:
    model = fitted("two classes")
    with pytest.raises(ParameterError, match=r"decay_rate=1\.5 is out"):
        model.refit(X, BINARY, 1.5)
    with pytest.raises(TypeError, match="decay_rate must be a number"):
        model.refit(X, BINARY, "0.9")
    with pytest.raises(ValueError, match="y holds the class 'perhaps', which is none of those that are learnt"):
        model.refit(X, np.where(BINARY == "yes", "perhaps", BINARY))
    with pytest.raises(ValueError, match="X has 3 features"):
        model.refit(X[:, :3], BINARY)
    with pytest.raises(ValueError, match="which rows form a query"):
        fitted("ranking").refit(X, THREE)


def test_collections_are_refused() -> None:
    array = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="refit takes rows of this process"):
        fitted("squared error").refit(array.from_array(X), SIGNAL)


@pytest.mark.parity
@pytest.mark.parametrize(("objective", "n_iterations"), [("regression", 5), ("binary", 2)])
def test_refitted_predictions_are_those_of_lightgbm(objective: str, n_iterations: int) -> None:
    import lightgbm

    # Few distinct values leave both libraries the same thresholds to choose from.
    drawn = np.random.default_rng(1)
    tables = [drawn.integers(0, 12, size=(n, 4)).astype(float) for n in (411, 300)]
    targets = [factor * x[:, 0] - x[:, 1] * x[:, 2] / 6.1 for factor, x in zip((1.0, 2.0), tables, strict=True)]
    if objective == "binary":
        targets = [(target > 0).astype(float) for target in targets]
    params = {"objective": objective, "num_leaves": 7, "learning_rate": 0.3, "lambda_l2": 1.0}
    of_theirs = params | {"verbose": -1, "boost_from_average": False, "min_data_in_bin": 1}
    theirs = lightgbm.train(of_theirs, lightgbm.Dataset(tables[0], targets[0]), n_iterations)
    # Where training starts is no leaf of theirs: first scores of 0 leave it out.
    ours = dmlgbm.train(params, Dataset(tables[0], targets[0], init_score=np.zeros(411)), n_iterations)
    before, expected = (each.predict(tables[1]) for each in (ours, theirs))
    np.testing.assert_allclose(before, expected, rtol=1e-5)
    after = ours.refit(tables[1], targets[1], 0.6, init_score=np.zeros(300)).predict(tables[1])
    assert np.abs(after - before).max() > 0.05
    np.testing.assert_allclose(after, theirs.refit(tables[1], targets[1], 0.6).predict(tables[1]), rtol=1e-5)
