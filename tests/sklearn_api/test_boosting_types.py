"""Forests, dropout and one-side sampling through the estimators: predictions, files, going on, what makes no sense."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.metrics import log_loss, mean_squared_error

from dmlgbm import Booster, DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, GridSearchCV, load_model
from dmlgbm.gbdt.parameters import ParameterError

X, TARGET = make_friedman1(700, 6, noise=1.0, random_state=0)
LABELS = np.digitize(TARGET, [12.0, 17.0])
SMALL: dict[str, Any] = {"n_estimators": 6, "num_leaves": 7, "random_state": 1}
FOREST: dict[str, Any] = {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1}
DART: dict[str, Any] = {"boosting_type": "dart", "skip_drop": 0.0, "drop_rate": 0.5}
GOSS: dict[str, Any] = {"boosting_type": "goss", "learning_rate": 0.5}
BAYESIAN: dict[str, Any] = {"bootstrap_type": "bayesian"}
MVS: dict[str, Any] = {"bootstrap_type": "mvs", "subsample": 0.5}
MODES = {"forest": FOREST, "dart": DART, "goss": GOSS, "bayesian": BAYESIAN, "mvs": MVS}


def models_of(mode: str) -> list[Any]:
    options = {**SMALL, **MODES[mode]}
    return [
        DMLGBMRegressor(**options).fit(X, TARGET),
        DMLGBMRegressor(objective="poisson", **options).fit(X, np.round(TARGET - TARGET.min())),
        DMLGBMClassifier(**options).fit(X, TARGET > 14),
        DMLGBMClassifier(**options).fit(X, LABELS),
        DMLGBMRanker(**options).fit(X, LABELS, group=[70] * 10),
    ]


def raw(model: Any, table: np.ndarray, **options: Any) -> np.ndarray:
    return np.asarray(model.predict(table, raw_score=True, **options))


@pytest.mark.parametrize("mode", MODES)
def test_every_way_to_predict_gives_the_same_bits(mode: str, tmp_path: Path) -> None:
    for model in models_of(mode):
        answer = model.predict_proba if hasattr(model, "predict_proba") else model.predict
        expected = answer(X)
        row = model.one_row()
        np.testing.assert_array_equal([row(values) for values in X[:30]], expected[:30])
        stages = list(getattr(model, "staged_predict_proba", model.staged_predict)(X))
        np.testing.assert_array_equal(stages[-1], expected)
        np.testing.assert_array_equal(stages[2], answer(X, num_iteration=3))
        model.save_model(tmp_path / "model")
        for again in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(getattr(again, answer.__name__)(X), expected)
        trees = Booster.load_model(tmp_path / "model")
        np.testing.assert_array_equal(trees.predict(X, raw_score=True), raw(model, X))


def test_a_forest_is_the_mean_of_its_trees() -> None:
    for model in models_of("forest"):
        booster = model.booster_
        assert booster.averages
        leaves = model.apply(X)
        values = np.array([tree.leaf_value[own] for tree, own in zip(booster.trees, leaves.T, strict=True)])
        means = values.reshape(6, booster.n_outputs, len(X)).mean(axis=0)
        scores = raw(model, X).T.reshape(booster.n_outputs, len(X))
        np.testing.assert_allclose(scores, booster.base_scores[:, None] + means, rtol=1e-12)


def test_stretches_of_a_forest_are_forests() -> None:
    model = DMLGBMRegressor(**SMALL, **FOREST).fit(X, TARGET)
    parts = [raw(model, X, start_iteration=first, num_iteration=2) for first in (0, 2, 4)]
    np.testing.assert_allclose(np.mean(parts, axis=0), raw(model, X), rtol=1e-12)


def test_trees_of_a_forest_do_not_know_of_one_another() -> None:
    """Each is the first tree of boosting without shrinkage on the rows that were drawn for it."""
    forest = DMLGBMRegressor(**SMALL, **FOREST).fit(X, TARGET).booster_
    assert forest.first(3) == DMLGBMRegressor(**{**SMALL, "n_estimators": 3}, **FOREST).fit(X, TARGET).booster_
    boosted = {**SMALL, **FOREST, "boosting_type": "gbdt", "learning_rate": 1.0, "n_estimators": 1}
    first = DMLGBMRegressor(**boosted).fit(X, TARGET).booster_.trees[0]
    np.testing.assert_array_equal(forest.trees[0].threshold, first.threshold)
    np.testing.assert_array_equal(forest.trees[0].leaf_value, first.leaf_value)
    assert len({tree.threshold.tobytes() for tree in forest.trees}) == 6


@pytest.mark.parametrize(
    "options",
    [
        {"extra_trees": True},
        {"colsample_bynode": 0.5},
        {"bootstrap_type": "bayesian"},
        {"bootstrap_type": "mvs", "subsample": 0.5},
        {"data_sample_strategy": "goss"},
    ],
    ids=str,
)
def test_whatever_makes_trees_differ_makes_a_forest(options: dict[str, Any]) -> None:
    forest = DMLGBMRegressor(**SMALL, boosting_type="rf", **options).fit(X, TARGET).booster_
    assert len({tree.threshold.tobytes() for tree in forest.trees}) == 6


@pytest.mark.parametrize("mode", MODES)
def test_nothing_depends_on_threads(mode: str) -> None:
    table, target = np.tile(X, (60, 1)), np.tile(TARGET, 60)
    table += np.linspace(0, 0.01, len(table))[:, None]
    labels = np.digitize(target, [12.0, 17.0])
    for estimator, y in ((DMLGBMRegressor, target), (DMLGBMClassifier, labels)):
        models = [estimator(**SMALL, **MODES[mode], n_jobs=n_jobs).fit(table, y) for n_jobs in (1, 2, 3)]
        assert len({model.booster_.to_bytes() for model in models}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_what_was_measured_is_what_the_model_gives(mode: str) -> None:
    model = DMLGBMRegressor(**SMALL, **MODES[mode], eval_metric="l2").fit(X, TARGET, eval_set=[(X, TARGET)])
    measured = model.evals_result_["valid_0"]["l2"]
    assert measured[-1] == pytest.approx(mean_squared_error(TARGET, model.predict(X)), rel=1e-9)
    for n_estimators in (1, 4):
        shorter = clone(model).set_params(n_estimators=n_estimators, eval_metric=None).fit(X, TARGET)
        expected = mean_squared_error(TARGET, shorter.predict(X))
        assert measured[n_estimators - 1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mode", ["forest", "goss", "bayesian", "mvs"])
def test_going_on_gives_the_model_of_one_fit(mode: str) -> None:
    whole = DMLGBMRegressor(**SMALL, **MODES[mode]).fit(X, TARGET).booster_
    model = DMLGBMRegressor(**{**SMALL, "n_estimators": 2}, **MODES[mode], warm_start=True).fit(X, TARGET)
    assert model.set_params(n_estimators=6).fit(X, TARGET).booster_ == whole


def test_going_on_with_dropout_leaves_earlier_trees_as_they_are() -> None:
    before = DMLGBMRegressor(**SMALL).fit(X, TARGET)
    after = DMLGBMRegressor(**SMALL, **DART).fit(X, TARGET, init_model=before)
    assert after.booster_.first(6) == before.booster_
    assert after.n_iter_ == 12
    scores = raw(before, X)
    same = DMLGBMRegressor(**SMALL, **DART).fit(X, TARGET, init_score=scores)
    assert [tree.n_leaves for tree in same.booster_.trees] == [tree.n_leaves for tree in after.booster_.trees[6:]]


def test_early_stopping_of_a_forest() -> None:
    options = {**SMALL, "n_estimators": 40, "early_stopping_rounds": 3}
    model = DMLGBMClassifier(**options, **FOREST, early_stopping=True).fit(X, LABELS)
    best = model.best_iteration_
    assert best is not None
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X, num_iteration=best))


@pytest.mark.parametrize("grid", [{"n_estimators": [2, 5]}, {"boosting_type": ["gbdt", "rf", "dart"]}])
@pytest.mark.parametrize("mode", ["forest", "dart", "goss"])
def test_searches_that_share_work_give_the_scores_of_plain_fits(mode: str, grid: dict[str, Any]) -> None:
    estimator = DMLGBMRegressor(**SMALL, **{"subsample": 0.5, "subsample_freq": 1, **MODES[mode]})
    if mode == "goss":
        estimator.set_params(subsample=1.0, colsample_bytree=0.5, boosting_type="gbdt", data_sample_strategy="goss")
    results = []
    for share_work in (True, False):
        search = GridSearchCV(
            estimator.set_params(learning_rate=0.1, drop_rate=0.1, skip_drop=0.5), grid, cv=2, share_work=share_work,
            n_jobs=1, return_train_score=True,
        )  # fmt: skip
        results.append(search.fit(X, TARGET))
    for name in ("mean_test_score", "mean_train_score"):
        np.testing.assert_array_equal(results[0].cv_results_[name], results[1].cv_results_[name])
    assert results[0].best_estimator_.booster_ == results[1].best_estimator_.booster_


def test_runs_with_dropout_are_not_taken_further() -> None:
    estimator = DMLGBMRegressor(**SMALL, **DART)
    assert estimator.stage_parameter() is None
    assert "later trees change others" in str(estimator.why_not_shared())
    prepared = estimator.prepare(X, TARGET)
    fitted = clone(estimator).fit_prepared(prepared)
    assert fitted.booster_ == clone(estimator).fit(X, TARGET).booster_
    with pytest.raises(ValueError, match="a run with boosting_type='dart' cannot be taken further"):
        clone(estimator).advance(prepared, 9, since=fitted)


def test_names_of_the_same_ways() -> None:
    def model(**options: Any) -> Any:
        return DMLGBMRegressor(**SMALL, **options).fit(X, TARGET).booster_

    sampled = {"subsample": 0.6, "subsample_freq": 1}
    assert model(boosting="random_forest", **sampled) == model(boosting_type="rf", **sampled)
    assert model(boosting_type="goss") == model(data_sample_strategy="goss")
    assert model(boosting_type="gbrt") == model()
    assert model(bootstrap_type="Bayesian") == model(bootstrap_type="bayesian") != model()
    assert model(boosting_type="dart", rate_drop=0.7) == model(boosting_type="dart", drop_rate=0.7)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"boosting_type": "plain"}, "boosting_type='plain' is not one of 'gbdt', 'rf', 'dart', 'goss'"),
        ({"boosting_type": None}, "boosting_type=None is not one of"),
        ({"boosting_type": "rf"}, "boosting_type='rf' without sampling would grow the same tree every time: set"),
        ({"boosting_type": "rf", "subsample_freq": 1}, "boosting_type='rf' without sampling"),
        ({"data_sample_strategy": "mvs"}, "data_sample_strategy='mvs' is not one of 'bagging', 'goss'"),
        ({"boosting_type": "goss", "subsample": 0.5, "subsample_freq": 1}, "and so does data_sample_strategy='goss'"),
        ({"boosting_type": "goss", "top_rate": 0.7, "other_rate": 0.4}, "add up to more than 1: lower one of them"),
        ({"boosting_type": "goss", "top_rate": 0.0}, "top_rate=0.0 is out of range: it must be above 0 and below 1"),
        ({"boosting_type": "goss", "other_rate": 1.0}, "other_rate=1.0 is out of range"),
        ({"bootstrap_type": "poisson"}, "bootstrap_type='poisson' is not one of 'bernoulli', 'bayesian', 'mvs'"),
        ({"bootstrap_type": "bayesian", "boosting_type": "goss"}, "weighs rows, and so does data_sample_strategy"),
        ({**BAYESIAN, "subsample": 0.5}, "subsample=0.5 draws rows, but bootstrap_type='bayesian' weighs all of them"),
        ({**BAYESIAN, "bagging_temperature": -1}, "bagging_temperature=-1 is out of range: it must be at least 0"),
        ({"bootstrap_type": "mvs"}, "bootstrap_type='mvs' draws a share of the rows: set subsample below 1"),
        ({**MVS, "subsample_freq": 2}, "subsample_freq=2 keeps rows for several iterations, but bootstrap_type='mvs'"),
        ({**MVS, "mvs_reg": -1.0}, "mvs_reg=-1.0 is out of range"),
        ({"boosting_type": "dart", "drop_rate": 1.5}, "drop_rate=1.5 is out of range: it must be between 0 and 1"),
        ({"boosting_type": "dart", "skip_drop": -0.5}, "skip_drop=-0.5 is out of range"),
        ({"boosting_type": "dart", "drop_seed": -1}, "drop_seed=-1 is out of range: it must be None or at least 0"),
        ({"boosting_type": "dart", "early_stopping": True}, "early stopping has no meaning with"),
    ],
)
def test_values_and_combinations_that_make_no_sense(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        DMLGBMRegressor(**parameters).fit(X, TARGET)


@pytest.mark.parametrize("name", ["uniform_drop", "xgboost_dart_mode"])
def test_flags(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False, got 1"):
        DMLGBMRegressor(boosting_type="dart", **{name: 1}).fit(X, TARGET)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"drop_rate": 0.3}, "drop_rate has no effect without boosting_type='dart': leave it out"),
        ({"boosting_type": "goss", "max_drop": 1, "drop_seed": 2}, "max_drop, drop_seed have no effect without"),
        ({"mvs_reg": 0.3}, "mvs_reg has no effect without bootstrap_type='mvs'"),
        ({"bagging_temperature": 2}, "bagging_temperature has no effect without bootstrap_type='bayesian'"),
        ({"top_rate": 0.3}, "top_rate has no effect without data_sample_strategy='goss'"),
        ({**FOREST, "learning_rate": 0.3}, "learning_rate has no effect with boosting_type='rf'"),
    ],
)
def test_parameters_of_another_way_warn(parameters: dict[str, Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        DMLGBMRegressor(**SMALL, **parameters).fit(X, TARGET)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"subsample_freq": 0}, "have no effect while subsample_freq=0: set subsample_freq=1"),
        ({"subsample_freq": 1, "subsample": 0.5}, "draw rows by class: leave out other ways to draw or"),
        ({"subsample_freq": 1, "bootstrap_type": "bayesian"}, "draw rows by class: leave out other ways"),
        ({"subsample_freq": 1, "neg_bagging_fraction": 0.0}, "neg_bagging_fraction=0.0 is out of range"),
    ],
)
def test_shares_of_classes_that_make_no_sense(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        DMLGBMClassifier(**{"pos_bagging_fraction": 0.5, **parameters}).fit(X, TARGET > 14)


def test_shares_of_classes_need_two_of_them() -> None:
    estimator = DMLGBMClassifier(**SMALL, pos_bagging_fraction=0.5, subsample_freq=1)
    with pytest.raises(ParameterError, match="are for two classes, but y holds 3: use subsample"):
        estimator.fit(X, LABELS)
    with pytest.raises(ParameterError, match="are for two classes, but y holds 3: use subsample"):
        estimator.fit_prepared(estimator.prepare(X, LABELS))


@pytest.mark.parametrize(("positive", "negative"), [(0.2, 0.9), (0.9, 0.2), (1.0, 0.3)])
def test_classes_are_drawn_with_their_shares(positive: float, negative: float) -> None:
    """A column that tells the classes apart makes the first split: its leaves hold what was drawn of each."""
    labels = np.random.default_rng(0).random(20_000) < 0.3
    options = {"n_estimators": 3, "num_leaves": 2, "pos_bagging_fraction": positive, "neg_bagging_fraction": negative}
    model = DMLGBMClassifier(**options, subsample_freq=1).fit(labels[:, None].astype(float), labels)
    for tree in model.booster_.trees:
        drawn = tree.leaf_count / np.array([np.sum(~labels), np.sum(labels)])
        np.testing.assert_allclose(drawn, [negative, positive], atol=0.02)


def test_a_forest_goes_on_from_forests_only() -> None:
    boosted, forest = (DMLGBMRegressor(**SMALL, **mode).fit(X, TARGET) for mode in ({}, FOREST))
    with pytest.raises(ParameterError, match="boosting_type='rf' cannot go on from a model that is not of"):
        DMLGBMRegressor(**SMALL, **FOREST).fit(X, TARGET, init_model=boosted)
    with pytest.raises(ParameterError, match="boosting_type='dart' cannot go on from a model of boosting_type='rf'"):
        DMLGBMRegressor(**SMALL, **DART).fit(X, TARGET, init_model=forest)


@pytest.mark.parity
@pytest.mark.parametrize(
    "options",
    [
        {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1, "colsample_bytree": 0.7},
        {"boosting_type": "dart"},
        {"boosting_type": "dart", "skip_drop": 0.0, "drop_rate": 0.3, "uniform_drop": True, "xgboost_dart_mode": True},
        {"boosting_type": "goss"},
        {"boosting_type": "goss", "top_rate": 0.1, "other_rate": 0.1, "learning_rate": 0.3},
        {"pos_bagging_fraction": 0.8, "neg_bagging_fraction": 0.4, "subsample_freq": 1},
    ],
    ids=str,
)
def test_as_accurate_as_lightgbm(options: dict[str, Any]) -> None:
    """Mean of three seeds: at most 5 % worse. Targets are centred: LightGBM drops their mean with the first tree."""
    lightgbm = pytest.importorskip("lightgbm")
    table, target = make_friedman1(4_000, 10, noise=1.0, random_state=1)
    target -= target.mean()
    features, labels = make_classification(
        4_000, 12, n_informative=6, n_redundant=0, flip_y=0.1, class_sep=0.7, random_state=3
    )
    learnt, new = slice(0, 2_500), slice(2_500, None)
    losses = np.zeros((2, 2))
    for seed in range(3):
        common = {"n_estimators": 60, "random_state": seed, "n_jobs": 1, **options}
        own = DMLGBMClassifier(**common, reg_lambda=0.0, max_delta_step=0.0)
        for column, model in enumerate((own, lightgbm.LGBMClassifier(**common, verbose=-1))):
            predicted = model.fit(features[learnt], labels[learnt]).predict_proba(features[new])
            losses[0, column] += log_loss(labels[new], predicted)
        if "pos_bagging_fraction" in options:
            continue
        for column, kind in enumerate((DMLGBMRegressor, lightgbm.LGBMRegressor)):
            model = kind(**common).set_params(verbose=-1).fit(table[learnt], target[learnt])
            losses[1, column] += mean_squared_error(target[new], model.predict(table[new]))
    assert (losses[:, 0] <= 1.05 * losses[:, 1]).all(), losses
